// "rule": "auto": which rule comes to the loss of dp first.
//
//   request.question = RuleQuestion{.family = "gpt", .optimizer = "AdamW", .studied = rows, …};
//   RZ_ASSIGN_OR_RETURN(const PlannedModel planned, PlanModel(model, request));
//   planned.rule_choice;  // why
//
// A rule's time is its simulated step times the updates that it needs for dp's loss. The step comes
// from counted costs or a frozen profile, and from links as configured or assumed: nothing is
// measured. The updates come from a study (docs/results/rules_study.md). Pure.
#ifndef RINGZERO_ZERO_RULE_CHOICE_H_
#define RINGZERO_ZERO_RULE_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "sharding/study/cost_profile.h"

namespace ringzero {

struct ModelDescription;
struct PlanRequest;
struct PlannedModel;

// A row of data/rules.json: what a rule has cost in one studied case.
struct StudiedRule {
  std::string family;     // as in RuleQuestion
  std::string optimizer;  // likewise
  Rule rule = Rule::kDp;
  bool strict = false;
  int workers = 1;
  int laps = 1;
  int64_t batch = 1;       // samples of an update
  int warmup_updates = 0;  // of dp, before the rule
  bool predict = false;
  // How many times the updates of dp it needs for the same loss: the mean, and its 95 % interval.
  double updates = 1, least = 1, most = 1;
  int seeds = 1;
  std::string command;  // that made the row
};

struct RuleQuestion {
  std::string family;     // of the model: "gpt", "resnet", "mlp"; a program's own: "custom"
  std::string optimizer;  // "AdamW"
  int64_t batch = 1;      // samples of an update
  std::vector<StudiedRule> studied;
  LinkTicks links;                     // in nanoseconds
  double cores = 0;                    // of all hosts, for one thread each; 0: as many as needed
  std::optional<CostProfile> profile;  // a frozen one; absent: counted costs
};

// What `question.studied` says of a rule; null: nothing. A row covers a request of its family,
// optimizer, rule, strictness and prediction, with N, K and batch within a factor of 2, and with at
// least as long a warm-up. Of the rows with the longest warm-up the worst counts.
const StudiedRule* FindStudied(const RuleQuestion& question, const PlanRequest& request);

// The request for that rule, without what only others have, and without a question.
PlanRequest WithRule(PlanRequest request, Rule rule);

// Plans with the rule that is fastest by at least 2 %, else with dp. request.question must be
// given. The errors of PlanModel with dp; a rule that cannot be planned is not chosen.
absl::StatusOr<PlannedModel> PlanFastest(const ModelDescription& model, const PlanRequest& request);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_RULE_CHOICE_H_
