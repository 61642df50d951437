// From a model to a plan: what its layers hold and cost, cut into stages.
//
//   RZ_ASSIGN_OR_RETURN(ModelDescription model, DescribeModel(layers, {example}));
//   RZ_ASSIGN_OR_RETURN(PlannedModel planned,
//                       PlanModel(model, {.workers = 4, .rule = Rule::kCdpV2}));
#ifndef RINGZERO_ZERO_MODEL_PLAN_H_
#define RINGZERO_ZERO_MODEL_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sharding/check/verify.h"
#include "sharding/plan.h"
#include "sharding/rules/partition.h"
#include "zero/layout.h"
#include "zero/optimizer/optimizer.h"
#include "zero/rule_choice.h"

namespace ringzero {

// Integer costs of one sample's forward and backward, in FLOPs (a multiply-add counts 2).
struct LayerCost {
  int64_t forward = 0;
  int64_t backward = 0;
};

struct LayerDescription {
  std::string name;
  std::vector<ParameterSpec> parameters;  // full names; a tied one stands with its first layer only
  std::vector<StatisticSpec> statistics;  // of BatchNorm modules
  LayerCost cost;                         // of one sample
  int last_use = -1;  // the last layer that reads a parameter of this one; -1: itself
};

struct ModelDescription {
  std::vector<LayerDescription> layers;
  int64_t parameter_count = 0;  // tied ones once
};

// C++ wants members in the order in which they stand here: {.workers = 4, .iterations = 1000}.
struct PlanRequest {
  int workers = 1;
  int zero_stage = 3;
  int laps = 1;
  Rule rule = Rule::kDp;
  int slack = 1;
  int warmup_updates = 0;  // so many iterations of dp come first
  bool predict = false;
  bool strict = false;
  Clipping clipping = Clipping::kOff;
  int stages = 0;               // 0: k·N with the largest k <= 4 that the layers allow
  std::vector<int> boundaries;  // first layer of each stage, when given by hand (stages must agree)
  Balance balance = Balance::kCost;
  int micro_batch = 1;  // samples; costs are per micro-batch
  // Samples of an epoch, if its last, incomplete batch is trained on (sharding/rules/schedule.h);
  // 0: every micro-batch is full.
  int64_t epoch_samples = 0;
  int window = 0;  // 0: chosen
  // How many neighbouring workers share memory (shm, local), host by host (Plan::hosts). Where all
  // do and lend nothing, a chosen window is as large as the step needs (sharding/study/simulate.h).
  std::vector<int> hosts;
  // And lend it (sharding/program/loans.h). Payload that has checksums, or is to be damaged, is not
  // lent.
  bool lends = true;
  int pending = 1;
  bool stagger = false;
  int retain = 0;
  bool exchange = true;
  int iterations = 1;
  EvaluationPlan evaluation;
  CollectionPlan collection;
  int first_iteration = 0;  // as in Plan, as the next two
  CheckpointPlan checkpoint;
  bool requests = false;
  // Of the bytes of each owner's optimizer states: at least so much streams, whole stages.
  double streamed_share = 0;
  std::vector<int> streamed_stages;  // by hand, in place of a share above 0; empty: by share
  int64_t staging_bytes = 0;         // 0: chosen (sharding/study/disk_verdict.h)
  // Parameters lie in files, but for so many elements of each owner's first stages; absent: all are
  // in memory. Through so many slots (Plan::resident_slots).
  std::optional<int64_t> parameters_in_memory;
  int resident_slots = 3;
  std::optional<PlanProof> proof;  // of an equal plan, which then need not be verified again
  OptimizerOptions optimizer;  // for the size of its states: what is collected, what a step takes
  Precision precision;         // parameters travel in the type that computes
  // Chooses the rule, in place of `rule`; all else is as the cyclic rules want it.
  std::optional<RuleQuestion> question;
};

struct PlannedModel {
  Plan plan;                         // window resolved
  PlanProof proof;                   // of the plan
  std::vector<StageLayout> layouts;  // by stage
  Precision precision;
  std::vector<std::string> warnings;
  std::string rule_choice;  // why this rule, a few lines; empty: nothing was asked
};
absl::StatusOr<PlannedModel> PlanModel(const ModelDescription& model, const PlanRequest& request);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_MODEL_PLAN_H_
