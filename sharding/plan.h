// Plan: everything the workers must agree on before the first byte moves, as one plain value.
//
//   Plan plan{.workers = 4, .laps = 1, .rule = Rule::kCdpV2, .slack = 1, .stages = stages};
//   RZ_RETURN_IF_ERROR(CheckPlan(plan));
//   RZ_ASSIGN_OR_RETURN(Program program, MakeProgram(plan, worker, {Iteration(0), Iteration(1)}));
//
// All workers hold the same Plan; it is compared by its text (PlanToString) and never changes in a
// run.
#ifndef RINGZERO_SHARDING_PLAN_H_
#define RINGZERO_SHARDING_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"

namespace ringzero {

// Which version of the parameters a micro-batch reads (arXiv 2403.08837, section 3).
enum class Rule {
  kDp,     // θ_t everywhere: exact synchronous training
  kCdpV1,  // θ_{t-1} everywhere: a pure delay of one update
  kCdpV2,  // θ_t where it exists in time, else θ_{t-1}
};
std::string ToString(Rule rule);  // "dp", "cdp_v1", "cdp_v2"
absl::StatusOr<Rule> ParseRule(const std::string& text);

// What a gradient is clipped by.
enum class Clipping {
  kOff,
  kExact,     // the global norm of its own iteration
  kPerStage,  // each stage by its own norm
  kPrevious,  // the global norm of the iteration before; none in the first
};
std::string ToString(Clipping clipping);  // "off", "exact", "per_stage", "previous"
absl::StatusOr<Clipping> ParseClipping(const std::string& text);

// What travels of one stage, and what it costs to compute.
struct StagePlan {
  std::string name;
  int first_layer = 0;  // layers [first_layer, end_layer) of the model
  int end_layer = 0;
  int64_t parameter_bytes = 0;  // one version as it travels; 0: nothing travels
  int64_t master_bytes = 0;     // fp32 masters, where versions are not fp32; 0: a version is both
  int64_t sum_bytes = 0;        // one gradient sum as it travels; 0: nothing trainable
  int64_t buffer_bytes = 0;     // running statistics as they travel; 0: none
  int64_t state_bytes = 0;      // optimizer state as a collection shows it; 0: it shows none
  int trained_parameters = 1;   // tensors in its sum: each has a number of its own in a norm
  int64_t forward_cost = 1;     // integers in any common unit (FLOPs of one micro-batch)
  int64_t backward_cost = 1;
  WorkerId owner{0};
  StageId last_use{-1};      // tied parameters: the last stage that reads them; -1: this one
  bool has_backward = true;  // false in a frozen prefix: no backward, no backward copy, no sum
  // Of its optimizer state: so much lies in a tier file, and comes for each update.
  int64_t streamed_bytes = 0;
  // fp32 masters are a part of the state, and of what streams (Plan::masters_may_stream).
  bool streams_masters = false;
  // Its versions lie in a file of its owner, and are read from there (Plan::parameters_may_stream).
  bool streams_parameters = false;
  bool streams() const { return streamed_bytes > 0; }

  // Of a micro-batch. A frozen prefix computes no backward, whatever it would cost.
  int64_t computed_cost() const { return forward_cost + (has_backward ? backward_cost : 0); }
  // Of what a collection shows: masters.
  int64_t collected_bytes() const { return master_bytes > 0 ? master_bytes : parameter_bytes; }
};

// Forward-only laps at chosen versions.
struct EvaluationPlan {
  int every = 0;              // θ_every, θ_{2·every}, … and the last version; 0: none of these
  int laps = 0;               // one evaluation micro-batch per worker and lap
  std::vector<int> versions;  // and these, which are asked for in a run (requests.h): ascending
};

// Versions that one worker is shown whole, stage by stage: parameters, the averaged gradients of
// the update that made them, and the optimizer's state after it. The last version's parameters are
// collected by worker 0 in any case.
struct CollectionPlan {
  int every = 0;                 // θ_every, θ_{2·every}, …; 0: none of these
  std::vector<int> versions;     // and these: ascending, at least 1
  WorkerId worker{0};            // who is shown them
  bool on_request = false;       // others may be asked for while the run goes on (Plan::requests)
  bool parameters_only = false;  // neither gradients nor states

  bool any() const { return every > 0 || !versions.empty() || on_request; }
};

// Versions that are saved: each owner writes its stages, and worker 0 makes what all have written a
// checkpoint.
struct CheckpointPlan {
  int every = 0;              // θ_every, θ_{2·every}, …; 0: none of these
  std::vector<int> versions;  // and these: ascending, at least 1
  bool at_end = false;        // and the last one
  bool on_request = false;    // and others, asked for while the run goes on (Plan::requests)
  bool any() const { return every > 0 || !versions.empty() || at_end || on_request; }
};

// How many samples an epoch has, where its last, incomplete batch is trained on (schedule.h).
struct SamplePlan {
  int64_t per_epoch = 0;    // 0: not counted, every micro-batch is full
  int64_t micro_batch = 1;  // samples of a full one
};

struct Plan {
  int workers = 1;  // N
  // What is sharded (ZeRO): 3: masters, optimizer states, gradient sums and parameters; 2: not the
  // parameters; 1: neither the gradients; 0: nothing.
  int zero_stage = 3;
  int laps = 1;  // K: micro-batches per worker and iteration
  Rule rule = Rule::kCdpV2;
  int slack = 1;  // cdp_v2: ticks (of T/S) between an update and its first fresh read
  // What would be read stale is a prediction of θ_t, made by the owner in the update before
  // (op.h). Refused for dp, which reads nothing stale.
  bool predict = false;
  int pending = 1;       // gradients that may wait for their sum while the next backward computes
  int window = 0;        // W: slots per channel; 0 is not resolved yet (ChooseWindow)
  bool stagger = false;  // neighbours keep T/N apart by tokens (schedule.h); refused for dp
  int retain = 0;        // the last r stages keep their forward copy for the backward
  bool exchange = true;  // false: compute only, nothing travels and nothing is updated (the floor)
  int iterations = 1;    // of the whole run: the last version is θ_T
  // The run begins with iteration f, and with what a run up to there has left: θ_f, and what
  // iteration f reads besides (zero/engine_options.h, Beginning).
  int first_iteration = 0;
  // The first W iterations are of dp, whatever the rule: their updates see fresh gradients. From
  // iteration W on it is the rule (rule_at).
  int warmup_updates = 0;
  // cdp_v2: by forward costs alone, so that all sums of an iteration are complete before anybody
  // reads what they make (schedule.h, ReadsFresh). Exact clipping needs it there.
  bool strict = false;
  Clipping clipping = Clipping::kOff;
  // An iteration whose sums are not all finite updates nothing: with fp16, or bf16 if asked for. So
  // every update waits for the global norm, and so does the loss scale (scale_lag).
  bool skip_overflows = false;
  EvaluationPlan evaluation;
  CollectionPlan collection;
  CheckpointPlan checkpoint;
  int64_t staging_bytes = 0;  // where stages stream: what their states come through, at each worker
  // Where parameters stream: each worker has so many slots in memory for versions that are read.
  // An owner has one more for the version that an update makes, and one for its prediction.
  int resident_slots = 0;
  // Worker 0 may ask while the run goes on that it ends early, that a version is evaluated, or that
  // one is collected (program/requests.h).
  bool requests = false;
  SamplePlan samples;
  // How many workers each host has, in order: those of a host map each other's memory (shm, local)
  // and may lend it. {4, 4}: workers 0 to 3 are on one host, 4 to 7 on another. Empty: no worker
  // lends.
  std::vector<int> hosts;
  std::vector<StagePlan> stages;

  // Which rule iteration t follows.
  Rule rule_at(Iteration t) const { return t.value < warmup_updates ? Rule::kDp : rule; }

  int stage_count() const { return static_cast<int>(stages.size()); }
  const StagePlan& stage(StageId j) const { return stages[j.value]; }
  // The last stage whose forward reads the parameters of stage j (j itself unless tied).
  StageId last_use(StageId j) const {
    return stages[j.value].last_use.value < 0 ? j : stages[j.value].last_use;
  }
  WorkerId owner(StageId j) const { return stages[j.value].owner; }
  // Whether worker w has masters of stage j in its own memory: its owner; where nothing is sharded,
  // everybody, and everybody updates them.
  bool has_masters(WorkerId w, StageId j) const {
    return owner(j) == w || zero_stage == 0 || !exchange;
  }
  // Whoever reads a version receives it once, and holds it until it has read it for the last time.
  bool holds_copies() const { return exchange && (zero_stage == 1 || zero_stage == 2); }
  // θ_{t+1} is written over θ_t. So an evaluation or collection of θ_t comes before the laps of
  // iteration t, which contribute to that update; elsewhere it comes after them. So it is in a
  // warm-up: its versions lie in the buffers of the rule that follows.
  bool updates_in_place() const { return rule == Rule::kDp || predict; }
  // Two versions of masters are alive, as of what travels: where masters are apart, only because
  // a collection may still read the one that the next update would overwrite.
  bool has_two_masters() const { return !updates_in_place() && collection.any(); }
  // A version's masters are there until they have been collected, and are collected once.
  bool masters_may_stream() const {
    return !collection.any() || (!has_two_masters() && collection.worker == WorkerId(0));
  }
  // A version in a file is not held longer than one operation reads it, and is read where it lies:
  // by workers of its host. Without an iteration an owner may be gone before its file is opened.
  bool parameters_may_stream(StageId j) const {
    const bool tied = last_use(j) != j;
    const bool held = j.value >= stage_count() - retain && j.value + 1 < stage_count();
    const bool beside = workers == 1 || (hosts.size() == 1 && lends());
    return exchange && zero_stage == 3 && beside && !tied && !held && stage(j).sum_bytes > 0 &&
           first_iteration < iterations;
  }
  // Workers of one host lend copies and sums, and do not copy them (loans.h). A sum that all
  // workers update from is not lent.
  bool lends() const {
    const bool share = static_cast<int>(hosts.size()) < workers && !hosts.empty();
    return share && exchange && zero_stage > 0;
  }
  // In dp all workers are in the same place of the same lap. What the last worker sent on to worker
  // 0 for the next lap would lie in slots for a whole lap, and the last worker would wait for free
  // slots. So owners send worker 0 its copies of later laps, and the sum of a lap goes by way of
  // its owner.
  bool ends_laps_at_owners(Iteration t) const {
    const bool sharded = workers > 1 && exchange && zero_stage > 0;
    return rule_at(t) == Rule::kDp && laps > 1 && sharded && !lends();
  }
  // Every complete sum goes around once more: all workers update from it.
  bool spreads_sums() const { return exchange && zero_stage == 0; }
  bool skips() const { return exchange && skip_overflows; }
  // Every complete sum's squares are counted before its update.
  bool counts_squares() const { return skips() || (exchange && clipping != Clipping::kOff); }
  // And folded into one norm, which updates wait for.
  bool has_norm() const { return skips() || (counts_squares() && clipping != Clipping::kPerStage); }
  // While an update waits for the norm, its owner has the complete sum in memory of its own: where
  // it lay is free (else a later sum waits for it, and with it whoever has to contribute to the
  // norm).
  bool takes_sums() const { return skips() || (exchange && clipping == Clipping::kExact); }
  // Of which iteration the update of iteration t takes the norm; negative: none.
  int norm_iteration(int t) const { return clipping == Clipping::kPrevious ? t - 1 : t; }
  // The loss scale of iteration t follows from the overflows of iterations up to t - scale_lag(t):
  // those that all workers can know before its first micro-batch begins (docs/precision.md).
  int scale_lag(Iteration t) const { return rule_at(t) == Rule::kDp ? 1 : 2; }
  bool any_streams() const {
    return std::ranges::any_of(stages, [](const StagePlan& each) { return each.streams(); });
  }
  bool any_streams_masters() const {
    return std::ranges::any_of(stages, [](const StagePlan& each) { return each.streams_masters; });
  }
  bool any_streams_parameters() const {
    return std::ranges::any_of(stages, &StagePlan::streams_parameters);
  }
  bool uses_disk() const { return any_streams() || any_streams_parameters(); }
  // ceil(S / N): the paper's k, stages per worker.
  int stages_per_worker() const { return (stage_count() + workers - 1) / workers; }
};

// InvalidArgument, naming the field, for a plan that no engine can run (0 workers, stagger with dp,
// …).
absl::Status CheckPlan(const Plan& plan);

// One field or stage a line; equal texts mean equal plans. ParsePlan reads it back.
std::string PlanToString(const Plan& plan);
absl::StatusOr<Plan> ParsePlan(const std::string& text);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_PLAN_H_
