// Every pass gives the bits of its plain loop: any length, any address, every target that runs
// here.
#include "zero/update/kernels.h"

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

#include "tests/zero/pass_cases.h"
#include "tests/zero/update_reference.h"
#include "zero/update/matrix_kernels.h"

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
  UpdateSpan Span(bool in_place, WireType wire_type, bool predicts) {
    const auto address = reinterpret_cast<uintptr_t>(wire.data());
    return {.theta = theta.data(),
            .sum = sum.data(),
            .out = in_place ? theta.data() : out.data(),
            .first = first.data(),
            .second = second.data(),
            .wire = wire.data() + (64 - address % 64) % 64 / sizeof(uint16_t) + shift_,
            .wire_type = wire_type,
            .predicted = predicts ? predicted.data() : nullptr,
            .momentum = 0.9f,
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

void ExpectSame(const Values& wanted, const Values& found, const std::string& what) {
  ringzero::ExpectSame(wanted.all(), found.all(), what);
}

// Writes a version, in all its forms; else `out` is for the next pass.
bool WritesVersions(const UpdateStep& step) {
  return !std::holds_alternative<LambStep>(step) && !std::holds_alternative<MuonStep>(step);
}

struct Case {
  int64_t count;
  int64_t shift;
  bool in_place;
  WireType wire;
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
  for (int64_t i = -1; i <= count && wire != WireType::kNone; ++i) {
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
          for (const WireType wire : {WireType::kNone, WireType::kBf16, WireType::kFp16}) {
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
       .momentum = 0.75f,
       .count = 1});
  EXPECT_EQ(theta, 2.5f);
  EXPECT_EQ(predicted, 2.125f);
}

// DeepSpeed's (csrc/lion/cpu_lion_impl.cpp): -copysign(rate, direction); the paper's sign(0) is 0.
TEST(LionTest, ADirectionOfZeroMovesByItsSignOrNotAtAll) {
  const auto moved = [](float least, float gradient) {
    float theta = 1, first = gradient;  // so the direction has the gradient's sign
    UpdatePass(LionStep{.beta1 = 0.5f, .one_minus_beta1 = 0.5f, .rate = 0.25f, .least = least},
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
  const auto bf16 = [](float value) { return reference::ToWire(WireType::kBf16, value); };
  EXPECT_EQ(bf16(1.0f), 0x3f80);
  EXPECT_EQ(bf16(-2.5f), 0xc020);
  EXPECT_EQ(bf16(1.0f + 1.0f / 256), 0x3f80);  // halfway: to the even one
  EXPECT_EQ(bf16(1.0f + 3.0f / 256), 0x3f82);
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(IsNan(WireType::kBf16, bf16(std::numeric_limits<float>::quiet_NaN())));
  const auto fp16 = [](float value) { return reference::ToWire(WireType::kFp16, value); };
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
  EXPECT_TRUE(IsNan(WireType::kFp16, fp16(std::numeric_limits<float>::quiet_NaN())));
}

using KernelsTest = TargetsTest;

TEST_P(KernelsTest, GiveTheBitsOfPlainLoops) {
  EXPECT_STREQ(KernelTarget(), hwy::TargetName(GetParam()));
  CompareAll();
}

TEST_P(KernelsTest, ProductsAreThoseOfPlainLoops) {
  for (const int64_t rows : {1, 3, 4, 9, 33}) {
    for (const int64_t columns : {1, 7, 16, 31, 40, 129}) CompareProducts(rows, columns);
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelsTest, testing::ValuesIn(KernelTargets()), NameOfTarget);

}  // namespace
}  // namespace ringzero
