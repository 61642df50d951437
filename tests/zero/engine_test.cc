// The engine gives the bits of one sequential loop, whatever the shape, the rule and the timing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "p2p/ucx/ucx_transport.h"
#include "sharding/check/verify.h"
#include "sharding/memory/block_table.h"
#include "sharding/op.h"
#include "sharding/rules/schedule.h"
#include "tests/support/commit_seed.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/expect_toy_bits.h"
#include "tests/zero/toy_ring.h"

namespace ringzero {
namespace {

using testing::HasSubstr;

constexpr std::chrono::microseconds kMaxDelay(300);

TEST(EngineTest, OneWorkerTrains) { ExpectReferenceBits({.workers = 1, .stages = 2}); }

TEST(EngineTest, TwoWorkersTrain) { ExpectReferenceBits({.workers = 2, .stages = 2}); }

TEST(EngineTest, ChecksumsHoldInEveryStageOfZero) {
  for (int zero_stage = 0; zero_stage <= 3; ++zero_stage) {
    ToyOptions o{.workers = 3, .stages = 4, .iterations = 4, .rule = Rule::kCdpV2};
    o.zero_stage = zero_stage;
    ExpectReferenceBits(o, Checksummed(ShmTransports()));
  }
}

TEST(EngineTest, BitsOverShapesAndRules) {
  const bool full = std::getenv("RINGZERO_TEST_FULL") != nullptr;
  std::mt19937 random(7);
  int runs = 0;
  for (int n = 1; n <= 5; ++n) {
    for (const int s : {1, 2, n, 2 * n, 2 * n + 1}) {
      for (const int k : {1, 3}) {
        for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
          // Each slack with each stage of ZeRO.
          for (int i = 0; i < 12; ++i) {
            const int slack = i / 4;
            if (rule != Rule::kCdpV2 && slack > 0) continue;
            if (!full && random() % 12 != 0) continue;
            ToyOptions o{.workers = n, .stages = s, .laps = k, .rule = rule, .slack = slack};
            o.zero_stage = i % 4;
            DrawTheRest(random, o);
            o.predict = rule != Rule::kDp && i % 2 == 0;
            const uint64_t how = random() % 6;
            MakeTransports transports = TransportsOfRun(int(how));
            if (runs % 8 == 7 && !UcxVersion().empty()) transports = UcxTransports();
            if (how / 3 == 0) transports = Delayed(transports, random(), kMaxDelay);
            ExpectReferenceBits(o, transports);
            ++runs;
          }
        }
      }
    }
  }
  EXPECT_GT(runs, 40);
}

// With a lane for each pair that the plan says sends payload, and for no other.
TEST(EngineTest, BitsOverTheLanesThatThePlanNeeds) {
  std::mt19937 random(11);
  for (int n = 2; n <= 5; ++n) {
    for (const int s : {n, 2 * n + 1}) {
      for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
        ToyOptions o{.workers = n, .stages = s, .laps = 1 + int(random() % 2), .rule = rule};
        o.zero_stage = (n + s) % 4;
        o.stagger = rule != Rule::kDp && random() % 2 == 0;
        if (rule != Rule::kDp) o.warmup_updates = int(random() % 3);
        o.tied = random() % 2 == 0;
        if (random() % 2 == 0) o.evaluation = {.every = 2, .laps = 2};
        if (random() % 2 == 0) o.collection = {.every = 2, .worker = WorkerId(int(random() % n))};
        RZ_ASSIGN(const auto pairs, PayloadPairs(ToyPlan(o)));
        ExpectReferenceBits(o, LaneTransportsOf(pairs, {static_cast<uint8_t>(Channel::kToken)}));
      }
    }
  }
}

// Workers of one host lend, and those at its ends send and receive.
TEST(EngineTest, BitsOverTwoHosts) {
  if (UcxVersion().empty()) GTEST_SKIP() << "this program was built without UCX";
  std::mt19937 random(17);
  for (const int n : {4, 5}) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      for (const int laps : {1, 2}) {
        ToyOptions o{.workers = n, .stages = n + int(random() % 3), .laps = laps, .rule = rule};
        o.hosts = {(n + 1) / 2, n / 2};
        o.zero_stage = laps == 1 ? 3 : int(random() % 4);
        o.tied = random() % 2 == 0;
        o.retain = int(random() % 2);
        if (random() % 2 == 0) {
          o.clipping = Clipping::kExact;
          o.optimizer.max_norm = 0.2;
        }
        o.evaluation = {.every = 2, .laps = 2};
        o.collection = {.every = 3, .worker = WorkerId(int(random() % n))};
        ExpectReferenceBitsOn(o, MixedTransports(2));
      }
    }
  }
}

// An end, evaluations and collections that worker 0 asks for while the run goes on.
TEST(EngineTest, Requests) {
  std::mt19937 random(19);
  int run = 0;
  for (const int n : {1, 2, 3, 5}) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      for (const int laps : {1, 2, 3}) {
        ToyOptions o{.workers = n, .stages = n + int(random() % 3), .laps = laps, .rule = rule};
        o.iterations = 14;
        o.zero_stage = 3 - int(random() % 4) * int(random() % 2);
        o.tied = random() % 3 == 0;
        o.evaluation = {.every = int(random() % 2) * 4, .laps = 1 + int(random() % 2)};
        o.collection = {.worker = WorkerId(int(random() % n)),
                        .on_request = true,
                        .parameters_only = random() % 3 == 0};
        o.warmup_updates = rule == Rule::kDp ? 0 : int(random() % 3) * 4;
        o.gradient_norms = true;
        o.first_iteration = random() % 3 == 0 ? 2 : 0;
        o.predict = rule != Rule::kDp && random() % 2 == 0;
        const int first = o.first_iteration, lap = int(random() % unsigned(laps));
        o.requests = {{first + int(random() % 4), Request::kEvaluation, lap},
                      {first + int(random() % 4), Request::kCollection, 0},
                      {first + 4 + int(random() % 4), Request::kEnd, laps - 1}};
        o.iterations += first;
        ++run;
        std::string asked;
        for (const ToyRequest& each : o.requests) {
          absl::StrAppend(&asked, " ", each.iteration, ".", each.lap);
        }
        SCOPED_TRACE(absl::StrCat("asked in", asked));
        ExpectReferenceBits(o, Delayed(TransportsOfRun(run), run, kMaxDelay));
      }
    }
  }
}

// The fewest iterations in which a request can be met.
TEST(EngineTest, RequestsInShortRuns) {
  for (const int n : {1, 2, 3}) {
    for (const int laps : {1, 2}) {
      for (const int iterations : {4, 5}) {
        for (const Request request : {Request::kEvaluation, Request::kCollection}) {
          ToyOptions o{.workers = n, .laps = laps, .iterations = iterations};
          o.evaluation.laps = 2;
          o.collection = {.worker = WorkerId(n - 1), .on_request = true};
          o.requests = {{0, request}};
          ExpectReferenceBits(o, TransportsOfRun(laps));
        }
      }
    }
  }
}

// Asked twice before anybody has heard of it: the second answer knows the first.
TEST(EngineTest, ARequestIsKnownBeforeItIsFolded) {
  for (int seed = 0; seed < 5; ++seed) {
    ToyOptions o{.workers = 3, .iterations = 12};
    o.evaluation.laps = 1;
    o.requests = {{0, Request::kEnd}, {1, Request::kEvaluation}};
    const auto ring = RunToyRing(o, Delayed(LocalTransports(), seed, 20 * kMaxDelay));
    EXPECT_THAT(ring, Says(HasSubstr("the run ends with version 4")));
  }
}

TEST(EngineTest, RequestsThatCannotBeMet) {
  ToyOptions o{.workers = 2, .iterations = 6};
  const auto answer = [&](const ToyRequest& asked) {
    o.requests = {asked};
    return std::string(RunToyRing(o, LocalTransports()).status().message());
  };
  EXPECT_THAT(answer({2, Request::kEvaluation}), HasSubstr("plan.evaluation.laps is 0"));
  EXPECT_THAT(answer({2, Request::kCollection}), HasSubstr("on_request is false"));
  o.evaluation.laps = 1;
  EXPECT_EQ(answer({2, Request::kEvaluation}), "");
  EXPECT_THAT(answer({3, Request::kEvaluation}),
              HasSubstr("version 7 is the next that can be asked for, but the run ends with "
                        "version 6"));
}

// What one worker is shown is the sequential loop's, and being shown it changes no bit. Every day
// each case has one worker that is shown it, another one for each commit.
TEST(EngineTest, CollectionsShowTheReferenceAndChangeNothing) {
  const bool full = std::getenv("RINGZERO_TEST_FULL") != nullptr;
  std::mt19937_64 random(CommitSeed());
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const auto type : {OptimizerOptions::Type::kAdamW, OptimizerOptions::Type::kSgd}) {
      ToyOptions o{.workers = 3, .stages = 6, .laps = 2, .iterations = 7, .rule = rule};
      o.optimizer.type = type;
      o.zero_stage = type == OptimizerOptions::Type::kSgd ? 3 : static_cast<int>(rule);
      o.frozen_prefix = 1;
      o.evaluation = {.every = 3, .laps = 1};
      RZ_ASSIGN(const ToyResult plain, RunToyRing(o, LocalTransports()));
      for (const CollectionPlan& when :
           {CollectionPlan{.every = 1}, CollectionPlan{.every = 3, .versions = {7}},
            CollectionPlan{.versions = {1, 2, 5}}}) {
        const int drawn = int(random() % o.workers);
        for (int worker = 0; worker < o.workers; ++worker) {
          if (!full && worker != drawn) continue;
          o.collection = when;
          o.collection.worker = WorkerId(worker);
          ExpectReferenceBits(o, Delayed(ShmTransports(), 3 * worker + when.every, kMaxDelay));
          RZ_ASSIGN(const ToyResult shown, RunToyRing(o, LocalTransports()));
          EXPECT_FALSE(shown.collected.empty());
          EXPECT_EQ(shown.parameters, plain.parameters);
          EXPECT_EQ(shown.losses, plain.losses);
          EXPECT_EQ(shown.evaluations, plain.evaluations);
          EXPECT_EQ(shown.parameter_bytes_sent, plain.parameter_bytes_sent);
          EXPECT_EQ(shown.sum_bytes_sent, plain.sum_bytes_sent);
        }
      }
      o.collection = {};
    }
  }
}

// Numbers of samples that an epoch's last batch can have: from one to one less than all.
TEST(EngineTest, IncompleteBatches) {
  const bool full = std::getenv("RINGZERO_TEST_FULL") != nullptr;
  constexpr int kFull = 2;
  std::mt19937 random(5);
  for (const int n : {1, 2, 3}) {
    for (const int k : {1, 3}) {
      for (int rest = 1; rest < n * k * kFull; ++rest) {
        for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
          if (!full && random() % 3 != 0) continue;
          ToyOptions o{.workers = n, .stages = n + 1, .laps = k, .iterations = 5, .rule = rule};
          o.zero_stage = static_cast<int>(random() % 4);
          DrawTheRest(random, o);
          // One complete batch, or none, before it.
          const int64_t complete = random() % 3 == 0 ? 0 : n * k * kFull;
          o.samples = {.per_epoch = complete + rest, .micro_batch = kFull};
          SCOPED_TRACE(absl::StrCat("rest ", rest, " after ", complete));
          ExpectReferenceBits(o, random() % 2 == 0 ? LocalTransports()
                                                   : Delayed(ShmTransports(), random(), kMaxDelay));
        }
      }
    }
  }
}

TEST(EngineTest, CompleteBatchesGiveTheBitsOfUncountedOnes) {
  ToyOptions o{.workers = 3, .stages = 4, .laps = 2};
  RZ_ASSIGN(const ToyResult uncounted, RunToyRing(o, LocalTransports()));
  o.samples = {.per_epoch = 2 * 3 * 2 * 7, .micro_batch = 7};
  RZ_ASSIGN(const ToyResult counted, RunToyRing(o, LocalTransports()));
  EXPECT_EQ(counted.parameters, uncounted.parameters);
  EXPECT_EQ(counted.statistics, uncounted.statistics);
}

// The engine of one worker, with samples for its first micro-batch only.
TEST(EngineTest, MissingMicroBatchesAreSkipped) {
  ToyOptions o{.workers = 1, .stages = 2, .laps = 2, .iterations = 1};
  o.samples = {.per_epoch = 3, .micro_batch = 4};
  Plan plan = ToyPlan(o);
  plan.window = 2;
  EngineOptions options{.plan = plan, .layouts = ToyLayouts(o)};
  options.metrics_count = 1;
  RZ_ASSIGN(std::unique_ptr<Engine> engine, Engine::Create(std::move(options)));
  EXPECT_EQ(engine->NextLap()->samples, 3);
  const absl::Status refused = engine->SkipMicroBatch({0});
  EXPECT_THAT(refused, Fails(absl::StatusCode::kFailedPrecondition, "is not missing"));
  for (int j = 0; j < 2; ++j) {
    ASSERT_TRUE(engine->BeginForward(StageId(j)).ok());
    Buffer statistics = MakeHeapBuffer(ToyLayouts(o)[j].statistics_bytes);
    ASSERT_TRUE(engine->EndForward(StageId(j), std::move(statistics)).ok());
  }
  for (int j = 1; j >= 0; --j) {
    ASSERT_TRUE(engine->BeginBackward(StageId(j)).ok());
    // It is weighted, and so handed over.
    EXPECT_EQ(engine->OpenSum(StageId(j)), nullptr);
    ASSERT_TRUE(engine->EndBackward(StageId(j), {}).ok());
  }
  ASSERT_TRUE(engine->EndMicroBatch({1}).ok());
  EXPECT_TRUE(engine->NextLap()->missing());
  for (int j = 0; j < 2; ++j) {
    ASSERT_TRUE(engine->BeginForward(StageId(j)).ok());
    ASSERT_TRUE(engine->EndForward(StageId(j), Buffer()).ok());
  }
  ASSERT_TRUE(engine->BeginBackward(StageId(1)).ok());
  const std::vector<float> values(5);
  const absl::Status added = engine->EndBackward(StageId(1), {{0, values.data(), nullptr}});
  EXPECT_THAT(added, Fails(absl::StatusCode::kInvalidArgument, "has no samples"));
}

TEST(EngineTest, AWindowLargerThanNeededGivesTheSameBits) {
  ExpectReferenceBits({.workers = 3, .stages = 6, .window = 64});
}

ToyOptions Predicting(Rule rule, int slack, int laps) {
  ToyOptions o{.laps = laps, .iterations = 6, .rule = rule, .slack = slack, .predict = true};
  o.optimizer.type = OptimizerOptions::Type::kSgd;
  o.optimizer.learning_rate = 0.05;
  o.optimizer.sgd.momentum = 0.9;
  return o;
}

TEST(EngineTest, PredictionsGiveTheReferencesBits) {
  int runs = 0;
  for (const auto& [rule, slack] :
       {std::pair(Rule::kCdpV1, 0), std::pair(Rule::kCdpV2, 0), std::pair(Rule::kCdpV2, 1)}) {
    for (const int laps : {1, 2}) {
      for (const int n : {1, 2, 3, 4}) {
        for (const int s : {1, n, 2 * n + 1}) {
          ToyOptions o = Predicting(rule, slack, laps);
          o.workers = n;
          o.stages = s;
          o.zero_stage = 3 - ++runs % 4;
          o.tied = s > 1 && runs % 3 == 0;
          o.frozen_prefix = s > 1 && runs % 5 == 0 && !o.tied ? 1 : 0;
          o.stagger = runs % 2 == 0;
          o.warmup_updates = runs % 5;
          if (runs % 3 == 1) o.evaluation = {.every = 2, .laps = 2};
          if (runs % 4 == 1) o.collection = {.every = 2, .worker = WorkerId(n - 1)};
          const MakeTransports transports = runs % 2 == 0 ? LocalTransports() : ShmTransports();
          ExpectReferenceBits(o, Delayed(transports, runs, kMaxDelay));
        }
      }
    }
  }
}

// The rule begins with any iteration, evaluated or not; the reference switches there, too.
TEST(EngineTest, AWarmupIsOfDp) {
  int runs = 0;
  for (const Rule rule : {Rule::kCdpV1, Rule::kCdpV2}) {
    for (const int n : {1, 2, 3}) {
      ToyOptions o{.workers = n, .stages = n + 1, .laps = 1 + n % 2, .iterations = 5, .rule = rule};
      o.zero_stage = n;
      o.evaluation = {.every = 2, .laps = 1};
      o.collection = {.every = 2};
      std::set<std::vector<float>> results;
      for (o.warmup_updates = 0; o.warmup_updates <= o.iterations; ++o.warmup_updates) {
        o.stagger = ++runs % 2 == 0;
        ExpectReferenceBits(o, Delayed(TransportsOfRun(runs), runs, kMaxDelay));
        results.insert(RunToyReference(o).parameters);
      }
      EXPECT_EQ(results.size(), 5u) << "each leads elsewhere, but for 0 and 1: θ_{-1} is θ_0";
      o.rule = Rule::kDp;
      o.warmup_updates = 0;
      EXPECT_TRUE(results.contains(RunToyReference(o).parameters)) << "of all iterations: dp";
    }
  }
}

// With what a run has there it goes on with the same bits.
TEST(EngineTest, ARunBeginsWithAnyVersion) {
  int runs = 0;
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const bool predict : {false, true}) {
      if (predict && rule == Rule::kDp) continue;
      for (int first = 1; first < 6; ++first) {
        ToyOptions o = Predicting(rule, 1, 1 + first % 2);
        o.predict = predict;
        o.workers = 1 + ++runs % 3;
        o.stages = 4;
        o.zero_stage = runs % 4;
        o.iterations = 6;
        o.evaluation = {.every = 2, .laps = 1};
        o.collection = {.every = 2};
        o.warmup_updates = rule == Rule::kDp ? 0 : runs % 5;
        o.clipping = first % 2 == 0 ? Clipping::kPrevious : Clipping::kOff;
        o.optimizer.max_norm = first % 2 == 0 ? 0.02 : 0;
        RZ_ASSIGN(const ToyResult whole, RunToyRing(o, LocalTransports()));
        o.first_iteration = first;
        ExpectReferenceBits(o, TransportsOfRun(runs));
        RZ_ASSIGN(const ToyResult rest, RunToyRing(o, ShmTransports()));
        EXPECT_EQ(rest.parameters, whole.parameters);
        EXPECT_EQ(rest.statistics, whole.statistics);
        EXPECT_EQ(rest.losses,
                  std::vector<double>(whole.losses.begin() + first, whole.losses.end()));
      }
    }
  }
}

TEST(EngineTest, ARunThatBeginsLaterSaysWhatItMisses) {
  ToyOptions o{.workers = 1, .stages = 1, .iterations = 3, .first_iteration = 2};
  EngineOptions options{.plan = ToyPlan(o), .layouts = ToyLayouts(o), .optimizer = o.optimizer};
  options.plan.window = 2;
  EXPECT_THAT(Engine::Create(std::move(options)),
              Says("begins with iteration 2: beginning needs the optimizer's state"));
}

TEST(EngineTest, PredictionsChangeWhatIsLearned) {
  ToyOptions o = Predicting(Rule::kCdpV2, 1, 1);
  o.workers = o.stages = 3;
  const ToyResult with = RunToyReference(o);
  o.predict = false;
  EXPECT_NE(with.parameters, RunToyReference(o).parameters);
}

// With one stage the toy is a quadratic of curvature 0.1. A rate of 1.8 is 0.18 of it: beyond what
// a pure delay bears at this momentum (1 - 0.9), within what its prediction does (0.25).
TEST(EngineTest, PredictionsAreStableAtRatesWhereADelayIsNot) {
  ToyOptions o = Predicting(Rule::kCdpV1, 0, 1);
  o.workers = 2;
  o.stages = 1;
  o.iterations = 300;
  o.optimizer.learning_rate = 1.8;
  for (const bool predict : {false, true}) {
    o.predict = predict;
    RZ_ASSIGN(const ToyResult ring, RunToyRing(o, LocalTransports()));
    const float largest =
        std::abs(*std::max_element(ring.parameters.begin(), ring.parameters.end(),
                                   [](float a, float b) { return std::abs(a) < std::abs(b); }));
    if (predict) {
      EXPECT_LT(largest, 50);
    } else {
      EXPECT_GT(largest, 1e4);
    }
  }
}

TEST(EngineTest, EveryOptimizerPredicts) {
  using Type = OptimizerOptions::Type;
  int runs = 0;
  for (const Type type : {Type::kSgd, Type::kAdamW, Type::kAdam, Type::kLion, Type::kAdagrad,
                          Type::kLamb, Type::kMuon}) {
    for (const ValueType wire : {ValueType::kFp32, ValueType::kBf16, ValueType::kFp16}) {
      ToyOptions o = Predicting(runs % 2 == 0 ? Rule::kCdpV1 : Rule::kCdpV2, 1, 1 + runs % 3);
      o.optimizer.type = type;
      o.optimizer.learning_rate = 0.01;
      if (runs % 4 == 3) o.optimizer.prediction_factor = 0.5;
      o.workers = 1 + ++runs % 4;
      o.stages = o.workers + runs % 3;
      o.zero_stage = runs % 4;
      o.iterations = 7;
      o.warmup_updates = runs % 5;
      o.precision.compute = wire;
      if (wire == ValueType::kFp16) {
        o.precision.skip_overflows = true;
        o.overflows = {{Iteration(1 + runs % 3), StageId(0), 0}, {Iteration(5), StageId(0), 0}};
        o.precision.loss_scale = {.initial = 64, .dynamic = true, .window = 2};
      }
      if (runs % 3 == 0) {
        o.clipping = wire == ValueType::kFp16 ? Clipping::kExact : Clipping::kPrevious;
        o.optimizer.max_norm = 0.2;
      }
      o.evaluation = {.every = 2, .laps = 1};
      o.collection = {.every = 3};
      ExpectReferenceBits(o, Delayed(TransportsOfRun(runs), runs, kMaxDelay));
    }
  }
}

TEST(EngineTest, DpDoesNotDependOnTheNumberOfWorkersNorOnWhatIsSharded) {
  ToyOptions o{.stages = 4, .rule = Rule::kDp, .evaluation = {.every = 2, .laps = 1}};
  std::vector<ToyResult> results;
  for (const int n : {1, 2, 4}) {
    o.workers = n;
    o.laps = 4 / n;
    o.evaluation.laps = 4 / n;
    for (o.zero_stage = 0; o.zero_stage <= 3; ++o.zero_stage) {
      RZ_ASSIGN(const ToyResult ring, RunToyRing(o, LocalTransports()));
      results.push_back(ring);
    }
  }
  for (const ToyResult& result : results) EXPECT_EQ(result, results[0]);
}

TEST(EngineTest, TwiceTheSame) {
  const ToyOptions o{.workers = 4, .stages = 8, .iterations = 6};
  RZ_ASSIGN(const ToyResult first, RunToyRing(o, LocalTransports()));
  RZ_ASSIGN(const ToyResult second, RunToyRing(o, LocalTransports()));
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace ringzero
