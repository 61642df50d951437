// The small parts of the engine: layout, sums, statistics, the pool, chains of blame.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "tests/support/status_matchers.h"
#include "zero/engine/statistics.h"
#include "zero/flight/blame.h"
#include "zero/gradient_sum.h"
#include "zero/layout.h"
#include "zero/optimizer/kernels.h"
#include "zero/optimizer/optimizer.h"
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

TEST(StreamCopyTest, CopiesTheBytesAndNoOthers) {
  std::vector<std::byte> from(700);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 37 + 1);
  for (size_t offset = 0; offset < 20; ++offset) {
    for (const size_t bytes : {0, 1, 15, 16, 63, 64, 65, 128, 500}) {
      Buffer to = MakeHeapBuffer(1024);
      std::memset(to.data(), 0, to.size());
      StreamCopy(to.data() + offset, from.data() + 3, bytes);
      for (size_t i = 0; i < to.size(); ++i) {
        const bool copied = i >= offset && i < offset + bytes;
        ASSERT_EQ(to.data()[i], copied ? from[3 + i - offset] : std::byte{0}) << offset << " " << i;
      }
    }
  }
}

TEST(GradientSumTest, TheFirstContributionIsACopy) {
  const StageLayout layout = TwoParameters();
  Buffer sum = MakeHeapBuffer(layout.sum_bytes);
  std::memset(sum.data(), 0xff, sum.size());  // NaNs from an earlier use
  StartSum(layout, sum.data());
  EXPECT_FALSE(HasContribution(layout, sum.data(), 0));
  const std::vector<float> gradient(15, -0.0f);
  AddContribution(layout, 0, {gradient.data()}, {}, sum.data());
  EXPECT_TRUE(HasContribution(layout, sum.data(), 0));
  EXPECT_FALSE(HasContribution(layout, sum.data(), 1));
  // A copy keeps the sign of zero; 0 + -0 would not.
  EXPECT_TRUE(std::signbit(sum.as<float>()[0]));
  const std::vector<float> more(15, 2.5f);
  AddContribution(layout, 0, {more.data()}, {}, sum.data());
  EXPECT_EQ(sum.as<float>()[14], 2.5f);
}

TEST(GradientSumTest, TheAverageIsOneDivision) {
  const StageLayout layout = TwoParameters();
  Buffer sum = MakeHeapBuffer(layout.sum_bytes), average = MakeHeapBuffer(layout.sum_bytes);
  StartSum(layout, sum.data());
  const std::vector<float> gradient(15, 1.0f);
  AddContribution(layout, 0, {gradient.data()}, {}, sum.data());
  AverageSum(layout, sum.data(), 3, average.data());
  for (int i = 0; i < 15; ++i) EXPECT_EQ(average.as<float>()[i], 1.0f / 3.0f);
  EXPECT_TRUE(HasContribution(layout, average.data(), 0));
  EXPECT_FALSE(HasContribution(layout, average.data(), 1));
}

TEST(OptimizerStateTest, IsNamedAsInTorchAndCopied) {
  const StageLayout stage = TwoParameters();
  const auto names = [&](const OptimizerOptions& options) {
    std::vector<std::string> found;
    for (const StateSpec& spec : StateLayout::Make(options, stage).specs) {
      EXPECT_EQ(spec.offset_bytes % 64, 0);
      found.push_back(std::to_string(spec.parameter) + " " + spec.name);
    }
    return found;
  };
  using Names = std::vector<std::string>;
  OptimizerOptions sgd{.type = OptimizerOptions::Type::kSgd, .learning_rate = 0.5};
  EXPECT_EQ(names(sgd), (Names{"0 step", "2 step"}));
  sgd.sgd.momentum = 0.5;
  EXPECT_EQ(names(sgd), (Names{"0 step", "0 momentum_buffer", "2 step", "2 momentum_buffer"}));
  EXPECT_EQ(names({}),
            (Names{"0 step", "0 exp_avg", "0 exp_avg_sq", "2 step", "2 exp_avg", "2 exp_avg_sq"}));

  // Parameter 0 is updated twice, parameter 2 never.
  StageOptimizer optimizer(sgd, stage);
  Buffer sum = MakeHeapBuffer(stage.sum_bytes), theta = MakeHeapBuffer(stage.parameter_bytes);
  StartSum(stage, sum.data());
  const std::vector<float> gradient(15, 2.0f);
  AddContribution(stage, 0, {gradient.data()}, {}, sum.data());
  const UpdateInput input{.theta = theta.data(), .sum = sum.data()};
  for (int i = 0; i < 2; ++i) optimizer.Update(input, theta.data());
  const StateLayout layout = StateLayout::Make(sgd, stage);
  Buffer copy = MakeHeapBuffer(layout.bytes);
  CopyState(layout, optimizer, copy.data());
  const auto at = [&](int spec) { return copy.data() + layout.specs[spec].offset_bytes; };
  EXPECT_EQ(*reinterpret_cast<const int64_t*>(at(0)), 2);
  EXPECT_EQ(reinterpret_cast<const float*>(at(1))[14], 0.5f * 2.0f + 2.0f);
  EXPECT_EQ(*reinterpret_cast<const int64_t*>(at(2)), 0);
  EXPECT_EQ(*reinterpret_cast<const float*>(at(3)), 0.0f);
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

using Clock = std::chrono::steady_clock;

TEST(SlowedUpdate, NoLongerThanItsSteps) {
  SlowedUpdate slowed(1);
  int left = 3;
  int calls = 0;
  do ++calls;
  while (slowed.Step([&] { return --left > 0; }));
  EXPECT_EQ(left, 0);
  EXPECT_EQ(calls, 3);
}

TEST(SlowedUpdate, SleepsInSmallPartsAndRepeatsNoStep) {
  SlowedUpdate slowed(10);
  int left = 2;
  int calls = 0;
  const Clock::time_point begin = Clock::now();
  Clock::duration took{0};
  do ++calls;
  while (slowed.Step([&] {
    const Clock::time_point step = Clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    took += Clock::now() - step;
    return --left > 0;
  }));
  EXPECT_EQ(left, 0);
  EXPECT_GE(Clock::now() - begin, 10 * took);
  EXPECT_GT(calls, 3);
}

// Chains of blame: their end comes first, circles are told, texts read back.

BlameAnswer Waits(int next, uint64_t tag) {
  return {.says = "waits for " + std::to_string(tag),
          .next = WorkerId(next),
          .message = MessageKey{3, tag}};
}

TEST(BlameChain, TheEndIsNamedFirst) {
  BlameChain chain;
  EXPECT_FALSE(chain.next().has_value());
  chain.Add(WorkerId(0), Waits(1, 10));
  ASSERT_TRUE(chain.next().has_value());
  EXPECT_EQ(chain.next()->worker, WorkerId(1));
  EXPECT_EQ(chain.next()->question.waiter, WorkerId(0));
  EXPECT_EQ(chain.next()->question.message, (MessageKey{3, 10}));
  chain.Add(WorkerId(1), Waits(2, 20));
  chain.Add(WorkerId(2), {.says = "has been computing \"F3\" for 601 s"});
  EXPECT_FALSE(chain.next().has_value());
  EXPECT_EQ(chain.Describe(),
            "worker 2 has been computing \"F3\" for 601 s, so worker 1 waits for 20, so worker 0 "
            "waits for 10");
}

TEST(BlameChain, ACircleIsTold) {
  BlameChain chain;
  chain.Add(WorkerId(0), Waits(1, 10));
  chain.Add(WorkerId(1), Waits(2, 20));
  chain.Add(WorkerId(2), Waits(1, 30));
  // Worker 1 again, but about another message: it may be on the way.
  ASSERT_TRUE(chain.next().has_value());
  EXPECT_EQ(chain.next()->question.waiter, WorkerId(2));
  chain.Add(WorkerId(1), Waits(2, 20));
  EXPECT_FALSE(chain.next().has_value());
  EXPECT_EQ(chain.Describe(),
            "workers wait in a circle: worker 2 waits for 30, worker 1 waits for 20, which is "
            "where it began, so worker 1 waits for 20, so worker 0 waits for 10");
}

TEST(BlameChain, EndsThoughEveryAnswerIsANewOne) {
  BlameChain chain;
  int links = 0;
  chain.Add(WorkerId(0), Waits(1, 0));
  while (chain.next().has_value() && links < 1000) {
    ++links;
    chain.Add(chain.next()->worker, Waits(links % 2, static_cast<uint64_t>(links)));
  }
  EXPECT_LT(links, 1000);
}

TEST(BlameText, ReadsBack) {
  for (const BlameQuestion& question :
       {BlameQuestion{WorkerId(7), MessageKey{11, ~uint64_t{0}}}, BlameQuestion{WorkerId(0), {}}}) {
    RZ_ASSIGN(const auto read, ParseQuestion(WriteQuestion(question)));
    EXPECT_EQ(read.waiter, question.waiter);
    EXPECT_EQ(read.message, question.message);
  }
  for (const BlameAnswer& answer : {Waits(5, 42), BlameAnswer{.says = "has spoken"},
                                    BlameAnswer{.says = "is full", .next = WorkerId(2)}}) {
    RZ_ASSIGN(const auto read, ParseAnswer(WriteAnswer(answer)));
    EXPECT_EQ(read.says, answer.says);
    EXPECT_EQ(read.next, answer.next);
    EXPECT_EQ(read.message, answer.message);
  }
}

TEST(BlameText, NonsenseIsRefused) {
  for (const char* text : {"", "x -", "-1 -", "1", "1 99.5", "1 3.", "1 3.x", "1 .5"}) {
    EXPECT_FALSE(ParseQuestion(text).ok()) << text;
  }
  for (const char* text : {"", "1 -", "x - words", "1 3 words", "1 - ", "-2 - words"}) {
    EXPECT_FALSE(ParseAnswer(text).ok()) << text;
  }
}

}  // namespace
}  // namespace ringzero
