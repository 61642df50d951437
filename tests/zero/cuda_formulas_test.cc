// What a GPU's thread computes, on the processor: the bits of the plain loops. That holds all of
// the kernels but their launch, on machines without a GPU too.
#include "zero/update/cuda/cuda_formulas.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tests/zero/pass_cases.h"
#include "zero/update/narrow_kernels.h"
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
    PlainPass(each.step, wanted.Span());
    FormulaPass(each.step, found.Span());
    ExpectSame(wanted, found);
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

TEST(CudaFormulasTest, WidenAsReferenceDoes) {
  for (const WireType type : {WireType::kBf16, WireType::kFp16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const uint16_t value = static_cast<uint16_t>(bits);
      ASSERT_EQ(cuda::BitsOf(cuda::FromWire(type, value)),
                cuda::BitsOf(reference::FromWire(type, value)))
          << bits;
    }
  }
}

TEST(CudaFormulasTest, LanesTakeSquaresInTheOrderOfThePlainLoop) {
  for (const int64_t count : {1, 15, 16, 17, 4001}) {
    for (const int64_t block : {16, 100, 5000}) {
      SquaresCase wanted(count, block), found(count, block);
      wanted.PlainPass();
      const cuda::SquaresSpan span{.values = found.values.data(),
                                   .count = count,
                                   .block = block,
                                   .lanes = found.lanes.data()};
      ASSERT_EQ(cuda::SquaresLanes(span), static_cast<int64_t>(found.lanes.size()));
      for (int64_t i = cuda::SquaresLanes(span) - 1; i >= 0; --i) cuda::SquaresLane(span, i);
      EXPECT_EQ(wanted.lanes, found.lanes) << count << " values, blocks of " << block;
    }
  }
}

TEST(CudaFormulasTest, AddGradients) {
  std::vector<float> wanted = MixedValues(5001, 5), found = wanted, wide = wanted,
                     wide_found = wanted;
  const std::vector<float> gradient = MixedValues(5001, 6);
  const std::vector<uint16_t> narrow = NarrowValues(5001, 7);
  reference::AddPass(wanted.data(), gradient.data(), 5001);
  reference::AddNarrowPass(WireType::kFp16, wide.data(), narrow.data(), 5001);
  for (int64_t i = 0; i < 5001; ++i) {
    cuda::AddValue({.sum = found.data(), .gradient = gradient.data()}, i);
    cuda::AddNarrowValue(
        {.type = WireType::kFp16, .sum = wide_found.data(), .gradient = narrow.data()}, i);
  }
  ExpectSame(wanted, found, "fp32");
  ExpectSame(wide, wide_found, "fp16");
}

TEST(CudaFormulasTest, RoundByChanceAsReferenceDoes) {
  const std::vector<float> gradient = MixedValues(101, 6);
  const std::vector<uint16_t> sum = NarrowValues(101, 7);
  for (const int64_t first : {0, 1, 7, 8, 100003}) {
    for (const int64_t count : {1, 8, 101}) {
      for (const uint16_t* from : {sum.data(), static_cast<const uint16_t*>(nullptr)}) {
        std::vector<uint16_t> wanted(count), found(count);
        const RoundingKey key{.key = 5, .stream = 6};
        reference::AddRoundedPass(key, first, from, gradient.data(), wanted.data(), count);
        const cuda::AddRoundedSpan span{.key = key,
                                        .first = first,
                                        .sum = from,
                                        .gradient = gradient.data(),
                                        .out = found.data(),
                                        .count = count};
        for (int64_t n = cuda::RandomBlocks(span) - 1; n >= 0; --n) cuda::AddRoundedBlock(span, n);
        ExpectSame(WireType::kBf16, wanted, found, "from " + std::to_string(first));
      }
    }
  }
}

}  // namespace
}  // namespace ringzero
