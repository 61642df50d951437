// Known answers of the counter-based generator, the hashes, and the order of epochs.
#include "base/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "integrations/data/dataset.h"

namespace ringzero {
namespace {

using ::testing::ElementsAre;

// From Random123's kat_vectors: philox4x32, 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, 0),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Philox4x32({~0u, ~0u, ~0u, ~0u}, ~uint64_t{0}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0'a4093822),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Philox, PlacesIndexAndStreamInTheCounter) {
  EXPECT_EQ(PhiloxAt(7, 0x0000000400000003, 0x0000000200000001), Philox4x32({1, 2, 3, 4}, 7));
  static_assert(PhiloxAt(1, 2, 3) == PhiloxAt(1, 2, 3));  // usable in constants
}

TEST(Hashes, KnownAnswers) {
  EXPECT_EQ(SplitMix64(0), 0xe220a8397b1dcdafu);  // the reference's first two outputs of seed 0
  EXPECT_EQ(SplitMix64(0x9E3779B97F4A7C15), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(HashName(""), 0xcbf29ce484222325u);
  EXPECT_EQ(HashName("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(HashName("foobar"), 0x85944171f73967e8u);
}

TEST(Hashes, MixedKeysDependOnOrderAndCount) {
  const std::set<uint64_t> keys = {MixKeys({1, 2}),    MixKeys({2, 1}), MixKeys({1, 2, 0}),
                                   MixKeys({0, 1, 2}), MixKeys({1}),    MixKeys({0})};
  EXPECT_EQ(keys.size(), 6u);
}

TEST(UniformFloat, LiesInTheHalfOpenIntervalWithTheRightMoments) {
  EXPECT_EQ(UniformFloat(0), 0.0f);
  EXPECT_LT(UniformFloat(~0u), 1.0f);
  double sum = 0, squares = 0;
  constexpr int kBlocks = 100000;
  for (int i = 0; i < kBlocks; ++i) {
    for (uint32_t bits : PhiloxAt(5, 0, i)) {
      const double u = UniformFloat(bits) - 0.5;
      sum += u;
      squares += u * u;
    }
  }
  EXPECT_NEAR(sum / (4 * kBlocks), 0, 4 * std::sqrt(1 / 12.0 / (4 * kBlocks)));
  EXPECT_NEAR(squares / (4 * kBlocks), 1 / 12.0, 1e-3);
}

TEST(EpochOrder, IsAPermutationKeyedBySeedAndEpoch) {
  for (int64_t size : {0, 1, 2, 3, 10, 1000}) {
    std::vector<int64_t> sorted = EpochOrder(1, 2, size);
    std::sort(sorted.begin(), sorted.end());
    std::vector<int64_t> all(size);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted, all);
  }
  const auto order = EpochOrder(1, 2, 1000);
  EXPECT_EQ(order, EpochOrder(1, 2, 1000));
  EXPECT_NE(order, EpochOrder(1, 3, 1000));
  EXPECT_NE(order, EpochOrder(2, 2, 1000));
}

// A change here would change every run that was ever recorded.
TEST(EpochOrder, KnownAnswer) {
  EXPECT_THAT(EpochOrder(0, 0, 8), ElementsAre(4, 6, 1, 2, 3, 0, 5, 7));
  EXPECT_THAT(EpochOrder(7, 3, 8), ElementsAre(3, 4, 6, 0, 1, 7, 2, 5));
}

TEST(EpochOrder, EveryPlaceIsAboutEquallyLikely) {
  constexpr int kSize = 5, kEpochs = 20000;
  int counts[kSize][kSize] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = EpochOrder(11, epoch, kSize);
    for (int place = 0; place < kSize; ++place) ++counts[place][order[place]];
  }
  const double wanted = 1.0 * kEpochs / kSize;
  for (const auto& row : counts) {
    for (int count : row) EXPECT_NEAR(count, wanted, 5 * std::sqrt(wanted));
  }
}

}  // namespace
}  // namespace ringzero
