// The switch between hosts: when frames arrive, which are lost.
#include "tests/hosts/switch.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include "gtest/gtest.h"

namespace ringzero {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr size_t kBytes = 12500;  // 100 us at 1 Gbit/s
constexpr int64_t kOnLine = 100'000;

TEST(Switch, DelaysEachFrameByTheWay) {
  Switch wire({.ports = 2, .delay_ns = 5 * kMs});
  wire.Accept(0, 1, Frame(kBytes, 7), 10 * kMs);
  EXPECT_EQ(wire.NextDue(), 15 * kMs);
  EXPECT_EQ(wire.TakeDue(15 * kMs - 1), std::nullopt);
  std::optional<Delivery> delivery = wire.TakeDue(15 * kMs);
  ASSERT_TRUE(delivery.has_value());
  EXPECT_EQ(delivery->to, 1);
  EXPECT_EQ(delivery->frame, Frame(kBytes, 7));
  EXPECT_EQ(wire.NextDue(), std::nullopt);
}

TEST(Switch, ALineIsBusyWhileAFrameIsOnIt) {
  Switch wire({.ports = 3, .bits_per_second = 1e9});
  const int64_t now = 100 * kMs;
  int64_t sent = now - kMs;  // what a late caller may catch up
  for (; wire.FreeAt(0) <= now; sent += kOnLine) wire.Accept(0, 1, Frame(kBytes), now);
  EXPECT_EQ(sent, now + kOnLine);  // eleven frames: the last began now
  EXPECT_EQ(wire.FreeAt(0), now + kOnLine);
  EXPECT_LE(wire.FreeAt(1), now);
}

TEST(Switch, TwoSendersShareTheLineOfTheirReceiver) {
  Switch wire({.ports = 3, .bits_per_second = 1e9});
  const int64_t now = 100 * kMs;
  for (int i = 0; i < 20; ++i) {
    wire.Accept(0, 2, Frame(kBytes), now + i * kOnLine);
    wire.Accept(1, 2, Frame(kBytes), now + i * kOnLine);
  }
  int64_t last = 0;
  for (; wire.NextDue().has_value(); wire.TakeDue(last)) last = *wire.NextDue();
  EXPECT_EQ(last, now - kMs + 40 * kOnLine);
}

TEST(Switch, DropsWhatItsQueueDoesNotHold) {
  Switch wire({.ports = 3, .bits_per_second = 1e9, .queue_bytes = 10 * kBytes});
  for (int i = 0; i < 100; ++i) {
    for (int from : {0, 1}) wire.Accept(from, 2, Frame(kBytes), kMs + i * kOnLine);
  }
  EXPECT_GT(wire.counts().overflow, 50);
  EXPECT_LT(wire.counts().overflow, 100);
}

TEST(Switch, LosesItsShare) {
  Switch wire({.ports = 2, .loss = 0.1, .seed = 3});
  constexpr int kFrames = 10000;
  for (int i = 0; i < kFrames; ++i) wire.Accept(0, 1, Frame(64), i);
  int arrived = 0;
  while (wire.TakeDue(kFrames).has_value()) ++arrived;
  EXPECT_EQ(arrived + static_cast<int>(wire.counts().lost), kFrames);
  EXPECT_NEAR(static_cast<double>(wire.counts().lost), kFrames * 0.1,
              4 * std::sqrt(kFrames * 0.1 * 0.9));
}

TEST(Switch, ACutLosesWhatIsUnderWay) {
  Switch wire({.ports = 3, .delay_ns = kMs});
  wire.Accept(0, 1, Frame(64), 0);
  wire.Accept(0, 2, Frame(64), 0);
  wire.SetCut(1, 0, true);
  wire.Accept(1, 0, Frame(64), 0);
  std::optional<Delivery> delivery = wire.TakeDue(kMs);
  ASSERT_TRUE(delivery.has_value());
  EXPECT_EQ(delivery->to, 2);
  EXPECT_EQ(wire.TakeDue(kMs), std::nullopt);
  EXPECT_EQ(wire.counts().cut, 2);
  wire.SetCut(0, 1, false);
  wire.Accept(1, 0, Frame(64), kMs);
  EXPECT_TRUE(wire.TakeDue(2 * kMs).has_value());
}

}  // namespace
}  // namespace ringzero
