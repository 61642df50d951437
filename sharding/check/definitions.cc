// The definitions of docs/schedule.md.
#include "sharding/check/definitions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

using Wide = __int128;

// "micro-batches 0 to 3", "micro-batch 2".
std::string MicroBatches(int64_t first, int64_t end) {
  if (end == first + 1) return absl::StrCat("micro-batch ", first);
  return absl::StrCat("micro-batches ", first, " to ", end - 1);
}

bool Contains(const std::vector<int>& versions, int version) {
  return std::ranges::find(versions, version) != versions.end();
}

// The multiples of `every` and `named` of the versions that a run makes.
std::vector<int> MadeVersions(const Plan& plan, int every, const std::vector<int>& named) {
  std::vector<int> versions;
  for (int v = plan.first_iteration + 1; v <= plan.iterations && plan.exchange; ++v) {
    if ((every > 0 && v % every == 0) || Contains(named, v)) versions.push_back(v);
  }
  return versions;
}

// θ_t does not outlive iteration t: evaluations and collections look at it before.
bool LooksFirst(const Plan& plan) { return plan.rule == Rule::kDp || plan.predict; }

// Writes down what one worker computes.
class Computing {
 public:
  Computing(const Plan& plan, const RequiredLabels& labels, int worker)
      : plan_(plan),
        labels_(labels),
        worker_(worker),
        evaluations_(RequiredEvaluations(plan)),
        collections_(RequiredCollections(plan)) {}

  std::vector<Op> Take() {
    const bool early = LooksFirst(plan_);
    for (int t = plan_.first_iteration; t <= plan_.iterations; ++t) {
      const bool evaluated = Contains(evaluations_, t), closing = t == plan_.iterations;
      if (evaluated && (early || closing)) Evaluation(t);
      if (early || closing) Collection(t);
      for (int l = 0; l < plan_.laps && !closing; ++l) TrainingLap({worker_, t, l});
      if (evaluated && !early && !closing) Evaluation(t);
      if (!early && !closing) Collection(t);
    }
    return std::move(computing_);
  }

 private:
  static bool Trainable(const StagePlan& stage) { return stage.sum_bytes > 0; }
  Version Newest(int j, int updates) const {
    return Version(Trainable(plan_.stages[j]) ? updates : 0);
  }

  // Whoever collects sees parameters, sum and state of one stage after the other; worker 0 sees the
  // last version's parameters in any case.
  void Collection(int version) {
    const bool collects =
        Contains(collections_, version) && worker_ == plan_.collection.worker.value;
    const bool whole = collects && !plan_.collection.parameters_only;
    const bool result = plan_.exchange && version == plan_.iterations && worker_ == 0;
    for (int j = 0; j < plan_.stage_count() && (collects || result); ++j) {
      const StagePlan& stage = plan_.stages[j];
      Op op{.kind = OpKind::kCollect, .stage = StageId(j), .iteration = Iteration(version)};
      const auto add = [&](Copy part, Version label) {
        op.copy = part;
        op.version = label;
        computing_.push_back(op);
      };
      add(Copy::kNone, Newest(j, version));
      if (whole && Trainable(stage)) add(Copy::kGradient, kNoVersion);
      if (whole && Trainable(stage) && stage.state_bytes > 0) add(Copy::kState, kNoVersion);
    }
  }

  void TrainingLap(const MicroBatchPlace& place) {
    Op op{.iteration = Iteration(place.iteration), .lap = Lap(place.lap)};
    for (int i = 0; i < 2 * plan_.stage_count(); ++i) {
      const bool forward = i < plan_.stage_count();
      const int j = forward ? i : 2 * plan_.stage_count() - 1 - i;
      if (!forward && !plan_.stages[j].has_backward) continue;
      op.kind = forward ? OpKind::kForward : OpKind::kBackward;
      op.stage = StageId(j);
      op.version = Version(labels_.Of(place, j));
      computing_.push_back(op);
    }
    computing_.push_back({.kind = OpKind::kEnd, .iteration = op.iteration, .lap = op.lap});
  }

  void Evaluation(int version) {
    for (int l = 0; l < plan_.evaluation.laps; ++l) {
      Op op{.kind = OpKind::kEvaluate, .iteration = Iteration(version), .lap = Lap(l)};
      for (int j = 0; j < plan_.stage_count(); ++j) {
        op.stage = StageId(j);
        op.version = Newest(j, version);
        computing_.push_back(op);
      }
      computing_.push_back({.kind = OpKind::kEnd,
                            .copy = Copy::kEvaluation,
                            .iteration = op.iteration,
                            .lap = op.lap});
    }
  }

  const Plan& plan_;
  const RequiredLabels& labels_;
  const int worker_;
  const std::vector<int> evaluations_;
  const std::vector<int> collections_;
  std::vector<Op> computing_;
};

}  // namespace

std::vector<Op> RequiredComputing(const Plan& plan, const RequiredLabels& labels, int worker) {
  return Computing(plan, labels, worker).Take();
}

absl::Status CheckComputing(const Plan& plan, const RequiredLabels& labels,
                            const LinkedRing& ring) {
  for (int w = 0; w < plan.workers; ++w) {
    const std::vector<Op> wanted = RequiredComputing(plan, labels, w);
    size_t next = 0;
    for (int i = ring.begin[w]; i < ring.begin[w + 1]; ++i) {
      const Op& op = ring.op(i);
      if (!IsCompute(op.kind)) continue;
      if (next == wanted.size()) {
        return FailedPrecondition(ring.Describe(i), ": there is nothing left to compute");
      }
      if (op != wanted[next]) {
        return FailedPrecondition(ring.Describe(i), ": \"", ToString(wanted[next]),
                                  "\" has to come here");
      }
      ++next;
    }
    if (next == wanted.size()) continue;
    return FailedPrecondition("worker ", w, ": \"", ToString(wanted[next]), "\" is missing");
  }
  return absl::OkStatus();
}

MicroBatchPlace PlaceOf(const Plan& plan, int64_t micro_batch) {
  const int64_t round = micro_batch / plan.workers;
  return {.worker = static_cast<int>(micro_batch % plan.workers),
          .iteration = static_cast<int>(round / plan.laps),
          .lap = static_cast<int>(round % plan.laps)};
}

int64_t NumberOf(const Plan& plan, const MicroBatchPlace& place) {
  return (int64_t{place.iteration} * plan.laps + place.lap) * plan.workers + place.worker;
}

// θ_t, the newest there can be, exists in time for worker w: everything before stage j, in both
// directions, takes as long as the workers to the right and the slack.
// Strict: all sums must be complete; then the backwards before stage j are over already.
RequiredLabels::RequiredLabels(const Plan& plan) : plan_(plan) {
  const Wide stages = plan.stage_count(), workers = plan.workers;
  Wide lap = 0;
  Wide passed = 0;
  std::vector<Wide> before;  // by stage
  for (const StagePlan& stage : plan.stages) {
    before.push_back(passed);
    passed += plan.strict ? stage.forward_cost : stage.computed_cost();
    lap += stage.computed_cost();
  }
  // In units of 1 / (N·S) of a lap; slack beyond one worker's turn gives nothing more.
  const Wide slack = std::min(lap * workers * plan.slack, lap * stages);
  for (int w = 0; w < plan.workers; ++w) {
    const Wide turns = lap * stages * (workers - 1 - w);
    for (const Wide cost : before) in_time_.push_back(cost * stages * workers - turns >= slack);
  }
}

int RequiredLabels::Of(const MicroBatchPlace& place, int j) const {
  if (!plan_.exchange || plan_.stages[j].sum_bytes == 0) return 0;  // never updated
  const int newest = place.iteration;
  if (IsOfDp(plan_, newest) || place.lap > 0) return newest;  // only the first lap may be stale
  const size_t at = static_cast<size_t>(place.worker) * plan_.stages.size() + j;
  if (plan_.rule == Rule::kCdpV2 && in_time_[at]) return newest;
  return plan_.predict ? Prediction(newest).value : newest - 1;
}

std::vector<StaggerWait> StaggerWaits(const Plan& plan) {
  struct Timed {
    Op op;
    Wide begin, end;
    bool in_next_lap;
  };
  std::vector<Timed> laps;
  Wide now = 0;
  for (const bool next : {false, true}) {
    const auto add = [&](OpKind kind, int j, int64_t cost) {
      laps.push_back({{.kind = kind, .stage = StageId(j)}, now, now + cost, next});
      now += cost;
    };
    for (int j = 0; j < plan.stage_count(); ++j) {
      add(OpKind::kForward, j, plan.stages[j].forward_cost);
    }
    for (int j = plan.stage_count() - 1; j >= 0 && plan.stages[j].has_backward; --j) {
      add(OpKind::kBackward, j, plan.stages[j].backward_cost);
    }
  }
  const Wide lap = now / 2;
  const bool first_fits = laps.front().end * plan.workers <= lap;
  std::vector<StaggerWait> waits;
  for (const Timed& waiting : laps) {
    if (waiting.in_next_lap) break;
    StaggerWait wait{laps.front().op, waiting.op};
    for (const Timed& earlier : laps) {
      if (earlier.in_next_lap && !first_fits) break;
      if ((earlier.end - waiting.begin) * plan.workers > lap) continue;
      wait.finished = earlier.op;
      wait.in_next_lap = earlier.in_next_lap;
    }
    const bool new_wait = waits.empty() || waits.back().finished != wait.finished ||
                          waits.back().in_next_lap != wait.in_next_lap;
    if (new_wait) waits.push_back(wait);
  }
  return waits;
}

bool HasStaggerToken(const Plan& plan, const StaggerWait& wait, int64_t m) {
  if (m <= NumberOf(plan, {.worker = 0, .iteration = plan.first_iteration, .lap = 0})) return false;
  if (!wait.in_next_lap) return true;
  const MicroBatchPlace finished = PlaceOf(plan, m - 1), next = PlaceOf(plan, m - 1 + plan.workers);
  if (next.iteration >= plan.iterations) return false;
  if (next.iteration == finished.iteration) return true;
  if (IsOfDp(plan, next.iteration)) return false;  // it waits for this micro-batch
  const int between = finished.iteration + (LooksFirst(plan) ? 1 : 0);
  return !Contains(RequiredEvaluations(plan), between) &&
         !Contains(RequiredCollections(plan), between);
}

bool LapsEndAtOwners(const Plan& plan, int iteration) {
  const bool sharded = plan.exchange && plan.zero_stage > 0 && plan.workers > 1;
  // No two workers are on one host.
  const bool apart = std::ranges::all_of(plan.hosts, [](int workers) { return workers == 1; });
  return sharded && apart && IsOfDp(plan, iteration) && plan.laps > 1;
}

bool IsOfDp(const Plan& plan, int iteration) {
  return plan.rule == Rule::kDp || iteration < plan.warmup_updates;
}

std::vector<int> RequiredEvaluations(const Plan& plan) {
  std::vector<int> versions;
  const EvaluationPlan& evaluation = plan.evaluation;
  for (int v = plan.first_iteration; v <= plan.iterations && plan.exchange; ++v) {
    const bool due =
        evaluation.every > 0 && (v == plan.iterations || (v > 0 && v % evaluation.every == 0));
    if (evaluation.laps > 0 && (due || Contains(evaluation.versions, v))) versions.push_back(v);
  }
  return versions;
}

std::vector<int> RequiredCollections(const Plan& plan) {
  return MadeVersions(plan, plan.collection.every, plan.collection.versions);
}

std::vector<int> RequiredCheckpoints(const Plan& plan) {
  std::vector<int> named = plan.checkpoint.versions;
  if (plan.checkpoint.at_end) named.push_back(plan.iterations);
  return MadeVersions(plan, plan.checkpoint.every, named);
}

int RequiredParts(const Plan& plan, int worker) {
  int parts = 0;
  for (const StagePlan& stage : plan.stages) {
    if (stage.owner.value == worker && stage.parameter_bytes > 0) ++parts;
    if (worker == plan.workers - 1 && stage.buffer_bytes > 0) ++parts;
  }
  return parts;
}

std::string SymbolText(const Symbol& s) {
  const std::string stage = absl::StrCat(" of stage ", s.stage);
  const std::string iteration = absl::StrCat(
      s.copy == Copy::kEvaluation ? " of the evaluation of version " : " of iteration ", s.first);
  switch (s.of) {
    case Symbol::Of::kNothing: return "nothing";
    case Symbol::Of::kTheta: return absl::StrCat("version ", s.first, stage);
    case Symbol::Of::kMasters: return absl::StrCat("the masters of version ", s.first, stage);
    case Symbol::Of::kPrediction: return absl::StrCat("the prediction of version ", s.first, stage);
    case Symbol::Of::kState: return absl::StrCat("the state after ", s.first, " updates", stage);
    case Symbol::Of::kGradient: return absl::StrCat("the gradient of micro-batch ", s.first, stage);
    case Symbol::Of::kBatch: return absl::StrCat("the statistics of micro-batch ", s.first, stage);
    case Symbol::Of::kStatistics:
      if (s.end == 0) return absl::StrCat("the first statistics", stage);
      return absl::StrCat("the statistics of ", MicroBatches(0, s.end), stage);
    case Symbol::Of::kLosses: return absl::StrCat("the losses of micro-batch ", s.end, iteration);
    case Symbol::Of::kFold: return absl::StrCat("the fold of ", MicroBatches(0, s.end), iteration);
    case Symbol::Of::kSum: return absl::StrCat("the sum of ", MicroBatches(s.first, s.end), stage);
    case Symbol::Of::kSquares: return absl::StrCat("the squares", iteration, stage);
    case Symbol::Of::kNorm: return absl::StrCat("the norm", iteration);
    case Symbol::Of::kReceipt:
      return absl::StrCat("the receipt of worker ", s.stage, " for ", s.end, " parts of version ",
                          s.first);
    case Symbol::Of::kForwardDone:
      return absl::StrCat("the token of F", s.stage, " of micro-batch ", s.first);
    case Symbol::Of::kBackwardDone:
      return absl::StrCat("the token of B", s.stage, " of micro-batch ", s.first);
  }
  return "";
}

}  // namespace ringzero
