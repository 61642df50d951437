// The passes on a GPU give the bits of the plain loops; without one they say so.
#include "zero/optimizer/cuda/cuda_kernels.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/zero/pass_cases.h"
#include "tests/zero/update_reference.h"
#include "zero/optimizer/kernels.h"

namespace ringzero {
namespace {

// A copy of a vector on the GPU.
template <class T>
class OnGpu {
 public:
  explicit OnGpu(const std::vector<T>& values) : bytes_(values.size() * sizeof(T)) {
    EXPECT_EQ(cudaMalloc(&data_, bytes_), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), bytes_, cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~OnGpu() { cudaFree(data_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  // Waits for all passes before it.
  void CopyTo(std::vector<T>& values) const {
    EXPECT_EQ(cudaMemcpy(values.data(), data_, bytes_, cudaMemcpyDeviceToHost), cudaSuccess);
  }

 private:
  size_t bytes_;
  void* data_ = nullptr;
};

// The pass over copies of `memory` there, and back.
void RunOnGpu(PassMemory& memory) {
  const OnGpu theta(memory.theta), sum(memory.sum), out(memory.out), first(memory.first),
      second(memory.second);
  const OnGpu wire(memory.wire);
  UpdateSpan span = memory.Span();
  span.out = span.out == span.theta ? theta.data() : out.data();
  span.theta = theta.data();
  span.sum = sum.data();
  span.first = first.data();
  span.second = second.data();
  span.wire = wire.data();
  EXPECT_EQ(cuda::UpdatePass(memory.of.step, span, {}), absl::OkStatus());
  theta.CopyTo(memory.theta);
  out.CopyTo(memory.out);
  first.CopyTo(memory.first);
  second.CopyTo(memory.second);
  wire.CopyTo(memory.wire);
}

class CudaKernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status status = cuda::Available(); !status.ok()) {
      GTEST_SKIP() << status.message();
    }
  }
};

TEST_F(CudaKernelsTest, GiveTheBitsOfPlainLoops) {
  for (const PassCase& each : PassCases({1, 255, 256, 257, 70001})) {
    PassMemory wanted(each), found(each);
    reference::UpdatePass(each.step, wanted.Span());
    RunOnGpu(found);
    ExpectSame(wanted, found);
    if (HasFailure()) return;
  }
}

TEST_F(CudaKernelsTest, AddsGradients) {
  std::vector<float> sum = MixedValues(10001, 5), found = sum;
  const std::vector<float> gradient = MixedValues(10001, 6);
  const OnGpu sums(sum), gradients(gradient);
  const cuda::AddSpan span{.sum = sums.data(), .gradient = gradients.data(), .count = 10001};
  ASSERT_EQ(cuda::Pass(span, {}), absl::OkStatus());
  sums.CopyTo(found);
  reference::AddPass(sum.data(), gradient.data(), 10001);
  ExpectSame(sum, found, "sum");
}

TEST_F(CudaKernelsTest, SquaresOfEachBlock) {
  SquaresCase wanted(10001, 1000), found(10001, 1000);
  wanted.PlainPass();
  const OnGpu values(found.values);
  const OnGpu lanes(found.lanes);
  const cuda::SquaresSpan span{
      .values = values.data(), .count = 10001, .block = 1000, .lanes = lanes.data()};
  ASSERT_EQ(cuda::Pass(span, {}), absl::OkStatus());
  lanes.CopyTo(found.lanes);
  EXPECT_EQ(wanted.lanes, found.lanes);
}

TEST_F(CudaKernelsTest, BetweenFp32AndWireTypes) {
  for (const ValueType type : {ValueType::kBf16, ValueType::kFp16}) {
    std::vector<float> wide(10001), wide_found(10001), sum = MixedValues(10001, 5), sum_found = sum;
    std::vector<uint16_t> narrow = NarrowValues(10001, 7), narrow_found(10001);
    const OnGpu narrows(narrow), narrows_found(narrow_found);
    const OnGpu wides(wide), sums(sum);
    const cuda::WidenSpan widen{
        .type = type, .values = narrows.data(), .out = wides.data(), .count = 10001};
    const cuda::AddNarrowSpan add{
        .type = type, .sum = sums.data(), .gradient = narrows.data(), .count = 10001};
    const cuda::NarrowSpan back{
        .type = type, .values = sums.data(), .out = narrows_found.data(), .count = 10001};
    ASSERT_EQ(cuda::Pass(widen, {}), absl::OkStatus());
    ASSERT_EQ(cuda::Pass(add, {}), absl::OkStatus());
    ASSERT_EQ(cuda::Pass(back, {}), absl::OkStatus());
    wides.CopyTo(wide_found);
    sums.CopyTo(sum_found);
    narrows_found.CopyTo(narrow_found);
    reference::WidenPass(type, narrow.data(), wide.data(), 10001);
    reference::AddNarrowPass(type, sum.data(), narrow.data(), 10001);
    reference::NarrowPass(type, sum.data(), narrow.data(), 10001);
    ExpectSame(wide, wide_found, "widened");
    ExpectSame(sum, sum_found, "added");
    ExpectSame(type, narrow, narrow_found, "narrowed");
  }
}

TEST_F(CudaKernelsTest, RoundsByChance) {
  const std::vector<float> gradient = MixedValues(10001, 6);
  std::vector<uint16_t> wanted = NarrowValues(10001, 7), found = wanted;
  const OnGpu gradients(gradient);
  const OnGpu sums(wanted);
  const RoundingKey key{.key = 5, .stream = 6};
  ASSERT_EQ(cuda::Pass(cuda::AddRoundedSpan{.key = key,
                                            .first = 13,
                                            .sum = sums.data(),
                                            .gradient = gradients.data(),
                                            .out = sums.data(),
                                            .count = 10001},
                       {}),
            absl::OkStatus());
  sums.CopyTo(found);
  reference::AddRoundedPass(key, 13, wanted.data(), gradient.data(), wanted.data(), 10001);
  ExpectSame(ValueType::kBf16, wanted, found, "rounded");
}

TEST(CudaKernelErrorsTest, WithoutAGpuEveryPassSaysSo) {
  const absl::Status available = cuda::Available();
  if (available.ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(available, Says("cuda::Available: "));
  for (const PassCase& each : PassCases({3})) {
    PassMemory memory(each);
    const absl::Status status = cuda::UpdatePass(each.step, memory.Span(), {});
    EXPECT_EQ(status.code(), available.code()) << status;
    EXPECT_THAT(status, Says("Pass: "));
  }
  for (const absl::Status& status :
       {cuda::Pass(cuda::AddSpan{.count = 1}, {}), cuda::Pass(cuda::SquaresSpan{.count = 1}, {}),
        cuda::Pass(cuda::WidenSpan{.count = 1}, {}), cuda::Pass(cuda::NarrowSpan{.count = 1}, {}),
        cuda::Pass(cuda::AddNarrowSpan{.count = 1}, {}),
        cuda::Pass(cuda::AddRoundedSpan{.count = 1}, {})}) {
    EXPECT_EQ(status.code(), available.code()) << status;
  }
}

TEST(CudaKernelErrorsTest, CountsAreChecked) {
  for (const PassCase& each : PassCases({0})) {
    EXPECT_EQ(cuda::UpdatePass(each.step, {.count = 0}, {}), absl::OkStatus());
    const absl::Status status = cuda::UpdatePass(each.step, {.count = -1}, {});
    EXPECT_THAT(status,
                Fails(absl::StatusCode::kInvalidArgument, "count is -1, it must be 0 or more"));
  }
  EXPECT_THAT(cuda::Pass(cuda::SquaresSpan{.count = 1, .block = 0}, {}),
              Says("block is 0, it must be 1 or more"));
}

}  // namespace
}  // namespace ringzero
