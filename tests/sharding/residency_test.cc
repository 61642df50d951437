// Versions in files: slots are chosen so that loads are as few as can be, and whatever computes
// finds its version in a slot.
#include "sharding/program/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sharding/program/operands.h"
#include "tests/sharding/test_plans.h"

namespace ringzero {
namespace {

// --- slots alone -----------------------------------------------------------------------------------
// Two versions of each of a few stages.
StageVersion Page(int page) { return {StageId(page / 2), Version(page % 2)}; }

// Slots, and what is in them by what they said.
class WatchedSlots {
 public:
  explicit WatchedSlots(int slots) : slots_(slots), holds_(static_cast<size_t>(slots)) {}

  // Whether it has to be loaded.
  bool Loads(std::span<const StageVersion> upcoming) {
    const auto [slot, is_there] = slots_.Touch(upcoming);
    EXPECT_EQ(is_there, std::ranges::count(holds_, std::optional(upcoming[0])) == 1);
    if (is_there) {
      EXPECT_EQ(holds_.at(slot), upcoming[0]);
    } else {
      EXPECT_NE(slot, last_) << "what was read just before is still used";
    }
    holds_.at(slot) = upcoming[0];
    last_ = slot;
    return !is_there;
  }

 private:
  FurthestSlots slots_;
  std::vector<std::optional<StageVersion>> holds_;
  int last_ = -1;
};

// The fewest loads of all choices that keep what was read just before. Of four pages.
int FewestLoads(const std::vector<int>& trace, int slots) {
  std::vector<int> fewest(16, 1000);  // by the set of pages that are there
  fewest[0] = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    std::vector<int> next(16, 1000);
    const unsigned page = 1u << trace[i], kept = i > 0 ? 1u << trace[i - 1] : 0;
    for (unsigned there = 0; there < 16; ++there) {
      const auto reach = [&](unsigned set, int loads) {
        next[set] = std::min(next[set], fewest[there] + loads);
      };
      if ((there & page) != 0) {
        reach(there, 0);
        continue;
      }
      if (std::popcount(there) < slots) reach(there | page, 1);
      for (const unsigned out : {1u, 2u, 4u, 8u}) {
        if ((there & out & ~kept) != 0) reach((there & ~out) | page, 1);
      }
    }
    fewest = next;
  }
  return *std::ranges::min_element(fewest);
}

// Up to the names of pages, all traces of up to `most` reads of up to `pages` pages.
void ForEachTrace(int most, int pages, const std::function<void(const std::vector<int>&)>& see,
                  std::vector<int> trace = {}) {
  if (!trace.empty()) see(trace);
  if (std::ssize(trace) == most || testing::Test::HasFailure()) return;
  const int seen = trace.empty() ? 0 : *std::ranges::max_element(trace) + 1;
  trace.push_back(0);
  for (int page = 0; page <= std::min(seen, pages - 1); ++page) {
    trace.back() = page;
    ForEachTrace(most, pages, see, trace);
  }
}

TEST(FurthestSlotsTest, LoadAsSeldomAsCanBe) {
  int traces = 0;
  ForEachTrace(10, 4, [&](const std::vector<int>& trace) {
    ++traces;
    std::vector<StageVersion> reads;
    for (const int page : trace) reads.push_back(Page(page));
    for (const int slots : {2, 3}) {
      WatchedSlots watched(slots);
      int loads = 0;
      for (size_t i = 0; i < reads.size(); ++i) {
        if (watched.Loads(std::span(reads).subspan(i))) ++loads;
      }
      EXPECT_EQ(loads, FewestLoads(trace, slots))
          << slots << " slots, " << testing::PrintToString(trace);
    }
  });
  EXPECT_GT(traces, 50000);
}

TEST(FurthestSlotsTest, WhatIsNotLookedAtCostsNoMoreThanLoads) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    const int slots = 2 + round % 3, pages = 2 + static_cast<int>(random() % 7);
    std::vector<StageVersion> reads;
    for (int i = 0; i < 60; ++i) reads.push_back(Page(static_cast<int>(random() % pages)));
    WatchedSlots watched(slots);
    for (size_t i = 0; i < reads.size(); ++i) {
      const size_t ahead = std::min<size_t>(1 + random() % (1 + round % 12), reads.size() - i);
      watched.Loads(std::span(reads).subspan(i, ahead));
    }
    if (HasFailure()) return;
  }
}

// --- programs ----------------------------------------------------------------------------------------
// All stages in files that may be.
Plan FiledPlan(const std::string& words, int slots) {
  Plan plan = MakeTestPlan(Shape(words));
  plan.resident_slots = slots;
  for (int j = 0; j < plan.stage_count(); ++j) {
    plan.stages[j].streams_parameters = plan.parameters_may_stream(StageId(j));
  }
  return plan;
}

// Loads that move something, by iteration and lap; those of updates are lap -1, of what is shown -2.
std::map<std::pair<int, int>, int> LoadsOf(const Plan& plan) {
  std::map<std::pair<int, int>, int> loads;
  const std::vector<Program> programs = ProgramsOf(plan);
  for (const Instruction& op : programs[0].ops) {
    if (op.kind != OpKind::kLoad || op.uses[1].how != How::kWrite) continue;
    const bool shown = op.copy == Copy::kEvaluation || op.copy == Copy::kCollection;
    ++loads[{op.iteration.value, op.copy == Copy::kNone ? -1 : shown ? -2 : op.lap.value}];
  }
  return loads;
}

// S stages of a lone worker, c slots, c < S. A lap reads F0 .. F(S-1) B(S-1) .. B0. On the way up
// what is read last of all is the lowest number, so at the turn the last c are there: of the S loads
// on the way down c fall away. If the next lap reads the same versions, then on the way down the
// highest numbers are read last, so at its end the first c are there: c loads of the next way up
// fall away, too.
//   new versions: S + (S - c) = 2S - c        the same: (S - c) + (S - c) = 2(S - c)
// An iteration of K laps has new versions in one of them, so it loads 2S - c + (K-1) 2(S - c): in dp
// lap 0. In cdp_v1 lap 0 reads θ_{t-1} as the last laps of the iteration before, and lap 1 θ_t; a
// single lap reads θ_{t-1}, which is θ_0 in iterations 0 and 1. The lock costs nothing: what was
// read just before is never what is read last. An update in fp32 loads what it starts from, and the
// result is shown stage by stage.
TEST(ResidencyTest, ALapLoadsWhatItMust) {
  for (const std::string rule : {"dp", "cdp_v1", "cdp_v1 masters", "dp masters"}) {
    for (int number = 0; number < 12; ++number) {
      const int laps = 1 + number % 3, stages = 4 + number / 3 % 2 * 2, slots = 2 + number / 6;
      const std::string words = absl::StrCat("1x", stages, " ", rule, " laps=", laps);
      const Plan plan = FiledPlan(words, slots);
      const bool dp = plan.rule == Rule::kDp, apart = plan.stages[0].master_bytes > 0;
      std::map<std::pair<int, int>, int> wanted;
      for (int t = 0; t < plan.iterations; ++t) {
        const int renewed = dp || laps == 1 ? 0 : 1;  // the lap that reads new versions
        for (int l = 0; l < laps; ++l) {
          const bool first = t == 0 && l == 0, again = !dp && t <= 1 - renewed;
          const bool is_new = first || (l == renewed && !again);
          wanted[{t, l}] = is_new ? 2 * stages - slots : 2 * (stages - slots);
        }
        if (!apart) wanted[{t, -1}] = stages;
      }
      if (!apart) wanted[{plan.iterations, -2}] = stages;
      EXPECT_EQ(LoadsOf(plan), wanted) << words << ", slots " << slots;
    }
  }
}

// Laps on the way up alone are where it counts to look ahead. In dp θ_t is evaluated before the lap
// that trains on it, and nothing is read of what was there before.
TEST(ResidencyTest, EvaluationsLoadAsSeldomAsCanBe) {
  const std::vector<int> up_thrice = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
  std::vector<int> trains = up_thrice, shows = up_thrice;
  for (const int page : {0, 1, 2, 3, 3, 2, 1, 0}) trains.push_back(page);
  for (const int page : {0, 1, 2, 3}) shows.push_back(page);
  for (const int slots : {2, 3}) {
    auto loads = LoadsOf(FiledPlan("1x4 dp evaluate=1 evaluation_laps=3", slots));
    for (const int t : {1, 2, 3}) {
      EXPECT_EQ((loads[{t, -2}] + loads[{t, 0}]), FewestLoads(trains, slots)) << t;
    }
    EXPECT_EQ((loads[{4, -2}]), FewestLoads(shows, slots));
  }
}

std::vector<Plan> FiledPlans() {
  std::vector<Plan> plans = {
      FiledPlan("1x5 cdp_v2 laps=2 evaluate=1 collect=1 statistics", 2),
      FiledPlan("3x7 cdp_v1 one_host evaluate=2 evaluation_laps=2 collect=2 collector=1", 3),
      FiledPlan("4x8 dp laps=2 one_host clip_exact save=2 tied retain=3", 2),
      FiledPlan("2x6 cdp_v2 one_host skip_overflows first_iteration=2 iterations=6 masters", 2),
      FiledPlan("3x5 cdp_v1 one_host streams owners_last warmup_updates=2 iterations=5", 2)};
  for (const PlanShape& shape : PairwiseShapes()) plans.push_back(MakeTestPlan(shape));
  std::erase_if(plans, [](const Plan& plan) { return !plan.any_streams_parameters(); });
  return plans;
}

// A Load stands right before what reads it, an update's in a slot of its own; and nothing else but
// an Unload, a Save and a loan names a file.
TEST(ResidencyTest, WhatIsReadIsInASlot) {
  const std::vector<Plan> plans = FiledPlans();
  EXPECT_GT(plans.size(), 30u);
  for (const Plan& plan : plans) {
    for (const Program& program : ProgramsOf(plan)) {
      std::map<MemoryBlock, std::optional<StageVersion>> slots;
      Instruction before;
      for (const Instruction& op : program.ops) {
        const bool loads = op.kind == OpKind::kLoad, updates = op.kind == OpKind::kUpdate;
        const bool moves = loads || op.kind == OpKind::kUnload;
        const StageVersion page{op.stage, Version(std::max(op.version.value, 0))};
        const StageVersion last{op.stage, Version(op.version.value - 1)};
        const Use* slot = nullptr;
        for (const Use& use : op.uses) {
          EXPECT_TRUE(!LiesInFile(plan, use.block) || moves || op.kind == OpKind::kSave || op.loan);
          if (use.block.kind != BlockKind::kResident) continue;
          const bool predicts = use.role == Role::kPrediction;
          if (!predicts) slot = &use;
          EXPECT_TRUE(use.how == How::kWrite || slots[use.block] == (updates ? last : page));
          if (use.how != How::kRead) {
            const Version prediction = Prediction(op.iteration.value + 2);
            slots[use.block] = predicts ? StageVersion{op.stage, prediction} : page;
          }
          EXPECT_EQ(use.block.index >= plan.resident_slots,
                    updates || (moves && op.copy == Copy::kNone));
        }
        const bool computes = IsCompute(op.kind) && op.stage != kNoStage;
        const bool masters = op.kind == OpKind::kCollect &&
                             (op.copy != Copy::kNone || plan.stage(op.stage).master_bytes > 0);
        const bool reads = (computes || updates) && plan.stage(op.stage).streams_parameters;
        EXPECT_EQ(slot != nullptr, (reads && !masters) || moves);
        const bool is_loaded = slot != nullptr && (computes || slot->how == How::kReadWrite);
        EXPECT_EQ(before.kind == OpKind::kLoad, is_loaded && !loads);
        if (before.kind == OpKind::kLoad && slot != nullptr) {
          EXPECT_EQ(before.uses[1].block, slot->block);
          EXPECT_EQ(std::tuple(before.iteration, before.lap), std::tuple(op.iteration, op.lap));
        }
        if (HasFailure()) FAIL() << WithOperands(op) << " behind " << WithOperands(before);
        before = op;
      }
    }
  }
}

}  // namespace
}  // namespace ringzero
