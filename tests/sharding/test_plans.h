// Plans to test with, built from a few words, and an oracle that watches a run of one.
//
//   const Plan plan = MakeTestPlan({.workers = 3, .stages = 5, .rule = Rule::kCdpV2, .slack = 1});
//   EXPECT_EQ(CheckRun(plan, ring, timeline), absl::OkStatus());
#ifndef RINGZERO_TESTS_SHARDING_TEST_PLANS_H_
#define RINGZERO_TESTS_SHARDING_TEST_PLANS_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "sharding/program/linked_ring.h"
#include "sharding/program/program.h"
#include "sharding/study/simulate.h"

namespace ringzero {

enum class Frozen { kNone, kPrefix, kMiddle };
enum class Owners { kAssigned, kRandom, kAllLast, kAllFirst };
enum class Costs { kEqual, kBackwardTwice, kRandom };

struct PlanShape {
  int workers = 2;
  int stages = 2;
  int zero_stage = 3;
  int laps = 1;
  Rule rule = Rule::kCdpV2;
  int slack = 1;
  bool stagger = false;
  bool predict = false;
  int iterations = 4;
  int first_iteration = 0;
  int warmup_updates = 0;  // at most `iterations`; ignored with dp
  int evaluate_every = 0;
  int evaluation_laps = 1;
  int collect_every = 0;
  std::vector<int> collect_versions = {};
  int collector = 0;
  bool parameters_only = false;  // of what is collected
  int save_every = 0;
  bool requests = false;                    // collections on request, too
  std::vector<int> evaluate_versions = {};  // besides those of evaluate_every
  bool statistics = false;                  // every stage but the first has running statistics
  bool tied = false;  // the first stage's parameters are read by the last stage
  int retain = 0;
  int pending = 1;
  Frozen frozen = Frozen::kNone;
  Owners owners = Owners::kAssigned;
  Costs costs = Costs::kEqual;
  uint64_t seed = 1;
  Clipping clipping = Clipping::kOff;  // kExact with cdp_v2: strict, too
  // With cdp_v2 strict, too; kPrevious becomes kExact.
  bool skip_overflows = false;
  bool strict = false;
  bool masters = false;     // fp32 masters apart from 16-bit versions
  int hosts = 0;            // equal runs of workers; 0: no worker lends
  bool streams = false;     // every second stage that trains streams its state
  bool parameters = false;  // versions lie in files, of two in three stages that may
};

// "3x4 cdp_v1 laps=2 evaluate=1 tied" is {.workers = 3, .stages = 4, .rule = Rule::kCdpV1, .laps = 2,
// .evaluate_every = 1, .tied = true}. Members have their own names, without "_stage" and "_every";
// values of enums stand alone. Fails the test on another word.
PlanShape Shape(const std::string& words);
// Stages differ in bytes; the window is not resolved.
Plan MakeTestPlan(const PlanShape& shape);
// The same with the window of ChooseWindow. Fails the test if there is none.
Plan MakeResolvedPlan(const PlanShape& shape);
// The smallest window with which VerifyPlan passes; plan.window is not read. ChooseWindow does not
// try those below LeastWindow.
absl::StatusOr<int> SmallestWindow(const Plan& plan);
std::string Describe(const PlanShape& shape);
// Programs of all workers, of the whole run, and the same linked. They fail the test on an error.
std::vector<Program> ProgramsOf(const Plan& plan);
LinkedRing RingOf(const Plan& plan);

// SimulationOptions::more_ticks: 0 to `most`, drawn from `seed`, for all that computes, adds or
// updates and for every message; and by worker a delay of every forward and backward.
std::function<int64_t(const RingOp& op, int number)> Jitter(int64_t most, uint64_t seed,
                                                            std::vector<int64_t> delays = {});

// A rule, and the options that only some rules have.
struct RuleShape {
  Rule rule;
  int slack;
  bool stagger;
  bool predict = false;
};
const std::vector<RuleShape>& AllRules();
PlanShape WithRule(PlanShape shape, const RuleShape& rule);

// A small set of shapes in which any two values of any two options occur together (`strict` goes with
// statistics, and `masters` with pending). Behind them some of these again, changed so that versions
// may lie in files.
std::vector<PlanShape> PairwiseShapes();

// Any plan that can be made, with small ones more often. Some exclude themselves (CheckPlan).
class RandomShapes {
 public:
  explicit RandomShapes(uint64_t seed) : random_(seed) {}
  PlanShape Next();
  int Draw(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<uint64_t>(most - least + 1));
  }

 private:
  int Small(int least, int most) { return Draw(least, Draw(least, most)); }
  bool Chance(int one_in) { return Draw(1, one_in) == 1; }

  std::mt19937_64 random_;
};

// RINGZERO_TEST_FULL: all combinations. Under a sanitizer a sample: the code is the same for all of
// them.
bool FullTier();

// Checks what happened, by the clock and by contents alone: every version was there when it was
// read, and its memory was not written while anybody computed with it, relayed it or held it; every
// update took the gradients of all micro-batches of its window in order; statistics and metrics
// likewise; what is collected is of its version, and no more than two versions of it are alive.
// Predictions are read and overwritten like versions. Versions in files: what is computed with lies
// in a slot that was filled from the file, and neither is written while it is used.
absl::Status CheckRun(const Plan& plan, const LinkedRing& ring, const Timeline& times);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SHARDING_TEST_PLANS_H_
