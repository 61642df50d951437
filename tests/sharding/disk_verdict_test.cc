// What a disk costs a run whose states stream, and what is said of it before the run.
#include "sharding/study/disk_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "sharding/study/cost_profile.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kMillisecond = 1'000'000;

// Each stage streams 64 MiB and takes 10 ms forward, 20 backward.
Plan Streaming(Rule rule, int workers, int laps = 1, int stages_each = 2) {
  Plan plan = MakeResolvedPlan(
      {.workers = workers, .stages = stages_each * workers, .laps = laps, .rule = rule});
  for (StagePlan& stage : plan.stages) {
    stage.streamed_bytes = 64 * kMiB;
    stage.forward_cost = 10 * kMillisecond;
    stage.backward_cost = 20 * kMillisecond;
  }
  plan.staging_bytes = 16 * kMiB;
  plan.hosts = {workers};
  return plan;
}

// What streams are its parameters, not its states.
Plan WithParametersInFiles(Plan plan, int slots) {
  plan.resident_slots = slots;
  for (StagePlan& stage : plan.stages) {
    stage.parameter_bytes = std::exchange(stage.streamed_bytes, 0);
    stage.streams_parameters = true;
  }
  return plan;
}

// Of one disk for all workers, with so many bytes per second.
SimulationOptions With(double bytes_per_second, int workers) {
  SimulationOptions speed{.update_ticks = kMillisecond};
  speed.links.hosts = {workers};
  speed.disk.per_byte = 1e9 / bytes_per_second;
  return speed;
}

TEST(DiskVerdict, ASlowDiskDecidesHowLongAStepTakes) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const int workers : {1, 2, 4}) {
      const Plan plan = Streaming(rule, workers);
      const double bytes = 2.0 * 64 * kMiB * plan.stage_count();
      RZ_ASSIGN(const auto verdict, JudgeDisk(plan, With(50e6, workers)));
      // In dp nothing is fetched while the last updates of an iteration are stored.
      EXPECT_GE(verdict.step, 0.999 * bytes / 50e6) << ToString(rule) << " " << workers;
      EXPECT_LE(verdict.step, 1.02 * bytes / 50e6) << ToString(rule) << " " << workers;
      EXPECT_FALSE(verdict.hidden());
      EXPECT_GT(verdict.waits, 0.5) << "of a step";
      EXPECT_NEAR(verdict.has, 50e6, 1);
      EXPECT_NEAR(verdict.needs, bytes / verdict.step_in_memory, 1);
      EXPECT_EQ(verdict.written_bytes, 64 * kMiB * plan.stage_count());
    }
  }
}

// Each worker reads all stages for its forward, and all but two again for its backward; an update
// reads one and writes one.
TEST(DiskVerdict, ParametersInFilesAreReadByEachWorker) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const int workers : {1, 2}) {
      const Plan plan = WithParametersInFiles(
          Streaming(rule, workers, /*laps=*/1, /*stages_each=*/4), /*slots=*/2);
      RZ_ASSIGN(const auto verdict, JudgeDisk(plan, With(50e6, workers)));
      const int stages = plan.stage_count();
      const double bytes = 64.0 * kMiB * (workers * (2 * stages - 2) + 2 * stages);
      EXPECT_NEAR(verdict.needs, bytes / verdict.step_in_memory, 1) << ToString(rule) << workers;
      EXPECT_EQ(verdict.written_bytes, 64 * kMiB * stages);
      EXPECT_GE(verdict.step, 0.999 * bytes / 50e6) << ToString(rule) << workers;
      EXPECT_LE(verdict.step, 1.05 * bytes / 50e6) << ToString(rule) << workers;
      EXPECT_THAT(verdict.ways_out, Contains("zero_optimization.offload_param.device none"));
      RZ_ASSIGN(const auto fast, JudgeDisk(plan, With(1e12, workers)));
      EXPECT_TRUE(fast.hidden()) << ToString(rule) << workers;
    }
  }
}

// Where each has a disk of its own, more workers are not slower.
TEST(DiskVerdict, WorkersShareTheDiskOfTheirHost) {
  const Plan plan = Streaming(Rule::kCdpV1, 4);
  SimulationOptions speed = With(50e6, 4);
  RZ_ASSIGN(const auto together, JudgeDisk(plan, speed));
  speed.links.hosts = {2, 2};
  RZ_ASSIGN(const auto pairs, JudgeDisk(plan, speed));
  EXPECT_NEAR(together.step / pairs.step, 2, 0.05);
  EXPECT_EQ(together.written_bytes, 2 * pairs.written_bytes);
  speed.links.hosts = {4};
  speed.disk.at_once = 2;  // twice as fast as one worker can be
  RZ_ASSIGN(const auto wide, JudgeDisk(plan, speed));
  EXPECT_NEAR(wide.step, pairs.step, 0.05 * pairs.step);
  EXPECT_NEAR(wide.has, 100e6, 1);
}

TEST(DiskVerdict, AFastDiskIsHiddenAndIsSaidToBe) {
  const Plan plan = Streaming(Rule::kCdpV1, 4);
  RZ_ASSIGN(const auto verdict, JudgeDisk(plan, With(100e9, 4)));
  EXPECT_TRUE(verdict.hidden());
  EXPECT_THAT(verdict.ways_out, testing::IsEmpty());
  const std::string text = DescribeDisk(verdict, 600e12);
  EXPECT_THAT(text, HasSubstr("gives 100.00: hidden, "));
  EXPECT_THAT(text, HasSubstr("TB a day: the disk's 600 TB last "));
}

TEST(DiskVerdict, HiddenIsAStepThatIsNotLongerOrDoesNotWait) {
  const auto hidden = [](double step, double waits) {
    return DiskVerdict{.step_in_memory = 1, .step = step, .waits = waits}.hidden();
  };
  EXPECT_TRUE(hidden(1.005, 0.5)) << "others compute meanwhile";
  EXPECT_TRUE(hidden(1.05, 0.0005));
  EXPECT_FALSE(hidden(1.05, 0.002));
}

// An update waits for reads. Writes of three stages are asked for before the last stage is read.
TEST(DiskVerdict, ReadsDoNotWaitForAllWrites) {
  Plan plan = Streaming(Rule::kDp, 1, /*laps=*/1, /*stages_each=*/4);
  plan.staging_bytes = 3 * 64 * kMiB;
  plan.iterations = 3;
  RZ_ASSIGN(const LinkedRing ring, LinkedRing::Write(plan, /*in_pieces=*/true));
  RZ_ASSIGN(const Timeline times, RunTimeline(plan, ring, With(50e6, 1)));
  const auto end_of = [&](OpKind kind, int stage) {
    for (int i = 0; i < ring.count(); ++i) {
      const Op& op = ring.op(i);
      if (op.kind == kind && op.stage == StageId(stage) && op.iteration == Iteration(1)) {
        return times.end[i];
      }
    }
    return int64_t{-1};
  };
  EXPECT_GT(end_of(OpKind::kFetch, 0), 0);
  EXPECT_LT(end_of(OpKind::kFetch, 0), end_of(OpKind::kStore, 2));
}

// What the processor does for reads and writes makes a step longer on cores that are never idle, and
// nothing waits.
TEST(DiskVerdict, ProcessorTimeOfADiskIsNoWaitForIt) {
  const double kPerByte = 0.02;  // ns
  for (const int workers : {1, 2}) {
    const Plan states = Streaming(Rule::kCdpV1, workers, /*laps=*/1, /*stages_each=*/4);
    for (const Plan& plan : {states, WithParametersInFiles(states, /*slots=*/3)}) {
      SimulationOptions speed = With(1e12, workers);
      speed.cores = 1;
      speed.disk.computing = kPerByte;
      RZ_ASSIGN(const auto verdict, JudgeDisk(plan, speed));
      const double more = verdict.needs * verdict.step_in_memory * kPerByte * 1e-9;
      EXPECT_NEAR(verdict.step - verdict.step_in_memory, more, 0.02 * more);
      EXPECT_TRUE(verdict.is_longer());
      EXPECT_TRUE(verdict.hidden()) << verdict.waits;
      EXPECT_THAT(DescribeDisk(verdict, std::nullopt), HasSubstr("the processor has more to do"));
    }
  }
}

// A version that is written and read while the cores compute is there later.
TEST(DiskVerdict, WhereAllCoresComputeAThreadSeesTheDiskLater) {
  const Plan plan =
      WithParametersInFiles(Streaming(Rule::kDp, 1, /*laps=*/1, /*stages_each=*/4), /*slots=*/3);
  const auto step_with = [&](int cores, int64_t wake) {
    SimulationOptions speed = With(1e12, 1);
    speed.cores = cores;
    speed.disk.wake = wake;
    return JudgeDisk(plan, speed).value().step;
  };
  const double at_once = step_with(1, 0);
  EXPECT_GE(step_with(1, 100 * kMillisecond), at_once + 0.05) << "seconds";
  EXPECT_NEAR(step_with(8, 100 * kMillisecond), step_with(8, 0), 1e-9);
}

// Each way out, followed, hides the disk.
TEST(DiskVerdict, WaysOutAreWaysOut) {
  const Plan plan = Streaming(Rule::kCdpV1, 2);
  RZ_ASSIGN(const DiskVerdict in_memory, JudgeDisk(plan, With(100e9, 2)));
  const SimulationOptions speed = With(0.5 * in_memory.needs, 2);
  RZ_ASSIGN(const DiskVerdict verdict, JudgeDisk(plan, speed));
  ASSERT_FALSE(verdict.hidden());
  EXPECT_THAT(verdict.ways_out, Contains(StartsWith("gradient_accumulation_steps ")));
  const std::string text = DescribeDisk(verdict, std::nullopt);
  EXPECT_THAT(text, HasSubstr("not hidden: a step takes "));
  EXPECT_THAT(text, HasSubstr("what would hide it: gradient_accumulation_steps "));
  int laps = 0;
  ASSERT_EQ(std::sscanf(verdict.ways_out[0].c_str(), "gradient_accumulation_steps %d", &laps), 1);
  EXPECT_GE(laps, 2);
  RZ_ASSIGN(const DiskVerdict followed, JudgeDisk(Streaming(Rule::kCdpV1, 2, laps), speed));
  EXPECT_TRUE(followed.hidden()) << followed.step << " " << followed.step_in_memory;
}

// In dp masters stream although versions may be collected; in the rule that is tried they would not.
TEST(DiskVerdict, TriesAnotherRuleThoughMastersStream) {
  Plan plan = Streaming(Rule::kDp, 2);
  plan.requests = plan.collection.on_request = true;
  for (StagePlan& stage : plan.stages) {
    stage.master_bytes = 2 * stage.parameter_bytes;
    stage.streams_masters = true;
  }
  RZ_ASSIGN(const DiskVerdict in_memory, JudgeDisk(plan, With(1e12, 2)));
  RZ_ASSIGN(const DiskVerdict verdict, JudgeDisk(plan, With(4 * in_memory.needs, 2)));
  EXPECT_FALSE(verdict.hidden());
  EXPECT_THAT(verdict.ways_out, Contains("cyclic.rule cdp_v1"));
}

// With a disk of 1.25 times what is needed.
TEST(ChooseStaging, IsTheLeastThatHides) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const int stages_each : {1, 2, 4, 8}) {
      Plan plan = Streaming(rule, 4, /*laps=*/1, stages_each);
      const int64_t streamed = 64 * kMiB * stages_each;
      RZ_ASSIGN(const StepForecast free, ForecastStep(plan, {}));
      SimulationOptions speed;
      speed.disk.per_byte = 1e9 * free.seconds / 1.25 / (2.0 * static_cast<double>(streamed));
      const auto step = [&](int64_t staging) {
        plan.staging_bytes = staging;
        return ForecastStep(plan, speed)->seconds / free.seconds;
      };
      RZ_ASSIGN(const int64_t chosen, ChooseStaging(plan));
      if (chosen < streamed / 2) {
        EXPECT_LE(step(chosen), 1.01) << ToString(rule) << " " << stages_each << " " << chosen;
      }
      if (chosen > 128 * kMiB) {  // two stages
        EXPECT_GT(step(chosen / 2), 1.01) << ToString(rule) << stages_each;
      }
    }
  }
}

TEST(ChooseStaging, IsAtMostHalfOfWhatStreams) {
  Plan plan = Streaming(Rule::kDp, 4);
  plan.staging_bytes = 0;  // not chosen yet
  RZ_ASSIGN(const int64_t staging, ChooseStaging(plan));
  EXPECT_EQ(staging, 64 * kMiB) << "in dp all updates come at once";
  for (StagePlan& stage : plan.stages) stage.streamed_bytes = kMiB;
  RZ_ASSIGN(const int64_t least, ChooseStaging(plan));
  EXPECT_EQ(least, 16 * kMiB);
}

}  // namespace
}  // namespace ringzero
