// Who holds up the others: made-up paces, of which only a real straggler's is named.
#include "integrations/sight/pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace ringzero {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kWorkers = 4;

// What a worker adds to its pace in the iteration from `second` to `second` + 1.
using Work = std::function<Pace(int worker, int second)>;

std::vector<std::string> LinesOf(int seconds, const Work& work) {
  StragglerWatch watch(kWorkers);
  std::vector<Pace> paces(kWorkers);
  std::vector<std::string> lines;
  for (int second = 0; second < seconds; ++second) {
    for (int w = 0; w < kWorkers; ++w) {
      const Pace more = work(w, second);
      Pace& pace = paces[static_cast<size_t>(w)];
      pace = pace - (Pace() - more);
    }
    const int teller = second % kWorkers;
    const StragglerWatch::Time when{std::chrono::seconds(second)};
    for (std::string& line : watch.Note(teller, when, paces[static_cast<size_t>(teller)])) {
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

// Worker 2 is stopped for three quarters of the time: its micro-batch takes four times as long.
Pace Stopped(int worker, int) {
  return {.micro_batches = 1,
          .computing_seconds = worker == 2 ? 0.8 : 0.2,
          .off_core_seconds = worker == 2 ? 0.6 : 0};
}

TEST(StragglerWatch, NamesAWorkerOnceAndSaysWhy) {
  EXPECT_THAT(LinesOf(200, Stopped),
              ElementsAre(AllOf(HasSubstr("worker 2 takes 4.0 times as long as the others"),
                                HasSubstr("not on a processor for 75 % of its computing time"))));
}

TEST(StragglerWatch, WaitsForTwentySeconds) {
  EXPECT_THAT(LinesOf(20, Stopped), IsEmpty());
  // Slow for 10 s, again and again, is not slow for 20 s.
  EXPECT_THAT(LinesOf(400,
                      [](int worker, int second) {
                        return second % 40 < 10 ? Stopped(worker, second) : Stopped(0, second);
                      }),
              IsEmpty());
}

TEST(StragglerWatch, KnowsOtherReasons) {
  const auto lines = [](Pace slow) {
    return LinesOf(60, [slow](int worker, int) {
      return worker == 1 ? slow : Pace{.micro_batches = 1, .computing_seconds = 0.2};
    });
  };
  const Pace slow{.micro_batches = 1, .computing_seconds = 0.8};
  EXPECT_THAT(lines(slow), ElementsAre(HasSubstr("it was on a processor")));
  Pace stolen = slow;
  stolen.stolen_seconds = 0.5;
  EXPECT_THAT(lines(stolen), ElementsAre(HasSubstr("40 % of the time (stolen)")));
  Pace faults = slow;
  faults.off_core_seconds = 0.6;
  faults.disk_faults = 800;
  EXPECT_THAT(lines(faults), ElementsAre(HasSubstr("1000 page faults a second")));
}

TEST(StragglerWatch, SaysNothingOfHealthyRuns) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::minstd_rand random(seed + 1);
    std::uniform_real_distribution<double> seconds(0.05, 0.5);
    EXPECT_THAT(LinesOf(300,
                        [&](int, int) -> Pace {
                          const double computing = seconds(random);
                          return {.micro_batches = 1,
                                  .computing_seconds = computing,
                                  .off_core_seconds = computing / 2};
                        }),
                IsEmpty())
        << seed;
  }
}

TEST(StragglerWatch, AWorkerWithoutCompleteMicroBatchesIsNotCompared) {
  EXPECT_THAT(LinesOf(100,
                      [](int worker, int) {
                        return worker == 3 ? Pace()
                                           : Pace{.micro_batches = 1, .computing_seconds = 0.2};
                      }),
              IsEmpty());
}

TEST(LapMeter, CountsCompleteMicroBatchesOfTraining) {
  LapMeter meter({.iterations = 4, .micro_batch = 8}, Usage());
  Usage now;
  // 4 s by the clock, 1 s of them in waits and 2 s on a processor.
  const auto end = [&](LapTask lap) {
    meter.EndLap(lap, now.Add({.seconds = 4, .update = 1, .on_core = 2, .disk_faults = 5}));
  };
  end({.kind = LapTask::Kind::kTrain, .iteration = Iteration(0)});
  EXPECT_EQ(meter.pace().micro_batches, 0) << "the first one warms up";
  end({.kind = LapTask::Kind::kEvaluate, .iteration = Iteration(1)});
  end({.kind = LapTask::Kind::kTrain, .iteration = Iteration(1), .samples = 3});
  EXPECT_EQ(meter.pace().micro_batches, 0);
  end({.kind = LapTask::Kind::kTrain, .iteration = Iteration(2), .samples = 8});
  EXPECT_EQ(meter.pace().micro_batches, 1);
  EXPECT_EQ(meter.pace().computing_seconds, 3);
  EXPECT_EQ(meter.pace().off_core_seconds, 1);
  EXPECT_EQ(meter.pace().disk_faults, 5);
  EXPECT_EQ(meter.TakeOffCoreSeconds(), 3) << "of all three of training";
  EXPECT_EQ(meter.TakeOffCoreSeconds(), 0);
  EXPECT_EQ(meter.steps().all.seconds, 12);
}

TEST(LapMeter, MeasuresWholeIterationsAfterTheFirstOnes) {
  LapMeter meter({.iterations = 9, .laps = 2, .left_out = 1}, Usage());
  Usage now;
  for (const auto& [iteration, lap, seconds] :
       {std::array{0, 0, 9}, {0, 1, 9}, {1, 0, 1}, {1, 1, 2}, {2, 0, 2}, {2, 1, 3}, {3, 0, 9}}) {
    meter.EndLap(
        {.kind = LapTask::Kind::kTrain, .iteration = Iteration(iteration), .lap = Lap(lap)},
        now.Add({.seconds = static_cast<double>(seconds)}));
  }
  const Steps steps = meter.steps();
  EXPECT_EQ(steps.count, 2);
  EXPECT_EQ(steps.median, 4);
  EXPECT_EQ(steps.min, 3);
  EXPECT_EQ(steps.max, 5);
  EXPECT_EQ(steps.all.seconds, 8);
}

}  // namespace
}  // namespace ringzero
