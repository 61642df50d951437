// With the window that ChooseWindow gives, no run deadlocks, whatever the delays, and every run is
// right.
#include "sharding/study/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "sharding/check/verify.h"
#include "sharding/rules/schedule.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

// Runs the plan at several speeds; the oracle looks at each.
void ExpectRightRuns(const PlanShape& shape) {
  const Plan plan = MakeResolvedPlan(shape);
  EXPECT_EQ(VerifyPlan(plan), absl::OkStatus()) << Describe(shape);
  const LinkedRing ring = RingOf(plan);
  std::vector<SimulationOptions> speeds(4);
  speeds[1] = {
      .latency_ticks = 3, .add_ticks = 2, .update_ticks = 7, .more_ticks = Jitter(5, shape.seed)};
  speeds[2] = {.update_ticks = 40, .more_ticks = Jitter(30, shape.seed + 1, {9})};
  speeds[3] = speeds[1];
  speeds[3].cores = 2;
  for (const SimulationOptions& speed : speeds) {
    const auto times = RunTimeline(plan, ring, speed);
    ASSERT_TRUE(times.ok()) << Describe(shape) << " W " << plan.window << ": " << times.status();
    EXPECT_EQ(CheckRun(plan, ring, *times), absl::OkStatus()) << Describe(shape);
  }
}

TEST(SimulateSweepTest, PairsOfEverythingRunRight) {
  for (const PlanShape& shape : PairwiseShapes()) {
    ExpectRightRuns(shape);
    if (HasFatalFailure()) return;
  }
}

TEST(SimulateSweepTest, EveryShapeRunsRight) {
  const int stride = FullTier() ? 1 : 101;
  int number = 0;
  for (int n = 1; n <= 6; ++n) {
    for (int s = 1; s <= 2 * n + 1; ++s) {
      for (int k = 1; k <= 3; ++k) {
        for (const RuleShape& rule : AllRules()) {
          for (const Owners owners : {Owners::kAssigned, Owners::kRandom}) {
            for (const Costs costs : {Costs::kEqual, Costs::kRandom}) {
              for (int zero_stage = 0; zero_stage <= 3; ++zero_stage) {
                if (number++ % stride != 0) continue;
                PlanShape shape{.workers = n,
                                .stages = s,
                                .zero_stage = zero_stage,
                                .laps = k,
                                .owners = owners,
                                .costs = costs};
                shape.seed = static_cast<uint64_t>(number);
                ExpectRightRuns(WithRule(shape, rule));
                if (HasFatalFailure()) return;
              }
            }
          }
        }
      }
    }
  }
}

// What Verify accepts must run. What it refuses may be slow enough to run here.
TEST(SimulateTest, WhatVerifyAcceptsRunsAndTheRestMayNot) {
  int stuck = 0, refused = 0;
  for (const int laps : {1, 2}) {
    for (const RuleShape& rule : AllRules()) {
      for (int n = 2; n <= 4; ++n) {
        PlanShape shape{.workers = n, .stages = 2 * n, .laps = laps, .owners = Owners::kRandom};
        shape.zero_stage = (n + laps) % 4;
        Plan plan = MakeTestPlan(WithRule(shape, rule));
        for (plan.window = 1; plan.window <= 5; ++plan.window) {
          const bool accepted = VerifyPlan(plan).ok();
          const bool runs = RunTimeline(plan, RingOf(plan), {.more_ticks = Jitter(3, 0)}).ok();
          EXPECT_TRUE(runs || !accepted) << Describe(shape) << " W " << plan.window;
          refused += !accepted;
          stuck += !runs;
        }
      }
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(stuck, 0);
  RecordProperty("refused", refused);
  RecordProperty("stuck", stuck);
}

// Where five iterations are steady, all others take as long.
TEST(SimulateTest, ASteadyShortRunTellsOfALongOne) {
  int steady = 0;
  for (const PlanShape& shape : PairwiseShapes()) {
    RZ_ASSIGN(const ShortRun run, ShortRun::Make(MakeResolvedPlan(shape)));
    RZ_ASSIGN(const Simulation few, run.Simulate({}));
    if (!few.is_steady) continue;
    ++steady;
    constexpr int kMany = 16;
    RZ_ASSIGN(const Simulation many, run.SimulateLonger(kMany, {}));
    const auto& middle = few.iterations[ShortRun::kMiddle];
    const auto& before = few.iterations[ShortRun::kMiddle - 1];
    for (int t = ShortRun::kMiddle; t < kMany - 1; ++t) {
      EXPECT_EQ(many.iterations[t].end_ticks - many.iterations[t - 1].end_ticks,
                middle.end_ticks - before.end_ticks)
          << Describe(shape) << " iteration " << t;
      EXPECT_EQ(many.iterations[t].busy_ticks, middle.busy_ticks);
      EXPECT_EQ(many.iterations[t].waits.gradient_sums, middle.waits.gradient_sums);
    }
  }
  EXPECT_GT(steady, 10);
}

// With k slots a second lap of cdp_v1 waits in a circle, and both say in which. (For k = 1 that is
// one slot less than the default: 2k is tight there.)
TEST(SimulateTest, OneSlotPerOwnStageDeadlocks) {
  for (int n = 2; n <= 5; ++n) {
    for (int k = 1; k <= 3; ++k) {
      PlanShape shape{.workers = n, .stages = n * k, .laps = 2, .rule = Rule::kCdpV1};
      shape.streams = (n + k) % 2 == 0;
      Plan plan = MakeTestPlan(shape);
      EXPECT_EQ(*ChooseWindow(plan), 2 * k);
      EXPECT_GT(*SmallestWindow(plan), k);
      plan.window = k;
      const absl::Status refused = VerifyPlan(plan);
      EXPECT_THAT(refused, Fails(absl::StatusCode::kFailedPrecondition, "waits for a slot until"));
      EXPECT_EQ(ChooseWindow(plan).status(), refused) << "given by hand: refused";
      const auto run = Simulate(plan);
      EXPECT_THAT(run, Fails(absl::StatusCode::kFailedPrecondition, "waits for a slot until"));
      plan.window = 2 * k;
      EXPECT_TRUE(Simulate(plan).ok());
      EXPECT_EQ(*ChooseWindow(plan), 2 * k);
    }
  }
}

TEST(SimulateTest, BytesOfEveryIterationAreTheClosedForm) {
  for (const PlanShape& shape : PairwiseShapes()) {
    const Plan plan = MakeResolvedPlan(shape);
    RZ_ASSIGN(const auto run, Simulate(plan));
    std::vector<WireBytes> found(plan.iterations + 1);
    for (const ChannelBytes& channel : run.channels) {
      const bool parameters = channel.copy == Copy::kForward || channel.copy == Copy::kBackward;
      if (parameters) found[channel.iteration].parameters += channel.bytes;
      const bool sums = channel.channel == Channel::kSum || channel.channel == Channel::kRetire ||
                        channel.channel == Channel::kFinished;
      if (sums) found[channel.iteration].sums += channel.bytes;
    }
    // Evaluations bring held copies, too, and the first iteration of a rule has another number of them.
    const bool held = plan.holds_copies();
    if (held && shape.evaluate_every > 0) continue;
    for (int t = 0; t < plan.iterations; ++t) {
      if (held && (t == 0 || t == plan.warmup_updates)) continue;
      const WireBytes wanted = SteadyWireBytes(t < plan.warmup_updates ? WarmupOf(plan) : plan);
      EXPECT_EQ(found[t].parameters, wanted.parameters) << Describe(shape) << " t " << t;
      EXPECT_EQ(found[t].sums, wanted.sums) << Describe(shape) << " t " << t;
    }
  }
}

TEST(SimulateTest, StaggerKeepsTheSpacingAndSoHalfOfTheActivations) {
  const struct {
    int workers;
    double micro_batches;  // of as many as there are workers
  } wanted[] = {{4, 2.25}, {8, 4.25}};
  for (const auto& [n, micro_batches] : wanted) {
    PlanShape shape{.workers = n, .stages = n, .iterations = 12, .costs = Costs::kBackwardTwice};
    Plan bunched = MakeResolvedPlan(shape);
    shape.stagger = true;
    Plan staggered = MakeResolvedPlan(shape);
    const auto free = Simulate(bunched), spaced = Simulate(staggered);
    ASSERT_TRUE(free.ok() && spaced.ok());
    EXPECT_EQ(spaced->peak_activations, static_cast<int64_t>(micro_batches * n));
    EXPECT_GE(free->peak_activations, n * n - n);
    EXPECT_EQ(spaced->steady_iteration_ticks, 3.0 * n) << "no loss of throughput";
    EXPECT_GT(spaced->workers[n - 1].waits.token, 0);
  }
}

// Every cause of waiting is seen where it is put, and nowhere else.
TEST(SimulateTest, WaitsAreCountedByCause) {
  const Plan dp = MakeResolvedPlan({.workers = 3, .stages = 3, .rule = Rule::kDp, .iterations = 6});
  const auto total = [](const Simulation& run) {
    WaitTicks all;
    for (const WorkerTimes& worker : run.workers) {
      all.parameters += worker.waits.parameters;
      all.gradient_sums += worker.waits.gradient_sums;
      all.update += worker.waits.update;
      all.token += worker.waits.token;
      all.evaluation += worker.waits.evaluation;
    }
    return all;
  };
  const WaitTicks none = total(*Simulate(dp));
  EXPECT_EQ(none.parameters + none.gradient_sums + none.update + none.token + none.evaluation, 0);
  const WaitTicks slow_updates = total(*Simulate(dp, {.update_ticks = 50}));
  EXPECT_GT(slow_updates.update, 0);
  EXPECT_EQ(slow_updates.gradient_sums, 0);
  EXPECT_GT(total(*Simulate(dp, {.add_ticks = 50})).gradient_sums, 0);
  EXPECT_GT(total(*Simulate(dp, {.latency_ticks = 50})).parameters, 0);

  // cdp_v1 hides an update of up to T/N; dp hides none.
  const Plan delayed =
      MakeResolvedPlan({.workers = 3, .stages = 3, .rule = Rule::kCdpV1, .iterations = 12});
  EXPECT_EQ(Simulate(delayed, {.update_ticks = 2})->steady_iteration_ticks, 6.0);
  EXPECT_GT(Simulate(dp, {.update_ticks = 2})->steady_iteration_ticks, 6.0);

  const Plan evaluated = MakeResolvedPlan(
      {.workers = 3, .stages = 3, .rule = Rule::kDp, .iterations = 4, .evaluate_every = 1});
  EXPECT_GT(total(*Simulate(evaluated, {.latency_ticks = 50})).evaluation, 0);
}

// A message between hosts takes its latency and its bytes; one within a host takes neither.
TEST(SimulateTest, LinksBetweenHostsTakeTime) {
  const Plan plan =
      MakeResolvedPlan({.workers = 4, .stages = 4, .rule = Rule::kDp, .iterations = 6});
  const auto step = [&](const LinkTicks& links) {
    return Simulate(plan, {.links = links})->steady_iteration_ticks;
  };
  const double free = step({});
  EXPECT_EQ(step({.hosts = {4}, .latency = 50, .per_byte = 1}), free) << "one host";
  const double apart = step({.latency = 50});
  EXPECT_GT(apart, free + 3 * 50) << "a copy goes from worker to worker";
  EXPECT_EQ(apart, step({.hosts = {1, 1, 1, 1}, .latency = 50}));
  const double pairs = step({.hosts = {2, 2}, .latency = 50});
  EXPECT_GT(pairs, free);
  EXPECT_LT(pairs, apart);
  EXPECT_GT(step({.per_byte = 0.01}), step({.per_byte = 0.001}));
}

// Messages from one worker to another share their link: n at once take n times as long.
TEST(SimulateTest, ALinkCarriesOneMessageAfterTheOther) {
  const Plan plan =
      MakeResolvedPlan({.workers = 2, .stages = 2, .rule = Rule::kDp, .iterations = 6});
  RZ_ASSIGN(const Simulation run, Simulate(plan, {.links = {.per_byte = 1000}}));
  int64_t ticks = 0;
  for (const ChannelBytes& channel : run.channels) {
    if (channel.iteration == 3) ticks += channel.link_ticks;
  }
  EXPECT_GT(ticks, 0);
  EXPECT_GE(run.steady_iteration_ticks, ticks / 2.0) << "no direction is faster than its link";
}

TEST(SimulateTest, BusyTicksAreTheCostsAndTimesAddUp) {
  const Plan plan = MakeResolvedPlan(Shape("4x6 laps=2 iterations=5 evaluate=2 random_costs"));
  RZ_ASSIGN(
      const auto run,
      Simulate(plan, {.latency_ticks = 2, .update_ticks = 3, .more_ticks = Jitter(0, 0, {0, 1})}));
  int64_t forward = 0, backward = 0;
  for (const StagePlan& stage : plan.stages) {
    forward += stage.forward_cost;
    backward += stage.backward_cost;
  }
  const int evaluations = 3;  // of versions 2, 4 and 5
  for (int w = 0; w < plan.workers; ++w) {
    const int delay = w == 1 ? 1 : 0;
    const int64_t laps = plan.iterations * plan.laps;
    EXPECT_EQ(run.workers[w].busy_ticks,
              laps * (forward + backward + 2 * 6 * delay) + evaluations * (forward + 6 * delay));
    const WaitTicks& waits = run.workers[w].waits;
    EXPECT_EQ(run.workers[w].end_ticks, run.workers[w].busy_ticks + waits.parameters +
                                            waits.gradient_sums + waits.update + waits.token +
                                            waits.evaluation);
    EXPECT_LE(run.workers[w].end_ticks, run.makespan_ticks);
  }
}

int64_t WorkOf(const Simulation& run) {
  int64_t ticks = 0;
  for (const WorkerTimes& worker : run.workers) ticks += worker.busy_ticks;
  return ticks;
}

TEST(SimulateTest, CoresThatAreEnoughChangeNothing) {
  const SimulationOptions speed = {
      .latency_ticks = 3, .add_ticks = 2, .update_ticks = 7, .more_ticks = Jitter(0, 0, {0, 5})};
  SimulationOptions shared = speed;
  shared.cores = 100;
  for (const RuleShape& rule : AllRules()) {
    const Plan plan = MakeResolvedPlan(
        WithRule({.workers = 4, .stages = 6, .iterations = 5, .costs = Costs::kRandom}, rule));
    const auto run = Simulate(plan, speed), same = Simulate(plan, shared);
    ASSERT_TRUE(run.ok() && same.ok());
    EXPECT_EQ(same->makespan_ticks, run->makespan_ticks);
    EXPECT_EQ(WorkOf(*same), WorkOf(*run));
  }
}

TEST(SimulateTest, CoresAreSharedByAllWhoCompute) {
  Plan plan = MakeResolvedPlan({.workers = 4, .stages = 4, .iterations = 8});
  // As finely as nanoseconds: ends are rounded up to whole ticks.
  for (StagePlan& stage : plan.stages) stage.forward_cost *= 1000, stage.backward_cost *= 1000;
  RZ_ASSIGN(const auto alone, Simulate(plan));
  for (const int cores : {1, 2, 3}) {
    const auto run = Simulate(plan, {.cores = cores});
    ASSERT_TRUE(run.ok());
    // No more work in a tick than there are cores, and no core idle but at the ends of the run.
    const double least = static_cast<double>(WorkOf(alone)) / cores;
    EXPECT_GE(run->makespan_ticks, least) << cores;
    EXPECT_LE(run->makespan_ticks, least + alone.steady_iteration_ticks) << cores;
    EXPECT_NEAR(run->steady_iteration_ticks, alone.steady_iteration_ticks * 4 / cores,
                0.02 * run->steady_iteration_ticks)
        << cores;
  }
}

TEST(SimulateTest, IsDeterministicAndJitterIsNot) {
  const Plan plan = MakeResolvedPlan({.workers = 3, .stages = 5});
  const auto makespan = [&](uint64_t seed) {
    return Simulate(plan, {.more_ticks = Jitter(20, seed)})->makespan_ticks;
  };
  EXPECT_EQ(makespan(1), makespan(1));
  EXPECT_NE(makespan(1), makespan(2));
}

// A profile moves the times, never the versions or the messages: those are the plan's.
TEST(SimulateTest, ProfileReplacesTheCosts) {
  const Plan plan = MakeResolvedPlan({.workers = 2, .stages = 2, .iterations = 3});
  RZ_ASSIGN(const auto run, Simulate(plan, {.stage_ticks = {{10, 20}, {30, 40}}}));
  EXPECT_EQ(run.workers[0].busy_ticks, 3 * (10 + 20 + 30 + 40));
  const auto plain = Simulate(plan);
  ASSERT_EQ(run.computed.size(), plain->computed.size());
  for (size_t i = 0; i < run.computed.size(); ++i) {
    EXPECT_EQ(run.computed[i].op, plain->computed[i].op);
  }
  EXPECT_EQ(Simulate(plan, {.stage_ticks = {{1, 1}}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SimulateTest, NeedsAWindow) {
  Plan plan = MakeTestPlan({.workers = 2, .stages = 2});
  EXPECT_EQ(Simulate(plan).status().code(), absl::StatusCode::kInvalidArgument);
  plan.window = 2;
  EXPECT_TRUE(Simulate(plan).ok());
}

}  // namespace
}  // namespace ringzero
