// Signs of life by an imagined clock: who is silent, when exactly, and whose fault a gap is.
#include "p2p/heartbeat.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "p2p/deadline.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

TEST(AwakeClock, RunsLikeAnyOtherWhileItsOwnerIsAwake) {
  const Clock::time_point start = Clock::now();
  AwakeClock clock(start, milliseconds(100));
  EXPECT_EQ(clock.Tick(start + milliseconds(80)), start + milliseconds(80));
  EXPECT_EQ(clock.Tick(start + milliseconds(200)), start + milliseconds(200));
  EXPECT_EQ(clock.At(start + milliseconds(150)), start + milliseconds(150));
}

TEST(AwakeClock, LeavesOutWhatItsOwnerSlept) {
  const Clock::time_point start = Clock::now();
  AwakeClock clock(start, milliseconds(100));
  clock.Tick(start + milliseconds(100));
  // An hour instead of 100 ms: two intervals of it count.
  const Clock::time_point later = start + std::chrono::hours(1);
  EXPECT_EQ(clock.Tick(later), start + milliseconds(300));
  EXPECT_EQ(clock.Tick(later + milliseconds(10)), start + milliseconds(310));
  EXPECT_EQ(clock.At(later + milliseconds(4)), start + milliseconds(304));
  // A moment before the tick before is taken for that tick.
  EXPECT_EQ(clock.At(start), start + milliseconds(300));
}

// A gap in which no thread looks at the process' clock is one in which it was stopped: of any gap
// 2 * kAwakeLook count.
TEST(DeadlineTest, LeavesOutWhatTheProcessSlept) {
  const Deadline deadline(3 * kAwakeLook);
  std::this_thread::sleep_for(4 * kAwakeLook);
  EXPECT_FALSE(deadline.over());
  EXPECT_GT(deadline.Left(), milliseconds(0));
}

TEST(DeadlineTest, EndsAWaitThatLooks) {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock<std::mutex> lock(mutex);
  const Deadline deadline(2 * kAwakeLook);
  EXPECT_LE(deadline.Look(), kAwakeLook);
  EXPECT_FALSE(WaitUntil(lock, changed, deadline, [] { return false; }));
  EXPECT_TRUE(deadline.over());
  EXPECT_TRUE(WaitUntil(lock, changed, deadline, [] { return true; }));
}

// Worker 0 of three under a clock that the test moves; the others beat when told.
class HeartbeatTest : public testing::Test {
 protected:
  void SetUp() override {
    RZ_ASSIGN(board_, PulseBoard::Create(3));
    heartbeat_ = std::make_unique<Heartbeat>(WorkerId(0), board_, milliseconds(1000));
    now_ = Clock::now();
  }
  void Beat(int worker) { board_->Beat(WorkerId(worker), now_); }
  // Worker 0's thread runs whenever it wants to, for so long; the workers in `alive` beat with it.
  std::vector<Silence> Run(milliseconds time, const std::vector<int>& alive) {
    std::vector<Silence> all;
    for (const Clock::time_point end = now_ + time; now_ < end;) {
      now_ = std::min(end, heartbeat_->next());
      for (const int worker : alive) Beat(worker);
      for (const Silence& silence : heartbeat_->Tick(now_)) all.push_back(silence);
    }
    return all;
  }

  std::shared_ptr<PulseBoard> board_;
  std::unique_ptr<Heartbeat> heartbeat_;
  Clock::time_point now_;
};

TEST_F(HeartbeatTest, BeatsAtLeastFiveTimesInItsTimeout) {
  EXPECT_LE(heartbeat_->next() - now_, milliseconds(200));
  const Clock::time_point before = *board_->LastBeat(WorkerId(0));
  Run(milliseconds(200), {});
  EXPECT_EQ(*board_->LastBeat(WorkerId(0)), now_);
  EXPECT_GT(now_, before);
}

TEST_F(HeartbeatTest, NobodyIsSilentBeforeItHasBegun) {
  EXPECT_FALSE(board_->LastBeat(WorkerId(1)).has_value());
  EXPECT_TRUE(Run(std::chrono::hours(1), {}).empty());
}

TEST_F(HeartbeatTest, TheSilentOneIsNamedOnceAndInTime) {
  EXPECT_TRUE(Run(milliseconds(3000), {1, 2}).empty());
  const Clock::time_point last = now_;
  const std::vector<Silence> found = Run(milliseconds(1000), {1});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].worker, WorkerId(2));
  EXPECT_EQ(found[0].lasted, milliseconds(1000));
  EXPECT_EQ(now_ - last, milliseconds(1000));
  EXPECT_TRUE(Run(milliseconds(3000), {1}).empty());
}

TEST_F(HeartbeatTest, ABeatBetweenTwoTicksCountsFromItsOwnTime) {
  Run(milliseconds(1000), {1, 2});
  now_ += milliseconds(150);
  Beat(1);
  const Clock::time_point last = now_;
  std::vector<Silence> found;
  while (found.empty()) found = Run(milliseconds(1), {2});
  EXPECT_EQ(found[0].worker, WorkerId(1));
  EXPECT_GE(now_ - last, milliseconds(1000));
  EXPECT_LE(now_ - last, milliseconds(1002));
}

TEST_F(HeartbeatTest, WhoWasStoppedItselfBlamesNobody) {
  Run(milliseconds(1000), {1, 2});
  now_ += std::chrono::hours(1);  // the whole group slept
  EXPECT_TRUE(heartbeat_->Tick(now_).empty());
  EXPECT_TRUE(Run(milliseconds(500), {}).empty());  // the others wake up later
  EXPECT_TRUE(Run(milliseconds(3000), {1, 2}).empty());
}

TEST_F(HeartbeatTest, AfterAStopOfItsOwnADeadOneIsStillFound) {
  Run(milliseconds(1000), {1, 2});
  now_ += std::chrono::hours(1);
  const std::vector<Silence> found = Run(milliseconds(1100), {1});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].worker, WorkerId(2));
}

TEST_F(HeartbeatTest, StarvedWorkersThatRunNowAndThenLive) {
  // Each runs for a moment every 900 ms only: four times late, and never all at once.
  for (int i = 0; i < 30; ++i) {
    Beat(1 + i % 2);
    now_ += milliseconds(450);
    EXPECT_TRUE(heartbeat_->Tick(now_).empty()) << i;
  }
}

TEST(PulseBoard, RefusesNobody) {
  EXPECT_EQ(PulseBoard::Create(0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ringzero
