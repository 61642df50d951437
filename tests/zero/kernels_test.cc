// Every pass gives the bits of its plain loop: any length, any address, every target that runs
// here. And stochastic rounding is what it says.
#include "zero/optimizer/kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "base/philox.h"
#include "tests/zero/pass_cases.h"
#include "tests/zero/update_reference.h"

namespace ringzero {
namespace {

// Memory that begins at 64 bytes and some values more, with guards before and behind it.
class Values {
 public:
  Values(int64_t count, int64_t shift) : memory_(count + shift + 64, 12345.0f), count_(count) {
    auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = memory_.data() + 16 + (64 - address % 64) % 64 / sizeof(float) + shift;
  }
  float* data() { return data_; }
  int64_t count() const { return count_; }
  // The guards, too.
  std::vector<float> all() const { return {data_ - 8, data_ + count_ + 8}; }

 private:
  std::vector<float> memory_;
  int64_t count_;
  float* data_;
};

struct Buffers {
  explicit Buffers(int64_t count, int64_t shift)
      : theta(count, shift),
        sum(count, shift),
        out(count, shift),
        first(count, shift),
        second(count, shift),
        predicted(count, shift),
        wire(count + 64, 0xabcd),
        shift_(shift) {}
  UpdateSpan Span(bool in_place, ValueType wire_type, bool predicts) {
    const auto address = reinterpret_cast<uintptr_t>(wire.data());
    return {.theta = theta.data(),
            .sum = sum.data(),
            .out = in_place ? theta.data() : out.data(),
            .first = first.data(),
            .second = second.data(),
            .wire = wire.data() + (64 - address % 64) % 64 / sizeof(uint16_t) + shift_,
            .wire_type = wire_type,
            .predicted = predicts ? predicted.data() : nullptr,
            .factor = 0.9f,
            .count = theta.count()};
  }
  Values theta, sum, out, first, second, predicted;
  std::vector<uint16_t> wire;

 private:
  int64_t shift_;
};

void Fill(Values& values, uint64_t seed, bool squares) {
  std::vector<float> drawn = MixedValues(values.count(), seed);
  for (float& value : drawn) value = squares ? std::fabs(value) : value;
  std::copy(drawn.begin(), drawn.end(), values.data());
}

using ringzero::ExpectSame;  // of vectors
void ExpectSame(const Values& wanted, const Values& found, const std::string& what) {
  ExpectSame(wanted.all(), found.all(), what);
}

// Writes a version, in all its forms; else `out` is for the next pass.
bool WritesVersions(const UpdateStep& step) {
  return !std::holds_alternative<LambStep>(step) && !std::holds_alternative<MuonStep>(step);
}

struct Case {
  int64_t count;
  int64_t shift;
  bool in_place;
  ValueType wire;
  bool predicts = false;
};

void Compare(const UpdateStep& step, const Case& c) {
  const auto [count, shift, in_place, wire, predicts] = c;
  Buffers wanted(count, shift), found(count, shift);
  for (Buffers* each : {&wanted, &found}) {
    Fill(each->theta, 1, false);
    Fill(each->sum, 2, false);
    Fill(each->first, 3, std::holds_alternative<AdagradStep>(step));
    Fill(each->second, 4, true);
  }
  reference::UpdatePass(step, wanted.Span(in_place, wire, predicts));
  UpdatePass(step, found.Span(in_place, wire, predicts));
  const std::string what =
      NameOf(step) + ", " + std::to_string(count) + " values, shift " + std::to_string(shift);
  ExpectSame(wanted.theta, found.theta, what + ", theta");
  ExpectSame(wanted.out, found.out, what + ", out");
  ExpectSame(wanted.first, found.first, what + ", first");
  ExpectSame(wanted.second, found.second, what + ", second");
  ExpectSame(wanted.predicted, found.predicted, what + ", predicted");
  const UpdateSpan a = wanted.Span(in_place, wire, predicts);
  const UpdateSpan b = found.Span(in_place, wire, predicts);
  for (int64_t i = -1; i <= count && wire != ValueType::kFp32; ++i) {
    if (i < 0 && shift == 0) continue;  // the guard before: of shifted ones
    if (IsNan(wire, a.wire[i]) && IsNan(wire, b.wire[i])) continue;
    ASSERT_EQ(a.wire[i], b.wire[i]) << what << ", wire, value " << i;
  }
}

void CompareAll() {
  for (const float divisor : {1.0f, 8.0f, 6.0f, 3.0f}) {
    for (const UpdateStep& step : PassSteps(divisor)) {
      for (const int64_t count : {0, 1, 7, 15, 16, 17, 64, 1001, 1024}) {
        for (const int64_t shift : {0, 1, 8}) {
          for (const ValueType wire : {ValueType::kFp32, ValueType::kBf16, ValueType::kFp16}) {
            Compare(step, {count, shift, false, wire});
            Compare(step, {count, shift, true, wire});
            if (!WritesVersions(step)) continue;
            Compare(step, {count, shift, true, wire, true});
            Compare(step, {count, shift, false, wire, true});
          }
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
  for (const int64_t count : {0, 1, 15, 16, 33, 1000}) {
    Values a(count, 1), b(count, 1), gradient(count, 3);
    for (Values* each : {&a, &b}) Fill(*each, 5, false);
    Fill(gradient, 6, false);
    AddPass(a.data(), gradient.data(), count);
    reference::AddPass(b.data(), gradient.data(), count);
    ExpectSame(b, a, "add");
    double lanes[kSquareLanes] = {1, 2, 3}, plain[kSquareLanes] = {1, 2, 3};
    std::mt19937_64 random(7);
    for (int64_t i = 0; i < count; ++i)
      gradient.data()[i] = static_cast<float>(random() % 1000) / 7;
    SquaresPass(gradient.data(), count, lanes);
    reference::SquaresPass(gradient.data(), count, plain);
    EXPECT_EQ(std::memcmp(lanes, plain, sizeof(lanes)), 0) << "squares, " << count;
  }
}

// θ = 3, gradient 8 / 8, rate 1/2: 2.5, which goes on to 2.5 - 0.75 / 2.
TEST(PredictedTest, GoesOnInTheDirectionOfTheUpdate) {
  float theta = 3, sum = 8, buffer = 0, predicted = 0;
  UpdatePass(
      SgdStep{
          .divisor = 8, .momentum = 0.75f, .rate = 0.5f, .has_momentum = true, .first_time = true},
      {.theta = &theta,
       .sum = &sum,
       .out = &theta,
       .first = &buffer,
       .predicted = &predicted,
       .factor = 0.75f,
       .count = 1});
  EXPECT_EQ(theta, 2.5f);
  EXPECT_EQ(predicted, 2.125f);
}

// DeepSpeed's (csrc/lion/cpu_lion_impl.cpp): -copysign(rate, direction); the paper's sign(0) is 0.
TEST(LionTest, ADirectionOfZeroMovesByItsSignOrNotAtAll) {
  const auto moved = [](float least, float gradient) {
    float theta = 1, first = gradient;  // so the direction has the gradient's sign
    UpdatePass(
        LionStep{.betas = {.beta1 = 0.5f, .one_minus_beta1 = 0.5f}, .rate = 0.25f, .least = least},
        {.theta = &theta, .sum = &gradient, .out = &theta, .first = &first, .count = 1});
    return theta - 1;
  };
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(moved(0, 0.0f), -0.25f);
  EXPECT_EQ(moved(0, -0.0f), 0.25f);
  EXPECT_EQ(moved(kSmallest, 0.0f), 0);
  EXPECT_EQ(moved(kSmallest, -0.0f), 0);
  for (const float least : {0.0f, kSmallest}) {
    EXPECT_EQ(moved(least, kSmallest), least == 0 ? -0.25f : 0);  // half of it rounds to 0
    EXPECT_EQ(moved(least, 2 * kSmallest), -0.25f);
    EXPECT_EQ(moved(least, -3.0f), 0.25f);
    EXPECT_TRUE(std::isnan(moved(least, NAN)));
  }
}

// Products in any ranges of rows.
void CompareProducts(int64_t rows, int64_t columns) {
  Values x(rows * columns, 3), square(rows * rows, 1);
  std::mt19937_64 random(rows * 1000 + columns);
  std::normal_distribution<float> normal;
  for (Values* each : {&x, &square}) {
    for (int64_t i = 0; i < each->count(); ++i) each->data()[i] = normal(random);
  }
  const std::string what = std::to_string(rows) + " by " + std::to_string(columns);
  const auto compare = [&](int64_t count, const auto& kernel, const auto& plain) {
    Values wanted(count, 0), found(count, 5);
    plain(wanted.data());
    for (int64_t i = 0; i < rows; i += 3) kernel(found.data(), i, std::min(i + 3, rows));
    ExpectSame(wanted, found, what);
    kernel(found.data(), 0, rows);
    ExpectSame(wanted, found, what);
  };
  GramStep gram{.x = x.data(), .rows = rows, .columns = columns};
  GramStep both{.x = square.data(), .rows = rows, .columns = rows, .scale = 2.5f, .linear = -4.7f};
  for (GramStep* step : {&gram, &both}) {
    const auto kernel = [&](float* out, int64_t begin, int64_t end) {
      step->out = out;
      GramPass(*step, begin, end);
    };
    compare(rows * rows, kernel, [&](float* out) {
      step->out = out;
      reference::GramPass(*step, 0, rows);
    });
  }
  MixStep mix{
      .x = x.data(), .rows = rows, .columns = columns, .weights = square.data(), .keep = 3.4f};
  const auto kernel = [&](float* out, int64_t begin, int64_t end) {
    mix.out = out;
    MixPass(mix, begin, end);
  };
  compare(rows * columns, kernel, [&](float* out) {
    mix.out = out;
    reference::MixPass(mix, 0, rows);
  });
}

TEST(WireTest, RoundsToNearestTiesToEven) {
  const auto bf16 = [](float value) { return reference::ToWire(ValueType::kBf16, value); };
  EXPECT_EQ(bf16(1.0f), 0x3f80);
  EXPECT_EQ(bf16(-2.5f), 0xc020);
  EXPECT_EQ(bf16(1.0f + 1.0f / 256), 0x3f80);  // halfway: to the even one
  EXPECT_EQ(bf16(1.0f + 3.0f / 256), 0x3f82);
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(IsNan(ValueType::kBf16, bf16(std::numeric_limits<float>::quiet_NaN())));
  const auto fp16 = [](float value) { return reference::ToWire(ValueType::kFp16, value); };
  EXPECT_EQ(fp16(1.0f), 0x3c00);
  EXPECT_EQ(fp16(-65504.0f), 0xfbff);
  EXPECT_EQ(fp16(65519.0f), 0x7bff);
  EXPECT_EQ(fp16(65520.0f), 0x7c00);  // halfway to 65536
  EXPECT_EQ(fp16(1.0f + 1.0f / 2048), 0x3c00);
  EXPECT_EQ(fp16(1.0f + 3.0f / 2048), 0x3c02);
  EXPECT_EQ(fp16(std::ldexp(1.0f, -14)), 0x0400);  // the smallest normal one
  EXPECT_EQ(fp16(std::ldexp(1.0f, -24)), 0x0001);
  EXPECT_EQ(fp16(std::ldexp(1.0f, -25)), 0x0000);
  EXPECT_EQ(fp16(std::ldexp(3.0f, -25)), 0x0002);
  EXPECT_TRUE(IsNan(ValueType::kFp16, fp16(std::numeric_limits<float>::quiet_NaN())));
}

constexpr RoundingKey kKey{.key = 0x123456789abcdef0, .stream = 0x300000007};

// Every pattern of 16 bits is among them where `count` allows.
std::vector<uint16_t> Patterns(int64_t count) {
  std::vector<uint16_t> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<uint16_t>(i * 40503);
  return values;
}

std::vector<float> Floats(int64_t count) {
  std::vector<float> values(count);
  std::mt19937_64 random(3);
  for (float& value : values) {
    const uint32_t bits = static_cast<uint32_t>(random());
    std::memcpy(&value, &bits, sizeof(value));
  }
  return values;
}

TEST(NarrowReferenceTest, WidensWhatWasNarrowed) {
  for (const ValueType type : {ValueType::kBf16, ValueType::kFp16}) {
    for (const uint16_t bits : Patterns(1 << 16)) {
      const float wide = reference::FromWire(type, bits);
      EXPECT_EQ(std::isnan(wide), IsNan(type, bits));
      if (std::isnan(wide)) continue;
      ASSERT_EQ(reference::ToWire(type, wide), bits);
    }
  }
  EXPECT_EQ(reference::FromWire(ValueType::kFp16, 0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(reference::FromWire(ValueType::kFp16, 0xfbff), -65504.0f);
  EXPECT_EQ(reference::FromWire(ValueType::kBf16, 0xc020), -2.5f);
}

TEST(RoundingTest, IsOneOfTheNeighboursByItsShare) {
  constexpr int64_t count = 100000;
  // A quarter of the way from 1 to the next bf16, 1 + 1/128.
  const std::vector<float> values(count, 1 + 0.25f / 128);
  std::vector<uint16_t> rounded(count);
  AddRoundedPass(kKey, 0, nullptr, values.data(), rounded.data(), count);
  int64_t up = 0;
  for (const uint16_t value : rounded) {
    ASSERT_TRUE(value == 0x3f80 || value == 0x3f81);
    up += value == 0x3f81;
  }
  EXPECT_NEAR(static_cast<double>(up) / count, 0.25, 0.005);  // 3.6 standard deviations
}

TEST(RoundingTest, KeepsWhatIsExactInfiniteOrNotANumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.0f, -0.0f, 1.5f, -3.0f, infinity, -infinity};
  std::vector<uint16_t> rounded(values.size());
  AddRoundedPass(kKey, 5, nullptr, values.data(), rounded.data(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const float wide = reference::FromWire(ValueType::kBf16, rounded[i]);
    EXPECT_EQ(std::memcmp(&wide, &values[i], sizeof(wide)), 0) << i;
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  AddRoundedPass(kKey, 0, nullptr, &nan, rounded.data(), 1);
  EXPECT_TRUE(IsNan(ValueType::kBf16, rounded[0]));
}

TEST(RoundingTest, DrawsByKeyStreamAndPosition) {
  constexpr int64_t count = 200;
  const std::vector<float> values(count, 1 + 0.5f / 128);
  const auto round = [&](RoundingKey key, int64_t first) {
    std::vector<uint16_t> rounded(count);
    AddRoundedPass(key, first, nullptr, values.data(), rounded.data(), count);
    return rounded;
  };
  const std::vector<uint16_t> once = round(kKey, 0);
  EXPECT_EQ(round(kKey, 0), once);
  EXPECT_NE(round(kKey, 8), once);
  EXPECT_NE(round({kKey.key + 1, kKey.stream}, 0), once);
  EXPECT_NE(round({kKey.key, kKey.stream + 1}, 0), once);
  // 16 bits of a block for each value, low half first.
  for (int64_t p = 0; p < count; ++p) {
    const PhiloxBlock block = PhiloxAt(kKey.key, kKey.stream, static_cast<uint64_t>(p) / 8);
    const uint32_t random = (block[p % 8 / 2] >> (p % 2 * 16)) & 0xffff;
    EXPECT_EQ(once[p], random >= 0x8000 ? 0x3f81 : 0x3f80) << p;
  }
}

// The instruction sets for which kernels are compiled and that this processor has.
std::vector<int64_t> KernelTargets() {
  std::vector<int64_t> targets;
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    if (std::string(KernelTarget()) == hwy::TargetName(target)) targets.push_back(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  return targets;
}

class KernelsTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(KernelsTest, GiveTheBitsOfPlainLoops) {
  EXPECT_STREQ(KernelTarget(), hwy::TargetName(GetParam()));
  CompareAll();
}

TEST_P(KernelsTest, ProductsAreThoseOfPlainLoops) {
  for (const int64_t rows : {1, 3, 4, 9, 33}) {
    for (const int64_t columns : {1, 7, 16, 31, 40, 129}) CompareProducts(rows, columns);
  }
}

TEST_P(KernelsTest, NarrowPassesGiveTheBitsOfPlainLoops) {
  for (const ValueType type : {ValueType::kBf16, ValueType::kFp16}) {
    for (const int64_t count : {0, 1, 7, 15, 16, 17, 100, 70000}) {
      const std::string what =
          (type == ValueType::kBf16 ? "bf16, " : "fp16, ") + std::to_string(count);
      const std::vector<uint16_t> narrow = Patterns(count);
      const std::vector<float> wide = Floats(count);
      std::vector<float> a(count), b(count);
      WidenPass(type, narrow.data(), a.data(), count);
      reference::WidenPass(type, narrow.data(), b.data(), count);
      ExpectSame(b, a, what + ", widened");
      a = b = wide;
      AddNarrowPass(type, a.data(), narrow.data(), count);
      reference::AddNarrowPass(type, b.data(), narrow.data(), count);
      ExpectSame(b, a, what + ", added");
      std::vector<uint16_t> c(count), d(count);
      NarrowPass(type, wide.data(), c.data(), count);
      reference::NarrowPass(type, wide.data(), d.data(), count);
      ExpectSame(type, d, c, what + ", narrowed");
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(KernelsTest, RoundAlikeInAnyBlocks) {
  constexpr int64_t count = 3000;
  const std::vector<float> gradient = Floats(count);
  const std::vector<uint16_t> sum = Patterns(count);
  for (const bool has_sum : {false, true}) {
    std::vector<uint16_t> wanted(count), found(count);
    const uint16_t* from = has_sum ? sum.data() : nullptr;
    reference::AddRoundedPass(kKey, 0, from, gradient.data(), wanted.data(), count);
    for (const int64_t block : {3, 8, 65, 1024, 3000}) {
      for (int64_t at = 0; at < count; at += block) {
        const int64_t n = std::min(block, count - at);
        AddRoundedPass(kKey, at, has_sum ? from + at : nullptr, gradient.data() + at,
                       found.data() + at, n);
      }
      ExpectSame(ValueType::kBf16, wanted, found, "blocks of " + std::to_string(block));
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelsTest, testing::ValuesIn(KernelTargets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

}  // namespace
}  // namespace ringzero
