// The small parts of the engine: layout, sums, statistics, the pool.
#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/buffer.h"
#include "zero/gradient_sum.h"
#include "zero/layout.h"
#include "zero/running_statistics.h"
#include "zero/worker_pool.h"

namespace ringzero {
namespace {

StageLayout TwoParameters() {
  return StageLayout::Make({{.name = "a", .shape = {3, 5}},
                            {.name = "frozen", .shape = {2}, .trainable = false},
                            {.name = "b", .shape = {}}},
                           {{.name = "mean", .numel = 3, .blend = 0.25},
                            {.name = "count", .kind = StatisticSpec::Kind::kCount}});
}

TEST(LayoutTest, EverythingBeginsAtAMultipleOf64Bytes) {
  const StageLayout layout = TwoParameters();
  EXPECT_EQ(layout.parameters[0].numel, 15);
  EXPECT_EQ(layout.parameters[0].offset_bytes, 0);
  EXPECT_EQ(layout.parameters[1].offset_bytes, 64);
  EXPECT_EQ(layout.parameters[1].sum_offset_bytes, -1);
  EXPECT_EQ(layout.parameters[2].offset_bytes, 128);
  EXPECT_EQ(layout.parameters[2].numel, 1);
  EXPECT_EQ(layout.parameters[2].sum_offset_bytes, 64);
  EXPECT_EQ(layout.parameters[2].sum_index, 1);
  EXPECT_EQ(layout.trailer_offset_bytes, 128);
  EXPECT_EQ(layout.sum_bytes, 192);
  EXPECT_EQ(layout.statistics_bytes, 128);
}

TEST(GradientSumTest, TheFirstContributionIsACopy) {
  const StageLayout layout = TwoParameters();
  Buffer sum = MakeHeapBuffer(layout.sum_bytes);
  std::memset(sum.data(), 0xff, sum.size());  // NaNs from an earlier use
  StartSum(layout, sum.data());
  EXPECT_FALSE(HasContribution(layout, sum.data(), 0));
  const std::vector<float> gradient(15, -0.0f);
  AddContribution(layout, 0, gradient.data(), sum.data());
  EXPECT_TRUE(HasContribution(layout, sum.data(), 0));
  EXPECT_FALSE(HasContribution(layout, sum.data(), 1));
  // A copy keeps the sign of zero; 0 + -0 would not.
  EXPECT_TRUE(std::signbit(sum.as<float>()[0]));
  const std::vector<float> more(15, 2.5f);
  AddContribution(layout, 0, more.data(), sum.data());
  EXPECT_EQ(sum.as<float>()[14], 2.5f);
}

TEST(RunningStatisticsTest, BlendsInDoubleAndCounts) {
  const StageLayout layout = TwoParameters();
  Buffer running = MakeHeapBuffer(layout.statistics_bytes);
  Buffer batch = MakeHeapBuffer(layout.statistics_bytes);
  running.as<float>()[1] = 1.0f;
  batch.as<float>()[1] = 0.1f;
  ApplyStatistics(layout, batch.data(), running.data());
  ApplyStatistics(layout, batch.data(), running.data());
  const float once = float(0.75 * 1.0 + 0.25 * double(0.1f));
  EXPECT_EQ(running.as<float>()[1], float(0.75 * double(once) + 0.25 * double(0.1f)));
  EXPECT_EQ(*reinterpret_cast<int64_t*>(running.data() + layout.statistics[1].offset_bytes), 2);
}

TEST(WorkerPoolTest, AddsComeBeforeTheNextBlockOfAnUpdate) {
  std::mutex mutex;
  std::condition_variable done;
  std::vector<int> order;
  bool finished = false;
  WorkerPool pool;
  int block = 0;
  pool.Update([&] {
    std::lock_guard lock(mutex);
    order.push_back(100 + block);
    if (block == 0) {
      pool.Add([&] {
        std::lock_guard inner(mutex);
        order.push_back(1);
      });
    }
    if (++block < 3) return true;
    finished = true;
    done.notify_one();
    return false;
  });
  std::unique_lock lock(mutex);
  ASSERT_TRUE(done.wait_for(lock, std::chrono::seconds(30), [&] { return finished; }));
  EXPECT_EQ(order, (std::vector<int>{100, 1, 101, 102}));
}

TEST(WorkerPoolTest, TheDestructorDropsWhatHasNotBegun) {
  auto witness = std::make_shared<int>(1);
  {
    WorkerPool pool;
    std::mutex gate;
    gate.lock();
    pool.Add([&] { std::lock_guard lock(gate); });
    for (int i = 0; i < 100; ++i) pool.Add([witness] {});
    gate.unlock();
  }
  EXPECT_EQ(witness.use_count(), 1);
}

}  // namespace
}  // namespace ringzero
