// Balanced sum windows against algorithm.md section 8: what is summed, read, sent and refused.
#include "sharding/sum_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "sharding/obligations.h"
#include "sharding/render.h"
#include "sharding/simulate.h"
#include "sharding/verify.h"
#include "tests/sharding/test_plans.h"

namespace ringzero {
namespace {

using ::testing::HasSubstr;

PlanShape Balanced(int workers, int slack) {
  return {.workers = workers, .stages = workers, .slack = slack, .balanced = true};
}

MicroBatch MicroBatchNumber(const Plan& plan, int m) {
  return {WorkerId(m % plan.workers), Iteration(m / plan.workers / plan.laps),
          Lap(m / plan.workers % plan.laps)};
}

// Every window written out.
void ExpectWindows(const Plan& plan, int j, int last_of_first) {
  const int each = plan.workers * plan.laps;
  std::map<int, int> update_of;  // by micro-batch
  std::set<int> first, last;
  for (int u = 0; u < plan.iterations; ++u) {
    const int end = each * u + last_of_first;
    for (int m = each * (u - 1) + last_of_first + 1; m <= end; ++m) update_of[m] = u;
    first.insert(u == 0 ? 0 : end - each + 1);
    last.insert(end);
    const SumWindow window = WindowOf(plan, j, u);
    EXPECT_EQ(window.last, end);
    EXPECT_EQ(window.first, u == 0 ? 0 : end - each + 1);
  }
  for (int m = 0; m < each * plan.iterations; ++m) {
    const MicroBatch place = MicroBatchNumber(plan, m);
    const std::optional<Iteration> update = UpdateOf(plan, place, StageId(j));
    const int wanted = update_of.count(m) > 0 ? update_of[m] : -1;
    EXPECT_EQ(update.has_value() ? update->value : -1, wanted) << "stage " << j << " m " << m;
    EXPECT_EQ(UpdateWith(plan, j, m), wanted);
    if (wanted < 0) continue;
    EXPECT_EQ(BeginsSum(plan, place, StageId(j)), first.count(m) > 0)
        << "stage " << j << " m " << m;
    EXPECT_EQ(CompletesSum(plan, place, StageId(j)), last.count(m) > 0);
    if (first.count(m) > 0) {
      EXPECT_TRUE(MayBeginSum(plan, place.worker, StageId(j)));
    }
    if (last.count(m) > 0) {
      EXPECT_EQ(SumsEndAt(plan, StageId(j)), place.worker);
    }
  }
}

TEST(SumWindowsTest, AreThoseOfTheDefinition) {
  for (int n = 1; n <= 8; ++n) {
    for (int j = 0; j < n; ++j) {
      const Plan plan = MakeTestPlan(Balanced(n, 1));
      ExpectWindows(plan, j, j);
      // After the last window N-1-j micro-batches are left.
      int left = 0;
      for (int m = 0; m < n * plan.iterations; ++m) left += UpdateWith(plan, j, m) < 0;
      EXPECT_EQ(left, n - 1 - j);
    }
    for (const int k : {1, 3}) {
      const Plan plan = MakeTestPlan({.workers = n, .stages = 2, .laps = k});
      ExpectWindows(plan, 1, n * k - 1);
    }
  }
}

// Micro-batch m reads what the newest update u has made with N·u + c_j + N - j + σ_j <= m, c_j = j.
TEST(SumWindowsTest, ReadersAreThoseOfTheDefinition) {
  for (int n = 1; n <= 8; ++n) {
    for (const int slack : {0, 1}) {
      const Plan plan = MakeTestPlan(Balanced(n, slack));
      for (int j = 0; j < n; ++j) {
        const int sigma = j + slack;
        for (int m = 0; m < n * plan.iterations; ++m) {
          int label = -1;  // θ_{-1}, which is θ_0
          for (int u = -1; n * u + j + n - j + sigma <= m; ++u) label = u + 1;
          EXPECT_EQ(ReadVersion(plan, MicroBatchNumber(plan, m), StageId(j)), Version(label))
              << "N " << n << " slack " << slack << " stage " << j << " m " << m;
        }
      }
    }
  }
}

// A version is there 2j ticks before its first reader, 2j + 2 with slack 1.
TEST(SumWindowsTest, SlackInTicks) {
  for (int n = 1; n <= 8; ++n) {
    for (const int slack : {0, 1}) {
      const Plan plan = MakeTestPlan(Balanced(n, slack));
      std::map<std::pair<int, int>, int> complete, read;  // (stage, version): its tick
      for (const GridCell& cell : LockstepGrid(plan, 4)) {
        const Op& op = cell.op;
        const int j = op.stage.value;
        if (op.kind == OpKind::kBackward && cell.worker == j) {
          complete[{j, op.iteration.value + 1}] = cell.tick + 1;
        }
        if (op.kind == OpKind::kForward) read.try_emplace({j, op.version.value}, cell.tick);
        if (op.kind == OpKind::kForward && cell.tick < read[{j, op.version.value}]) {
          read[{j, op.version.value}] = cell.tick;
        }
      }
      int found = 0;
      for (const auto& [place, tick] : read) {
        if (place.second < 1 || complete.count(place) == 0) continue;
        EXPECT_EQ(tick - complete[place], 2 * place.first + 2 * slack);
        ++found;
      }
      EXPECT_GE(found, n);
    }
  }
}

TEST(SumWindowsTest, StaleShare) {
  for (int n = 1; n <= 8; ++n) {
    EXPECT_EQ(StaleShare(MakeTestPlan(Balanced(n, 0))), double(n * n - n) / (n * n));
    EXPECT_EQ(StaleShare(MakeTestPlan(Balanced(n, 1))), 1);
  }
}

int64_t Payload(const Plan& plan, const Op& op) {
  const StagePlan& stage = plan.stage(op.stage);
  return op.channel == Channel::kSum ? stage.sum_bytes : stage.parameter_bytes;
}

// From the programs: in every iteration but the ends each stage's parameters make N-1 hops twice
// and its sum N-1, all to the right neighbour.
TEST(SumWindowsTest, EveryMessageGoesToTheRightNeighbourAndNoneIsLong) {
  for (int n = 2; n <= 8; ++n) {
    for (const int slack : {0, 1}) {
      PlanShape shape = Balanced(n, slack);
      shape.iterations = 5;
      const Plan plan = MakeTestPlan(shape);
      std::map<int, int64_t> parameters, sums;  // by iteration of the receiver
      for (const Program& program : ProgramsOf(plan)) {
        for (const Op& op : program.ops) {
          if (op.kind != OpKind::kSend || op.channel == Channel::kCollection) continue;
          ASSERT_NE(op.channel, Channel::kRetire);
          const bool start = op.iteration.value == 0 && op.peer.value == 0;  // the initial ones
          const WorkerId right((program.worker.value + 1) % n);
          if (!start) {
            EXPECT_EQ(op.peer, right) << ToString(op);
          }
          if (op.stage == kNoStage) continue;
          (op.channel == Channel::kSum ? sums : parameters)[op.iteration.value] +=
              Payload(plan, op);
        }
      }
      int64_t psi = 0, psi_sums = 0;
      for (const StagePlan& stage : plan.stages) psi += stage.parameter_bytes;
      for (const StagePlan& stage : plan.stages) psi_sums += stage.sum_bytes;
      const WireBytes wanted = SteadyWireBytes(plan);
      EXPECT_EQ(wanted.parameters, 2 * (n - 1) * psi);
      EXPECT_EQ(wanted.sums, (n - 1) * psi_sums);
      for (int t = 0; t < plan.iterations; ++t) EXPECT_EQ(parameters[t], wanted.parameters);
      for (int t = 1; t + 1 < plan.iterations; ++t) EXPECT_EQ(sums[t], wanted.sums);
      EXPECT_LT(sums[0], wanted.sums);
      EXPECT_LE(sums[plan.iterations - 1], wanted.sums);
    }
  }
}

// What happens, by the clock and by contents, whatever takes how long.
TEST(SumWindowsTest, RunsAreRight) {
  int number = 0;
  for (int n = 1; n <= 5; ++n) {
    for (const int slack : {0, 1}) {
      for (const bool shows : {false, true}) {
        PlanShape shape = Balanced(n, slack);
        shape.iterations = 6;
        shape.stagger = ++number % 2 == 0;
        shape.statistics = shows;
        shape.tied = number % 3 == 0;
        shape.costs = number % 4 < 2 ? Costs::kRandom : Costs::kBackwardTwice;
        if (number % 3 == 1) shape.clipping = Clipping::kPerStage;
        if (shows) {
          shape.evaluate_every = 2;
          shape.collect_every = 1 + number % 2;
          shape.collector = number % n;
        }
        const Plan plan = MakeResolvedPlan(shape);
        const LinkedRing ring = RingOf(plan);
        for (uint64_t seed = 1; seed <= 5; ++seed) {
          const auto times =
              RunTimeline(plan, ring, {.update_ticks = 7, .jitter_ticks = 20, .seed = seed});
          ASSERT_TRUE(times.ok()) << times.status();
          EXPECT_EQ(CheckRun(plan, ring, *times), absl::OkStatus()) << Describe(shape);
        }
      }
    }
  }
}

// Also on transports that merge FIFOs.
TEST(SumWindowsTest, EveryTransportHasAWindow) {
  for (int n = 2; n <= 5; ++n) {
    for (const int slack : {0, 1}) {
      PlanShape shape = Balanced(n, slack);
      shape.evaluate_every = 2;
      shape.collect_every = slack;
      shape.collector = n - 1;
      shape.statistics = true;
      for (const Merging merging : {Merging::kLongHops, Merging::kPerPair}) {
        Plan plan = MakeTestPlan(shape);
        const absl::StatusOr<int> window = ChooseWindow(plan, merging);
        ASSERT_TRUE(window.ok()) << Describe(shape) << window.status();
        if (merging == Merging::kLongHops) {
          EXPECT_EQ(*window, 2) << Describe(shape);
        }
        plan.window = *window;
        EXPECT_EQ(VerifyPlan(plan, merging), absl::OkStatus());
      }
    }
  }
}

// A longer run does the same and more.
TEST(SumWindowsTest, ALongerRunBeginsAlike) {
  PlanShape shape = Balanced(4, 0);
  shape.iterations = 3;
  const Plan plan = MakeTestPlan(shape);
  shape.iterations = 7;
  const Plan longer = MakeTestPlan(shape);
  const IterationRange first{Iteration(0), Iteration(2)};
  EXPECT_EQ(*MakePrograms(plan, first), *MakePrograms(longer, first));
}

TEST(SumWindowsTest, SumsAtTheirOwnersAreSeenByTheMemoryOfARun) {
  const Plan plan = MakeResolvedPlan(Balanced(3, 1));
  const auto run = Simulate(plan);
  ASSERT_TRUE(run.ok()) << run.status();
  for (int w = 0; w < 3; ++w) EXPECT_GT(run->peaks[w].sums_bytes, 0) << w;
}

std::string Refusal(const PlanShape& shape, const std::function<void(Plan&)>& change = nullptr) {
  Plan plan = MakeTestPlan(shape);
  if (change) change(plan);
  const absl::Status status = CheckPlan(plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << Describe(shape);
  return std::string(status.message());
}

TEST(SumWindowsTest, RefusesWhatItIsNotFor) {
  PlanShape good = Balanced(3, 1);
  EXPECT_EQ(CheckPlan(MakeTestPlan(good)), absl::OkStatus());
  const auto with = [&](auto field, auto value) {
    PlanShape shape = good;
    shape.*field = value;
    return Refusal(shape);
  };
  const std::string needs = "plan: sum_windows balanced needs ";
  EXPECT_EQ(with(&PlanShape::rule, Rule::kDp), needs + "rule cdp_v2, found dp");
  EXPECT_EQ(with(&PlanShape::rule, Rule::kCdpV1), needs + "rule cdp_v2, found cdp_v1");
  EXPECT_EQ(with(&PlanShape::stages, 6), needs + "as many stages as workers, found 6 and 3");
  EXPECT_EQ(with(&PlanShape::laps, 2), needs + "laps 1, found 2");
  EXPECT_EQ(with(&PlanShape::slack, 2), needs + "slack 0 or 1, found 2");
  EXPECT_EQ(with(&PlanShape::zero_stage, 2), needs + "zero_stage 3, found 2");
  EXPECT_EQ(with(&PlanShape::strict, true), needs + "strict 0, found 1");
  EXPECT_EQ(with(&PlanShape::predict, true), needs + "predict 0, found 1");
  EXPECT_EQ(with(&PlanShape::skip_overflows, true), needs + "skip_overflows 0, found 1");
  EXPECT_EQ(with(&PlanShape::clipping, Clipping::kPrevious),
            needs + "clipping off or per_stage, found previous");
  EXPECT_THAT(with(&PlanShape::clipping, Clipping::kExact), HasSubstr(needs));
  const auto samples = [](Plan& plan) { plan.samples = {.per_epoch = 25, .micro_batch = 4}; };
  EXPECT_EQ(Refusal(good, samples), needs + "samples.per_epoch 0, no incomplete batch, found 25");
  const auto owner = [](Plan& plan) { plan.stages[1].owner = WorkerId(2); };
  EXPECT_EQ(Refusal(good, owner), needs + "worker 1 as owner of stage 1, found 2");
}

TEST(SumWindowsTest, ProgramsOfOtherWindowsAreRefused) {
  PlanShape shape = Balanced(3, 0);
  const Plan plan = MakeResolvedPlan(shape);
  Plan other = plan;
  other.sum_windows = SumWindows::kIteration;
  EXPECT_EQ(Verify(plan, ProgramsOf(plan)), absl::OkStatus());
  EXPECT_EQ(Verify(plan, ProgramsOf(other)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Verify(other, ProgramsOf(plan)).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SumWindowsTest, AreInThePlansText) {
  Plan plan = MakeResolvedPlan(Balanced(2, 1));
  EXPECT_THAT(PlanToString(plan), HasSubstr(" sum_windows balanced\n"));
  plan.samples = {.per_epoch = 8, .micro_batch = 2};
  const absl::StatusOr<Plan> read = ParsePlan(PlanToString(plan));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->balanced());
  EXPECT_EQ(PlanToString(*read), PlanToString(plan));
  EXPECT_FALSE(ParseSumWindows("even").ok());
}

}  // namespace
}  // namespace ringzero
