// What a GPU's thread computes, on the processor: the bits of the plain loops. That holds all of
// the kernels but their launch, on machines without a GPU too.
#include "zero/update/cuda/cuda_formulas.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "tests/zero/pass_cases.h"
#include "zero/update/reference.h"

namespace ringzero {
namespace {

// As a grid's threads do it: each value by itself, here from the last to the first.
void FormulaPass(const PassStep& step, const UpdateSpan& span) {
  struct Value {
    const UpdateSpan& span;
    int64_t i;
    void operator()(const SgdStep& step) const { cuda::SgdValue(step, span, i); }
    void operator()(const AdamStep& step) const { cuda::AdamValue(step, span, i); }
    void operator()(const LionStep& step) const { cuda::LionValue(step, span, i); }
    void operator()(const AdagradStep& step) const { cuda::AdagradValue(step, span, i); }
  };
  for (int64_t i = span.count - 1; i >= 0; --i) std::visit(Value{span, i}, step);
}

TEST(CudaFormulasTest, GiveTheBitsOfPlainLoops) {
  for (const PassCase& each : PassCases({1, 5001})) {
    PassMemory wanted(each), found(each);
    UpdateSpan plain = wanted.Span(), formulas = found.Span();
    std::vector<float> predicted(each.count), also(each.count);
    plain.predicted = predicted.data();
    formulas.predicted = also.data();
    plain.momentum = formulas.momentum = 0.9f;
    PlainPass(each.step, plain);
    FormulaPass(each.step, formulas);
    ExpectSame(wanted, found);
    ExpectSame(predicted, also, each.Name() + ", predicted");
    if (HasFailure()) return;
  }
}

// Every value that an fp16 can be, those halfway between two, and their neighbours.
TEST(CudaFormulasTest, RoundToWireAsReferenceDoes) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 0x1000) {
    for (const int64_t by : {-1, 0, 1}) {
      const float value = cuda::FloatOf(static_cast<uint32_t>(bits + by));
      ASSERT_EQ(cuda::ToBf16(value), reference::ToWire(WireType::kBf16, value)) << value;
      ASSERT_EQ(cuda::ToFp16(value), reference::ToWire(WireType::kFp16, value)) << value;
    }
  }
}

TEST(CudaFormulasTest, LanesTakeSquaresInTheOrderOfThePlainLoop) {
  for (const int64_t count : {1, 15, 16, 17, 4001}) {
    std::vector<float> values(count);
    for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7919 % 1000) / 7;
    double wanted[kSquareLanes] = {1, 2, 3}, found[kSquareLanes] = {1, 2, 3};
    reference::SquaresPass(values.data(), count, wanted);
    for (int64_t lane = 0; lane < kSquareLanes; ++lane) {
      found[lane] = cuda::SquaresLane(values.data(), count, lane, found[lane]);
    }
    EXPECT_EQ(std::memcmp(wanted, found, sizeof(wanted)), 0) << count << " values";
  }
}

}  // namespace
}  // namespace ringzero
