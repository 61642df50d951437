// The schedule against the closed forms and the tick model of docs/schedule.md.
#include "sharding/rules/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sharding/program/program.h"
#include "sharding/study/render.h"
#include "tests/sharding/test_plans.h"

namespace ringzero {
namespace {

Plan EqualStages(int workers, int stages, Rule rule, int slack) {
  return MakeTestPlan({.workers = workers, .stages = stages, .rule = rule, .slack = slack});
}

// Section 2: worker w runs the forward of stage j at tick 2S·t + 2k·w + j, its backward at
// 2S·t + 2k·w + 2S - 1 - j.
TEST(LockstepTest, TicksAreThoseOfThePaper) {
  for (int n = 1; n <= 16; ++n) {
    for (int k = 1; k <= 3; ++k) {
      const int s = k * n;
      const Plan plan = EqualStages(n, s, Rule::kCdpV2, 0);
      for (const GridCell& cell : LockstepGrid(plan, 2)) {
        const int begin = 2 * s * cell.op.iteration.value + 2 * k * cell.worker;
        const int j = cell.op.stage.value;
        const bool forward = cell.op.kind == OpKind::kForward;
        EXPECT_EQ(cell.tick, begin + (forward ? j : 2 * s - 1 - j));
      }
    }
  }
}

TEST(LockstepTest, NoTwoWorkersNeedOneStageAtATick) {
  for (int n = 1; n <= 16; ++n) {
    for (int k = 1; k <= 4; ++k) {
      const int s = k * n;
      std::map<int, std::vector<int>> stages;  // tick -> stages in use
      std::map<int, int> forwards;
      for (const GridCell& cell : LockstepGrid(EqualStages(n, s, Rule::kCdpV1, 0), 3)) {
        stages[cell.tick].push_back(cell.op.stage.value);
        forwards[cell.tick] += cell.op.kind == OpKind::kForward;
      }
      for (const auto& [tick, used] : stages) {
        const std::set<int> distinct(used.begin(), used.end());
        EXPECT_EQ(distinct.size(), used.size()) << "N " << n << " k " << k << " tick " << tick;
        const bool all_run = tick >= 2 * k * (n - 1) && tick < 3 * 2 * s;
        if (!all_run) continue;
        EXPECT_EQ(static_cast<int>(used.size()), n);
        if (k == 1) {
          EXPECT_EQ(*distinct.rbegin(), n - 1) << "a bijection worker -> stage";
        }
        // Half of the workers are in their forward (all but the odd one out).
        EXPECT_LE(std::abs(2 * forwards[tick] - n), n % 2) << "N " << n << " tick " << tick;
      }
    }
  }
}

// When the sum of iteration t is complete: version t + 1 may exist from the end of that tick on.
int CompleteTick(int n, int k, int iteration, int j) {
  const int s = k * n;
  return 2 * s * iteration + 2 * k * (n - 1) + 2 * s - 1 - j + 1;
}

TEST(LockstepTest, VersionsReadExistInTimeAndNoFresherOneWould) {
  for (int n = 1; n <= 16; ++n) {
    for (int k = 1; k <= 3; ++k) {
      for (int slack = 0; slack <= 3; ++slack) {
        const Plan plan = EqualStages(n, k * n, Rule::kCdpV2, slack);
        const int given = std::min(2 * slack, 2 * k);  // ticks; a lap's N-th part at most
        for (const GridCell& cell : LockstepGrid(plan, 3)) {
          if (cell.op.kind != OpKind::kForward || cell.op.iteration.value == 0) continue;
          const int t = cell.op.iteration.value, j = cell.op.stage.value;
          const bool in_time = CompleteTick(n, k, t - 1, j) + given <= cell.tick;
          EXPECT_EQ(cell.op.version.value, in_time ? t : t - 1)
              << "N " << n << " k " << k << " slack " << slack << " worker " << cell.worker;
          EXPECT_TRUE(t < 2 || CompleteTick(n, k, t - 2, j) + 2 * k <= cell.tick)
              << "the older version has existed for T/N at least";
        }
      }
    }
  }
}

TEST(LockstepTest, AtMostTwoVersionsAreAlive) {
  for (const Rule rule : {Rule::kCdpV1, Rule::kCdpV2}) {
    for (int n = 1; n <= 16; ++n) {
      const Plan plan = EqualStages(n, n, rule, 0);
      std::map<std::pair<int, int>, int> last_read;  // (stage, version) -> end of its last read
      int end = 0;
      for (const GridCell& cell : LockstepGrid(plan, 4)) {
        // θ_{-1} and θ_0 are one value and may share one buffer.
        int& last = last_read[{cell.op.stage.value, std::max(cell.op.version.value, 0)}];
        last = std::max(last, cell.tick + 1);
        end = std::max(end, cell.tick + 1);
      }
      for (int j = 0; j < n; ++j) {
        for (int tick = 0; tick < end; ++tick) {
          int alive = 0;
          for (int version = 0; version <= 4; ++version) {
            const int made = version == 0 ? 0 : CompleteTick(n, 1, version - 1, j);
            alive += made <= tick && tick < last_read[{j, version}];
          }
          EXPECT_LE(alive, 2) << "N " << n << " stage " << j << " tick " << tick;
        }
      }
    }
  }
}

TEST(RuleTest, FreshWhereTheSumOfWorkerAndStageIsLargeEnough) {
  for (int n = 1; n <= 16; ++n) {
    for (int w = 0; w < n; ++w) {
      for (int j = 0; j < n; ++j) {
        const auto fresh = [&](Rule rule, int slack) {
          return ReadsFresh(EqualStages(n, n, rule, slack), WorkerId(w), StageId(j));
        };
        EXPECT_EQ(fresh(Rule::kCdpV2, 0), w + j >= n - 1) << "the paper's rule";
        EXPECT_EQ(fresh(Rule::kCdpV2, 1), w + j >= n);
        EXPECT_EQ(fresh(Rule::kCdpV2, 7), w + j >= n) << "slack beyond T/N gives nothing more";
        EXPECT_TRUE(fresh(Rule::kDp, 0));
        EXPECT_FALSE(fresh(Rule::kCdpV1, 0));
      }
    }
  }
}

TEST(RuleTest, OneWorkerIsPlainTrainingWithADelayPerRule) {
  for (int s = 1; s <= 6; ++s) {
    for (int slack = 0; slack <= s + 1; ++slack) {
      const Plan plan = EqualStages(1, s, Rule::kCdpV2, slack);
      for (int j = 0; j < s; ++j) {
        EXPECT_EQ(ReadsFresh(plan, WorkerId(0), StageId(j)), j >= slack)
            << "S " << s << " " << slack;
      }
    }
    EXPECT_FALSE(ReadsFresh(EqualStages(1, s, Rule::kCdpV1, 0), WorkerId(0), StageId(s - 1)));
  }
}

TEST(RuleTest, UnequalCostsDecideExactly) {
  // Two workers: fresh on worker 0 iff everything before the stage is at least half of a lap.
  Plan plan = EqualStages(2, 3, Rule::kCdpV2, 0);
  const int64_t huge = int64_t{1} << 60;  // products need 128 bits
  for (StagePlan& stage : plan.stages) stage.forward_cost = stage.backward_cost = 0;
  plan.stages[0].forward_cost = huge;
  plan.stages[2].backward_cost = huge;
  EXPECT_FALSE(ReadsFresh(plan, WorkerId(0), StageId(0)));
  EXPECT_TRUE(ReadsFresh(plan, WorkerId(0), StageId(1))) << "exactly half";
  plan.stages[2].backward_cost = huge + 1;
  EXPECT_FALSE(ReadsFresh(plan, WorkerId(0), StageId(1))) << "one less than half";
  EXPECT_TRUE(ReadsFresh(plan, WorkerId(1), StageId(0)));
}

TEST(RuleTest, BackwardsThatAreNotComputedCostNothing) {
  Plan plan = EqualStages(2, 4, Rule::kCdpV2, 0);
  plan.stages[0].has_backward = plan.stages[1].has_backward = false;
  plan.stages[0].sum_bytes = plan.stages[1].sum_bytes = 0;
  Plan without = plan;
  plan.stages[0].backward_cost = plan.stages[1].backward_cost = 1000;
  without.stages[0].backward_cost = without.stages[1].backward_cost = 0;
  for (int w = 0; w < 2; ++w) {
    for (int j = 0; j < 4; ++j) {
      EXPECT_EQ(ReadsFresh(plan, WorkerId(w), StageId(j)),
                ReadsFresh(without, WorkerId(w), StageId(j)));
    }
  }
  EXPECT_EQ(StaggerTokens(plan), StaggerTokens(without));
}

TEST(RuleTest, OnlyFirstLapsAreStaleAndFrozenStagesHaveOneLabel) {
  Plan plan = EqualStages(3, 3, Rule::kCdpV1, 0);
  plan.laps = 3;
  plan.stages[1].sum_bytes = 0;
  const auto read = [&](int w, int t, int l, int j) {
    return ReadVersion(plan, {WorkerId(w), Iteration(t), Lap(l)}, StageId(j)).value;
  };
  EXPECT_EQ(read(2, 0, 0, 0), -1);
  EXPECT_EQ(read(2, 5, 0, 0), 4);
  EXPECT_EQ(read(0, 5, 1, 0), 5);
  EXPECT_EQ(read(0, 5, 2, 2), 5);
  EXPECT_EQ(read(0, 5, 0, 1), 0);
  EXPECT_EQ(VersionAfter(plan, StageId(1), 7), Version(0));
  EXPECT_EQ(VersionAfter(plan, StageId(2), 7), Version(7));
}

TEST(FirstVersionsTest, AreThoseThatTheFirstIterationsReadAndTheRunDoesNotMake) {
  const auto labels = [](const char* words) {
    std::vector<std::string> texts;
    for (const Version v : FirstVersions(MakeTestPlan(Shape(words)), StageId(0))) {
      texts.push_back(LabelText(v));
    }
    return absl::StrJoin(texts, " ");
  };
  EXPECT_EQ(labels("2x2 cdp_v1"), "0") << "θ_{-1} is θ_0";
  EXPECT_EQ(labels("2x2 dp first_iteration=2"), "2");
  EXPECT_EQ(labels("2x2 cdp_v1 first_iteration=2"), "2 1");
  EXPECT_EQ(labels("2x2 cdp_v1 first_iteration=2 warmup_updates=2"), "2 1");
  EXPECT_EQ(labels("2x2 cdp_v1 first_iteration=2 warmup_updates=3"), "2");
  EXPECT_EQ(labels("2x2 cdp_v1 predict"), "0 p0 p1");
  EXPECT_EQ(labels("2x2 cdp_v1 predict first_iteration=2"), "2 p2 p3");
  EXPECT_EQ(labels("2x2 cdp_v1 predict first_iteration=2 warmup_updates=3"), "2 p3");
  EXPECT_EQ(labels("2x2 cdp_v1 predict first_iteration=2 warmup_updates=4"), "2");
}

TEST(StaleShareTest, IsTheClosedForm) {
  for (int n = 1; n <= 16; ++n) {
    for (int k = 1; k <= 4; ++k) {
      const int s = k * n;
      EXPECT_EQ(StaleShare(EqualStages(n, s, Rule::kDp, 0)), 0);
      EXPECT_EQ(StaleShare(EqualStages(n, s, Rule::kCdpV1, 0)), 1);
      // (N-1)/2N, and 1/S more at slack 1: both are whole numbers of pairs.
      const int pairs = n * s, stale = (n - 1) * s / 2;
      EXPECT_EQ(StaleShare(EqualStages(n, s, Rule::kCdpV2, 0)), double(stale) / pairs);
      EXPECT_EQ(StaleShare(EqualStages(n, s, Rule::kCdpV2, 1)), double(stale + n) / pairs);
    }
  }
  EXPECT_EQ(StaleShare(EqualStages(4, 4, Rule::kCdpV2, 1)), 0.625);
  Plan frozen = EqualStages(2, 4, Rule::kCdpV1, 0);
  frozen.stages[2].sum_bytes = 0;
  EXPECT_EQ(StaleShare(frozen), 0.75) << "a frozen stage has no other version";
}

// By counting what the programs send.
TEST(WireBytesTest, AreTheClosedFormForEveryRuleAndShape) {
  for (const PlanShape& shape : PairwiseShapes()) {
    Plan plan = MakeTestPlan(shape);
    plan.zero_stage = 3;
    plan.predict = false;  // where copies are held, a prediction is one more
    plan.warmup_updates = 0;
    const int n = plan.workers, s = plan.stage_count(), laps = plan.laps;
    SCOPED_TRACE(Describe(shape));
    int64_t parameters = 0, sums = 0, owned_elsewhere = 0, owned_between = 0, saved = 0;
    for (int j = 0; j < s; ++j) {
      const StagePlan& stage = plan.stages[j];
      parameters += stage.parameter_bytes;
      sums += stage.sum_bytes;
      if (stage.owner.value != n - 1) owned_elsewhere += stage.sum_bytes;
      if (stage.owner.value > 0 && stage.owner.value < n - 1) owned_between += stage.sum_bytes;
      if (!stage.has_backward || j >= s - plan.retain) saved += stage.parameter_bytes;
    }
    const int64_t wanted_parameters = laps * (n - 1) * (2 * parameters - saved);
    // In dp the sum of a lap goes to worker 0 by way of its owner.
    const bool ends_at_owners = plan.rule == Rule::kDp && plan.exchange && !plan.lends();
    const int64_t by_way = ends_at_owners ? (laps - 1) * owned_between : 0;
    const int64_t wanted_sums = (n * laps - 1) * sums + owned_elsewhere + by_way;
    Plan sharded = plan;
    int64_t trained = 0;
    for (const StagePlan& stage : plan.stages) {
      trained += stage.sum_bytes > 0 ? stage.parameter_bytes : 0;
    }
    for (sharded.zero_stage = 0; sharded.zero_stage < 3; ++sharded.zero_stage) {
      const WireBytes less = SteadyWireBytes(sharded);
      const bool spreads = sharded.zero_stage == 0;
      EXPECT_EQ(less.parameters, spreads ? 0 : (n - 1) * trained);
      const int64_t again = spreads ? (n - 1) * sums : owned_elsewhere + by_way;
      EXPECT_EQ(less.sums, n == 1 ? 0 : (n * laps - 1) * sums + again);
    }
    const WireBytes bytes = SteadyWireBytes(plan);
    if (n > 1) {
      EXPECT_EQ(bytes.parameters, wanted_parameters);
      EXPECT_EQ(bytes.sums, wanted_sums);
    } else {
      EXPECT_EQ(bytes.parameters + bytes.sums, 0);
    }
    WireBytes sent;
    for (const Program& program : ProgramsOf(plan)) {
      for (const Op& op : program.ops) {
        if (op.kind != OpKind::kSend || op.iteration.value != 1) continue;
        const bool copy = op.copy == Copy::kForward || op.copy == Copy::kBackward;
        if (copy && CarriesParameters(op.channel)) {
          sent.parameters += plan.stage(op.stage).parameter_bytes;
        }
        if (op.channel == Channel::kSum || op.channel == Channel::kRetire) {
          sent.sums += plan.stage(op.stage).sum_bytes;
        }
      }
    }
    EXPECT_EQ(sent.parameters, bytes.parameters);
    EXPECT_EQ(sent.sums, bytes.sums);
  }
}

TEST(SourceTest, FirstReaderOfANewVersionIsTheOwnerOrItsRightNeighbour) {
  for (int n = 2; n <= 16; ++n) {
    for (int slack = 0; slack <= 1; ++slack) {
      const Plan plan = EqualStages(n, n, Rule::kCdpV2, slack);
      Plan equal = plan;
      for (int j = 0; j < n; ++j) equal.stages[j].owner = WorkerId(n - 1 - j);
      for (int j = 0; j < n; ++j) {
        int first = 0;
        while (first < n && !ReadsFresh(equal, WorkerId(first), StageId(j))) ++first;
        const int owner = equal.stages[j].owner.value;
        // No worker in that iteration: worker 0 of the next one.
        EXPECT_TRUE(first % n == owner || first % n == (owner + 1) % n) << "N " << n << " j " << j;
      }
    }
  }
}

TEST(SourceTest, RelayedIfThePreviousMicroBatchReadsTheSameElseInjected) {
  Plan plan = EqualStages(3, 3, Rule::kCdpV2, 0);
  for (int j = 0; j < 3; ++j) plan.stages[j].owner = WorkerId(2 - j);
  const auto source = [&](int w, int t, int j) {
    return SourceOf(plan, {WorkerId(w), Iteration(t), Lap(0)}, StageId(j));
  };
  EXPECT_EQ(source(2, 4, 0).how, CopySource::How::kOwn);
  EXPECT_EQ(source(1, 4, 0).how, CopySource::How::kRelay);
  EXPECT_EQ(source(1, 4, 0).from, WorkerId(0));
  // Worker 0 reads θ_3 of stage 0, as worker 2 did in iteration 3 (fresh): relayed around the ring.
  EXPECT_EQ(source(0, 4, 0).how, CopySource::How::kRelay);
  EXPECT_EQ(source(0, 4, 0).from, WorkerId(2));
  // Stage 1 is first read fresh by its owner, worker 1; worker 2 has it from there.
  EXPECT_EQ(source(1, 4, 1).how, CopySource::How::kOwn);
  EXPECT_EQ(source(2, 4, 1).how, CopySource::How::kRelay);
  // The run's first micro-batch has none before it.
  EXPECT_EQ(source(0, 0, 0).how, CopySource::How::kInject);
  EXPECT_EQ(source(0, 0, 0).from, WorkerId(2));
}

TEST(PredictTest, EveryStaleReadIsOfAPredictionAndNothingElseChanges) {
  for (const Rule rule : {Rule::kCdpV1, Rule::kCdpV2}) {
    for (int slack = 0; slack <= 1; ++slack) {
      Plan plain = EqualStages(3, 3, rule, slack);
      plain.laps = 2;
      plain.stages[1].sum_bytes = 0;
      Plan plan = plain;
      plan.predict = true;
      int predicted = 0;
      for (std::optional<MicroBatch> m = MicroBatch{WorkerId(0), Iteration(0), Lap(0)}; m;
           m = NextMicroBatch(plan, *m)) {
        for (int j = 0; j < 3; ++j) {
          const Version v = ReadVersion(plain, *m, StageId(j));
          const bool stale = j != 1 && v.value < m->iteration.value;
          predicted += stale;
          EXPECT_EQ(ReadVersion(plan, *m, StageId(j)), stale ? Prediction(m->iteration.value) : v);
        }
      }
      EXPECT_GT(predicted, 0);
      EXPECT_EQ(StaleShare(plan), StaleShare(plain));
    }
  }
}

// The rule of relays: where the label changes, the owner injects.
TEST(PredictTest, BetweenPredictedAndFreshIsAnInjectionWhereARelayWas) {
  Plan plan = EqualStages(4, 4, Rule::kCdpV2, 0);
  for (int j = 0; j < 4; ++j) plan.stages[j].owner = WorkerId(1);
  const auto how = [&](int w, int j) {
    return SourceOf(plan, {WorkerId(w), Iteration(4), Lap(0)}, StageId(j)).how;
  };
  // Stage 1: workers 2 and 3 read fresh, worker 0 what worker 3 read in the iteration before.
  EXPECT_EQ(how(0, 1), CopySource::How::kRelay);
  EXPECT_EQ(how(2, 1), CopySource::How::kInject);
  plan.predict = true;
  EXPECT_EQ(how(0, 1), CopySource::How::kInject) << "a prediction is another label";
  EXPECT_EQ(how(1, 1), CopySource::How::kOwn);
  EXPECT_EQ(how(2, 1), CopySource::How::kInject);
  EXPECT_EQ(how(3, 1), CopySource::How::kRelay);
  // As many copies travel as without.
  Plan without = plan;
  without.predict = false;
  EXPECT_EQ(SteadyWireBytes(plan).parameters, SteadyWireBytes(without).parameters);
}

TEST(PredictTest, UpdatesWriteOverVersionAndPrediction) {
  Plan plan = EqualStages(3, 3, Rule::kCdpV2, 0);
  EXPECT_EQ(OverwrittenVersions(plan, Iteration(5)), std::vector<Version>{Version(4)});
  plan.predict = true;
  EXPECT_EQ(OverwrittenVersions(plan, Iteration(5)),
            (std::vector<Version>{Version(5), Prediction(5)}));
  EXPECT_FALSE(IsPredicted(plan, StageId(2))) << "every worker has it in time";
  plan.rule = Rule::kDp;
  EXPECT_FALSE(CheckPlan(plan).ok());
}

// Two buffers are enough for predictions: by the lockstep, the last read of one is over when the
// update that writes over it begins.
TEST(PredictTest, AtMostTwoPredictionsAndOneVersionAreAlive) {
  for (const Rule rule : {Rule::kCdpV1, Rule::kCdpV2}) {
    for (int n = 1; n <= 8; ++n) {
      Plan plan = EqualStages(n, n, rule, 0);
      plan.predict = true;
      for (const GridCell& cell : LockstepGrid(plan, 4)) {
        const int t = cell.op.iteration.value, j = cell.op.stage.value;
        for (const Version v : OverwrittenVersions(plan, Iteration(t))) {
          if (v != cell.op.version) continue;
          EXPECT_LT(cell.tick, CompleteTick(n, 1, t, j));
        }
        EXPECT_EQ(LabelNumber(cell.op.version), t);
      }
    }
  }
}

// Strict: every sum of iteration t, the last of them at the end of worker N-1's lap, is complete
// before the first forward that reads what any of them makes.
TEST(StrictTest, FreshReadsComeAfterAllSums) {
  for (int n = 1; n <= 16; ++n) {
    for (int s = 1; s <= 2 * n + 1; ++s) {
      Plan plan = MakeTestPlan({.workers = n,
                                .stages = s,
                                .rule = Rule::kCdpV2,
                                .slack = 0,
                                .costs = Costs::kRandom,
                                .seed = static_cast<uint64_t>(n * 100 + s),
                                .strict = true});
      int64_t lap = 0;
      for (const StagePlan& stage : plan.stages) lap += stage.forward_cost + stage.backward_cost;
      for (int w = 0; w < n; ++w) {
        int64_t forward = 0;  // of the stages before, all times N
        for (int j = 0; j < s; ++j) {
          const int64_t read = n * lap + w * lap + n * forward;
          const int64_t complete = n * lap + (n - 1) * lap;
          EXPECT_EQ(ReadsFresh(plan, WorkerId(w), StageId(j)), read >= complete);
          forward += plan.stages[j].forward_cost;
        }
      }
    }
  }
}

TEST(StrictTest, SharesOfFreshPairs) {
  const auto fresh = [](int n, int slack) {
    const PlanShape shape = Shape(absl::StrCat(n, "x", n, " strict backward_twice slack=", slack));
    return 100 - 100 * StaleShare(MakeTestPlan(shape));
  };
  EXPECT_NEAR(fresh(4, 0), 31, 0.5);
  EXPECT_NEAR(fresh(8, 0), 23, 0.5);
  EXPECT_NEAR(fresh(16, 0), 20, 0.5);
  EXPECT_NEAR(fresh(4, 1), 6, 0.5);
}

TEST(MicroBatchTest, NeighboursAreInverse) {
  const Plan plan = MakeTestPlan({.workers = 3, .stages = 3, .laps = 2, .iterations = 3});
  std::optional<MicroBatch> m = MicroBatch{WorkerId(0), Iteration(0), Lap(0)};
  EXPECT_FALSE(PreviousMicroBatch(plan, *m).has_value());
  int count = 0;
  for (std::optional<MicroBatch> next; m; m = next, ++count) {
    next = NextMicroBatch(plan, *m);
    EXPECT_EQ((m->iteration.value * 2 + m->lap.value) * 3 + m->worker.value, count);
    if (next) {
      EXPECT_EQ(PreviousMicroBatch(plan, *next), m);
    }
  }
  EXPECT_EQ(count, 3 * 2 * 3);
}

TEST(TokenTest, KeepOneNthOfALapBetweenNeighbours) {
  // Equal operations: T/N is 2k of them. Operation p begins when p + 2k - 1 is over, of this lap or
  // of the one that follows.
  for (int n = 2; n <= 16; ++n) {
    for (const int k : {1, 3}) {
      const int operations = 2 * k * n;
      const std::vector<StaggerToken> tokens =
          StaggerTokens(EqualStages(n, k * n, Rule::kCdpV1, 0));
      ASSERT_EQ(tokens.size(), operations);
      for (int p = 0; p < operations; ++p) {
        const int after = p + 2 * k - 1;
        EXPECT_EQ(tokens[p], (StaggerToken{after % operations, after >= operations, p}));
      }
    }
  }
}

TEST(TokenTest, FollowTheCosts) {
  Plan plan = EqualStages(2, 2, Rule::kCdpV1, 0);
  for (StagePlan& stage : plan.stages) stage.backward_cost = 2 * stage.forward_cost;
  // F0 F1 B1 B0 end at 1, 2, 4, 6 (then 7, 8, …) and begin at 0, 1, 2, 4: three units later are 3,
  // 4, 5 and 7.
  EXPECT_EQ(StaggerTokens(plan),
            (std::vector<StaggerToken>{{1, false, 0}, {2, false, 1}, {0, true, 3}}));
  plan.stages[0].forward_cost *= 100;
  EXPECT_EQ(StaggerTokens(plan), (std::vector<StaggerToken>{{0, false, 0}, {3, false, 1}}))
      << "at least the first operation, and no later lap";
}

TEST(EvaluationTest, EveryEthVersionAndTheLast) {
  Plan plan = MakeTestPlan({.workers = 2, .stages = 2, .iterations = 7, .evaluate_every = 3});
  for (int v = 0; v <= 8; ++v) {
    EXPECT_EQ(IsEvaluated(plan, Version(v)), v == 3 || v == 6 || v == 7) << v;
  }
  plan.evaluation.every = 0;
  for (int v = 0; v <= 8; ++v) EXPECT_FALSE(IsEvaluated(plan, Version(v))) << v;
  plan.evaluation.versions = {2, 7, 8};
  for (int v = 0; v <= 8; ++v) EXPECT_EQ(IsEvaluated(plan, Version(v)), v == 2 || v == 7) << v;
}

}  // namespace
}  // namespace ringzero
