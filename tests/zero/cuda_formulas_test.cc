// What a GPU's thread computes, on the processor: the bits of the plain loops. That holds all of
// the kernels but their launch, on machines without a GPU too.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "tests/zero/pass_cases.h"
#include "tests/zero/update_reference.h"
#include "zero/optimizer/arithmetic.h"
#include "zero/optimizer/cuda/cuda_kernels.h"
#include "zero/optimizer/formulas.h"
#include "zero/optimizer/kernels.h"

namespace ringzero {
namespace {

// As a grid's threads do it: each piece of work by itself, here from the last to the first.
template <class Span>
void DoAll(const Span& span) {
  for (int64_t i = span.work() - 1; i >= 0; --i) span.Do(i);
}

void FormulaPass(const UpdateStep& step, const UpdateSpan& span) {
  std::visit(
      [&](const auto& one) {
        using Step = std::decay_t<decltype(one)>;
        DoAll(cuda::UpdateWork<Step>{one, plain::SpanOf(one, span), span.count});
      },
      step);
}

TEST(CudaFormulasTest, GiveTheBitsOfPlainLoops) {
  for (const PassCase& each : PassCases({1, 5001})) {
    PassMemory wanted(each), found(each);
    UpdateSpan wanted_span = wanted.Span(), formulas = found.Span();
    std::vector<float> predicted(each.count), also(each.count);
    wanted_span.predicted = predicted.data();
    formulas.predicted = also.data();
    wanted_span.factor = formulas.factor = 0.9f;
    reference::UpdatePass(each.step, wanted_span);
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
      const float value = FloatOf(static_cast<uint32_t>(bits + by));
      ASSERT_EQ(ToWire(ValueType::kBf16, value), reference::ToWire(ValueType::kBf16, value))
          << value;
      ASSERT_EQ(ToWire(ValueType::kFp16, value), reference::ToWire(ValueType::kFp16, value))
          << value;
    }
  }
}

TEST(CudaFormulasTest, WidenAsReferenceDoes) {
  for (const ValueType type : {ValueType::kBf16, ValueType::kFp16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const uint16_t value = static_cast<uint16_t>(bits);
      ASSERT_EQ(BitsOf(FromWire(type, value)), BitsOf(reference::FromWire(type, value))) << bits;
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
      ASSERT_EQ(span.work(), static_cast<int64_t>(found.lanes.size()));
      DoAll(span);
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
  reference::AddNarrowPass(ValueType::kFp16, wide.data(), narrow.data(), 5001);
  DoAll(cuda::AddSpan{.sum = found.data(), .gradient = gradient.data(), .count = 5001});
  DoAll(cuda::AddNarrowSpan{.type = ValueType::kFp16,
                            .sum = wide_found.data(),
                            .gradient = narrow.data(),
                            .count = 5001});
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
        DoAll(span);
        ExpectSame(ValueType::kBf16, wanted, found, "from " + std::to_string(first));
      }
    }
  }
}

}  // namespace
}  // namespace ringzero
