// The narrow passes give the bits of their plain loops, and stochastic rounding is what it says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/philox.h"
#include "tests/zero/pass_cases.h"
#include "tests/zero/update_reference.h"
#include "zero/update/kernels.h"

namespace ringzero {
namespace {

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
  for (const WireType type : {WireType::kBf16, WireType::kFp16}) {
    for (const uint16_t bits : Patterns(1 << 16)) {
      const float wide = reference::FromWire(type, bits);
      EXPECT_EQ(std::isnan(wide), IsNan(type, bits));
      if (std::isnan(wide)) continue;
      ASSERT_EQ(reference::ToWire(type, wide), bits);
    }
  }
  EXPECT_EQ(reference::FromWire(WireType::kFp16, 0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(reference::FromWire(WireType::kFp16, 0xfbff), -65504.0f);
  EXPECT_EQ(reference::FromWire(WireType::kBf16, 0xc020), -2.5f);
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
    const float wide = reference::FromWire(WireType::kBf16, rounded[i]);
    EXPECT_EQ(std::memcmp(&wide, &values[i], sizeof(wide)), 0) << i;
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  AddRoundedPass(kKey, 0, nullptr, &nan, rounded.data(), 1);
  EXPECT_TRUE(IsNan(WireType::kBf16, rounded[0]));
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

using NarrowKernelsTest = TargetsTest;

TEST_P(NarrowKernelsTest, GiveTheBitsOfPlainLoops) {
  for (const WireType type : {WireType::kBf16, WireType::kFp16}) {
    for (const int64_t count : {0, 1, 7, 15, 16, 17, 100, 70000}) {
      const std::string what =
          (type == WireType::kBf16 ? "bf16, " : "fp16, ") + std::to_string(count);
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

TEST_P(NarrowKernelsTest, RoundAlikeInAnyBlocks) {
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
      ExpectSame(WireType::kBf16, wanted, found, "blocks of " + std::to_string(block));
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, NarrowKernelsTest, testing::ValuesIn(KernelTargets()), NameOfTarget);

}  // namespace
}  // namespace ringzero
