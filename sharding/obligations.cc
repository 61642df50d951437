// The definitions of docs/schedule.md, per micro-batch, update and evaluation.
#include "sharding/obligations.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sharding/label.h"

namespace ringzero {
namespace {

using Wide = __int128;

int64_t CostOfLap(const StagePlan& stage) {
  return stage.forward_cost + (stage.has_backward ? stage.backward_cost : 0);
}

// θ_t, the newest there can be, exists in time for worker w: everything before stage j, in both
// directions, takes as long as the workers to the right and the slack.
// Strict: all sums must be complete; then the backwards before stage j are over already.
bool ExistsInTime(const Plan& plan, int w, int j) {
  const Wide stages = plan.stage_count(), workers = plan.workers;
  Wide before = 0, lap = 0;
  for (int i = 0; i < plan.stage_count(); ++i) {
    const StagePlan& stage = plan.stages[i];
    if (i < j) before += plan.strict ? stage.forward_cost : CostOfLap(stage);
    lap += CostOfLap(plan.stages[i]);
  }
  // In units of 1 / (N·S) of a lap; slack beyond one worker's turn gives nothing more.
  const Wide have = before * stages * workers;
  const Wide turns = lap * stages * (workers - 1 - w);
  const Wide slack = lap * workers * plan.slack;
  return have - turns >= (slack < lap * stages ? slack : lap * stages);
}

// θ_t does not outlive iteration t: evaluations and collections look at it before.
bool LooksFirst(const Plan& plan) { return plan.rule == Rule::kDp || plan.predict; }

class Deriver {
 public:
  explicit Deriver(const Plan& plan) : plan_(plan) {
    must_.computing.resize(plan.workers);
    must_.rest.resize(plan.workers);
  }

  Obligations Derive() {
    evaluations_ = RequiredEvaluations(plan_);
    collections_ = RequiredCollections(plan_);
    if (plan_.stagger) waits_ = StaggerWaits(plan_);
    for (int w = 0; w < plan_.workers; ++w) Computing(w);
    if (plan_.exchange) {
      const int64_t run = int64_t{plan_.workers} * plan_.laps * plan_.iterations;
      for (int64_t m = 0; m < run; ++m) MicroBatchDuties(m);
      for (int t = 0; t < plan_.iterations; ++t) IterationDuties(t);
      for (const int version : evaluations_) EvaluationDuties(version);
      for (const int version : collections_) CollectionDuties(version);
      for (int w = 0; w < plan_.workers && Holds(); ++w) HeldCopyDuties(w);
      FinalDuties();
    }
    for (std::vector<Op>& rest : must_.rest) std::sort(rest.begin(), rest.end());
    return std::move(must_);
  }

 private:
  bool Holds() const { return plan_.zero_stage == 1 || plan_.zero_stage == 2; }
  // Every worker has all masters and updates them.
  bool Replicated() const { return plan_.zero_stage == 0; }
  static bool Trainable(const StagePlan& stage) { return stage.sum_bytes > 0; }
  int last_worker() const { return plan_.workers - 1; }
  bool Evaluated(int version) const {
    return std::find(evaluations_.begin(), evaluations_.end(), version) != evaluations_.end();
  }
  bool Collected(int version) const {
    return std::find(collections_.begin(), collections_.end(), version) != collections_.end();
  }
  int collector() const { return plan_.collection.worker.value; }
  bool ShowsState(const StagePlan& stage) const {
    return Trainable(stage) && stage.state_bytes > 0;
  }
  Version Newest(int j, int updates) const {
    return Version(Trainable(plan_.stages[j]) ? updates : 0);
  }

  void Computing(int w) {
    const bool early = LooksFirst(plan_);
    for (int t = 0; t <= plan_.iterations; ++t) {
      const bool evaluated = Evaluated(t), closing = t == plan_.iterations;
      if (evaluated && (early || closing)) EvaluationComputing(w, t);
      if (early || closing) CollectionComputing(w, t);
      for (int l = 0; l < plan_.laps && !closing; ++l) LapComputing({w, t, l});
      if (evaluated && !early && !closing) EvaluationComputing(w, t);
      if (!early && !closing) CollectionComputing(w, t);
    }
  }

  // Whoever collects sees parameters, sum and state of one stage after the other; worker 0 sees the
  // last version's parameters in any case.
  void CollectionComputing(int w, int version) {
    const bool whole = Collected(version) && w == collector();
    const bool result = plan_.exchange && version == plan_.iterations && w == 0;
    for (int j = 0; j < plan_.stage_count() && (whole || result); ++j) {
      const StagePlan& stage = plan_.stages[j];
      Op op{.kind = OpKind::kCollect, .stage = StageId(j), .iteration = Iteration(version)};
      const auto add = [&](Copy part, Version label) {
        op.copy = part;
        op.version = label;
        must_.computing[w].push_back(op);
      };
      add(Copy::kNone, Newest(j, version));
      if (whole && Trainable(stage)) add(Copy::kGradient, kNoVersion);
      if (whole && ShowsState(stage)) add(Copy::kState, kNoVersion);
    }
  }

  void LapComputing(const MicroBatchPlace& place) {
    std::vector<Op>& computing = must_.computing[place.worker];
    Op op{.iteration = Iteration(place.iteration), .lap = Lap(place.lap)};
    for (int i = 0; i < 2 * plan_.stage_count(); ++i) {
      const bool forward = i < plan_.stage_count();
      const int j = forward ? i : 2 * plan_.stage_count() - 1 - i;
      if (!forward && !plan_.stages[j].has_backward) continue;
      op.kind = forward ? OpKind::kForward : OpKind::kBackward;
      op.stage = StageId(j);
      op.version = Version(RequiredLabel(plan_, place, j));
      computing.push_back(op);
    }
    computing.push_back({.kind = OpKind::kEnd, .iteration = op.iteration, .lap = op.lap});
  }

  void EvaluationComputing(int w, int version) {
    for (int l = 0; l < plan_.evaluation.laps; ++l) {
      Op op{.kind = OpKind::kEvaluate, .iteration = Iteration(version), .lap = Lap(l)};
      for (int j = 0; j < plan_.stage_count(); ++j) {
        op.stage = StageId(j);
        op.version = Newest(j, version);
        must_.computing[w].push_back(op);
      }
      must_.computing[w].push_back({.kind = OpKind::kEnd,
                                    .copy = Copy::kEvaluation,
                                    .iteration = op.iteration,
                                    .lap = op.lap});
    }
  }

  void Do(int w, const Op& op) { must_.rest[w].push_back(op); }

  // `name` is what both ends call the message; nothing travels from a worker to itself.
  void Message(int from, int to, Op name) {
    name.kind = OpKind::kReceive;
    name.peer = WorkerId(from);
    Do(to, name);
    name.kind = OpKind::kSend;
    name.peer = WorkerId(to);
    Do(from, name);
  }

  void MicroBatchDuties(int64_t m) {
    const MicroBatchPlace place = PlaceOf(plan_, m);
    const bool travels = plan_.workers > 1;
    const bool starts_iteration = place.worker == 0 && place.lap == 0;
    const int previous = m > 0 ? PlaceOf(plan_, m - 1).worker : -1;
    Op op{.iteration = Iteration(place.iteration), .lap = Lap(place.lap)};
    const auto with = [&op](OpKind kind, Channel channel, int stage) {
      Op result = op;
      result.kind = kind;
      result.channel = channel;
      result.stage = StageId(stage);
      return result;
    };
    for (int j = 0; j < plan_.stage_count(); ++j) {
      const StagePlan& stage = plan_.stages[j];
      if (!Holds()) CopyDuty(m, j, Copy::kForward);
      if (!Holds() && stage.has_backward && j < plan_.stage_count() - plan_.retain) {
        CopyDuty(m, j, Copy::kBackward);
      }
      if (stage.buffer_bytes > 0) {
        if (travels && m > 0) {
          Message(previous, place.worker, with(OpKind::kSend, Channel::kBuffers, j));
        }
        Do(place.worker, with(OpKind::kApply, Channel::kNone, j));
      }
      if (Trainable(stage)) {
        if (travels && !starts_iteration) {
          Message(previous, place.worker, with(OpKind::kSend, Channel::kSum, j));
        }
        Do(place.worker, with(OpKind::kAdd, Channel::kNone, j));
      }
    }
    if (travels && !starts_iteration) {
      Message(previous, place.worker, with(OpKind::kSend, Channel::kMetrics, kNoStage.value));
    }
    Do(place.worker, with(OpKind::kFold, Channel::kNone, kNoStage.value));
    if (travels && plan_.stagger) {
      for (const StaggerWait& wait : waits_) {
        if (!HasStaggerToken(plan_, wait, m)) continue;
        Op token = with(OpKind::kSend, Channel::kToken, wait.begins.stage.value);
        token.copy = wait.begins.kind == OpKind::kForward ? Copy::kForward : Copy::kBackward;
        Message(previous, place.worker, token);
      }
    }
  }

  // Whoever does not own a stage gets every copy from the previous micro-batch, if it reads the
  // same.
  void CopyDuty(int64_t m, int j, Copy copy) {
    const MicroBatchPlace place = PlaceOf(plan_, m);
    const StagePlan& stage = plan_.stages[j];
    if (stage.parameter_bytes == 0 || stage.owner.value == place.worker || Replicated()) return;
    const int label = RequiredLabel(plan_, place, j);
    Op name{.copy = copy,
            .stage = StageId(j),
            .iteration = Iteration(place.iteration),
            .lap = Lap(place.lap),
            .version = Version(label)};
    if (m > 0 && RequiredLabel(plan_, PlaceOf(plan_, m - 1), j) == label) {
      name.channel = copy == Copy::kForward ? Channel::kForwardCopy : Channel::kBackwardCopy;
      Message(PlaceOf(plan_, m - 1).worker, place.worker, name);
    } else {
      name.channel = Channel::kInject;
      Message(stage.owner.value, place.worker, name);
    }
  }

  // Whoever reads a version of a stage that it does not own gets it once, for the first operation
  // of its computing that does, and lets go of it after the last.
  void HeldCopyDuties(int w) {
    std::map<std::pair<int, Version>, std::pair<Op, Op>> uses;  // (stage, version): first and last
    for (const Op& op : must_.computing[w]) {
      if (op.kind == OpKind::kCollect || op.kind == OpKind::kEnd) continue;
      for (int j = 0; j <= op.stage.value; ++j) {
        const StagePlan& stage = plan_.stages[j];
        const bool reads = j == op.stage.value || stage.last_use == op.stage;
        if (!reads || stage.parameter_bytes == 0 || stage.owner.value == w) continue;
        Version version = Newest(j, op.iteration.value);
        if (op.kind != OpKind::kEvaluate) {
          version = Version(RequiredLabel(plan_, {w, op.iteration.value, op.lap.value}, j));
        }
        uses.try_emplace({j, version}, op, op).first->second.second = op;
      }
    }
    for (const auto& [copy, use] : uses) {
      const auto& [j, version] = copy;
      FirstUseDuty(w, j, version, use.first);
      Do(w, {.kind = OpKind::kRelease,
             .stage = StageId(j),
             .iteration = use.second.iteration,
             .version = version});
    }
  }

  // An evaluation's comes from the left, from the owner at worker 0; a lap's from the previous
  // micro-batch, if it reads the same, else from the owner.
  void FirstUseDuty(int w, int j, Version version, const Op& first) {
    const bool evaluation = first.kind == OpKind::kEvaluate;
    Op name{.copy = evaluation ? Copy::kEvaluation : Copy::kForward,
            .stage = StageId(j),
            .iteration = first.iteration,
            .lap = first.lap,
            .version = version};
    int from = w - 1;
    name.channel = evaluation ? Channel::kEvaluation : Channel::kForwardCopy;
    const int64_t m = evaluation ? 0 : NumberOf(plan_, {w, first.iteration.value, first.lap.value});
    if (m > 0) from = PlaceOf(plan_, m - 1).worker;
    const bool relayed =
        evaluation ? w > 0
                   : m > 0 && RequiredLabel(plan_, PlaceOf(plan_, m - 1), j) == version.value;
    if (!relayed) {
      from = plan_.stages[j].owner.value;
      name.channel = Channel::kInject;
    }
    Message(from, w, name);
  }

  void IterationDuties(int t) {
    for (int j = 0; j < plan_.stage_count(); ++j) {
      const StagePlan& stage = plan_.stages[j];
      if (Trainable(stage)) {
        Op name{.channel = Channel::kRetire, .stage = StageId(j), .iteration = Iteration(t)};
        const Op update{.kind = OpKind::kUpdate,
                        .stage = StageId(j),
                        .iteration = Iteration(t),
                        .version = Version(t + 1)};
        if (Replicated()) {
          name.channel = Channel::kFinished;
          for (int w = 0; w < plan_.workers; ++w) {
            if (w != last_worker()) Message(w > 0 ? w - 1 : last_worker(), w, name);
            Do(w, update);
          }
        } else {
          const int owner = stage.owner.value;
          if (owner != last_worker()) Message(last_worker(), owner, name);
          Do(owner, update);
        }
      }
      const bool kept = Evaluated(t + 1) || Collected(t + 1) || t + 1 == plan_.iterations;
      if (stage.buffer_bytes > 0 && kept) SnapshotDuties(t + 1, j);
    }
    if (plan_.clipping != Clipping::kOff || plan_.skip_overflows) NormDuties(t);
    ReportDuty(t, Copy::kNone);
  }

  // Whoever updates a stage counts its squares. The global norm is made of all stages' where they
  // come together: at worker 0, which tells those who need it for an update, and all where it says
  // whether there is one; with replicas, which have all sums, everywhere.
  void NormDuties(int t) {
    const bool told = plan_.skip_overflows;
    const bool global = told || plan_.clipping != Clipping::kPerStage;
    const bool previous = plan_.clipping == Clipping::kPrevious;
    const bool used = !previous || t + 1 < plan_.iterations;
    std::vector<bool> updates(plan_.workers, false);
    const Op norm{.kind = OpKind::kNorm, .iteration = Iteration(t)};
    for (int j = 0; j < plan_.stage_count(); ++j) {
      if (!Trainable(plan_.stages[j])) continue;
      for (int w = 0; w < plan_.workers; ++w) {
        const bool owns = plan_.stages[j].owner.value == w;
        if (!owns && !Replicated()) continue;
        updates[w] = true;
        Do(w, {.kind = OpKind::kSquares, .stage = StageId(j), .iteration = Iteration(t)});
        if (w == 0 || Replicated() || !global) continue;
        Message(w, 0, {.channel = Channel::kNorms, .stage = StageId(j), .iteration = Iteration(t)});
      }
    }
    for (int w = 0; w < plan_.workers && global; ++w) {
      if (w == 0 || Replicated()) Do(w, norm);
      const bool needs = told || (updates[w] && used);
      if (w == 0 || Replicated() || !needs) continue;
      Message(0, w, {.channel = Channel::kNorms, .iteration = Iteration(t)});
    }
  }

  // Made where the last micro-batch is; everybody who evaluates, and worker 0 at the end, needs it.
  void SnapshotDuties(int version, int j) {
    const Op name{
        .channel = Channel::kSnapshots, .stage = StageId(j), .iteration = Iteration(version)};
    Do(last_worker(),
       {.kind = OpKind::kSnapshot, .stage = StageId(j), .iteration = Iteration(version)});
    const auto from_maker = [&](int to) {
      if (to != last_worker()) Message(last_worker(), to, name);
    };
    const bool result = version == plan_.iterations;
    if (Evaluated(version) || result) from_maker(0);
    for (int w = 1; w < last_worker() && Evaluated(version); ++w) Message(w - 1, w, name);
    const bool has_it = Evaluated(version) || (result && collector() == 0);
    if (Collected(version) && !has_it) from_maker(collector());
  }

  // Everything of the owner's: parameters, and copies of the sum and of the optimizer's state.
  void CollectionDuties(int version) {
    for (int j = 0; j < plan_.stage_count(); ++j) {
      const StagePlan& stage = plan_.stages[j];
      const int owner = Replicated() ? collector() : stage.owner.value;
      Op name{.stage = StageId(j), .iteration = Iteration(version)};
      Op keep = name;
      keep.kind = OpKind::kKeep;
      keep.copy = Copy::kGradient;
      if (Trainable(stage)) Do(owner, keep);
      keep.copy = Copy::kState;
      if (ShowsState(stage)) Do(owner, keep);
      if (owner == collector()) continue;
      name.channel = Channel::kStates;
      name.copy = Copy::kGradient;
      if (Trainable(stage)) Message(owner, collector(), name);
      name.copy = Copy::kState;
      if (ShowsState(stage)) Message(owner, collector(), name);
      name.channel = Channel::kCollection;
      name.copy = Copy::kCollection;
      name.version = Newest(j, version);
      if (stage.parameter_bytes > 0) Message(owner, collector(), name);
    }
  }

  void ReportDuty(int t, Copy copy) {
    const Op name{.channel = Channel::kReports, .copy = copy, .iteration = Iteration(t)};
    if (plan_.workers > 1) Message(last_worker(), 0, name);
    Do(0, {.kind = OpKind::kReport, .copy = copy, .iteration = Iteration(t)});
  }

  void EvaluationDuties(int version) {
    for (int l = 0; l < plan_.evaluation.laps; ++l) {
      for (int w = 0; w < plan_.workers; ++w) {
        Op name{.copy = Copy::kEvaluation, .iteration = Iteration(version), .lap = Lap(l)};
        name.channel = Channel::kMetrics;
        const int left = w > 0 ? w - 1 : last_worker();
        if ((l > 0 || w > 0) && plan_.workers > 1) Message(left, w, name);
        Do(w, {.kind = OpKind::kFold,
               .copy = Copy::kEvaluation,
               .iteration = name.iteration,
               .lap = name.lap});
        // Every lap's copies start at worker 0 and end at the last worker.
        for (int j = 0; j < plan_.stage_count(); ++j) {
          const StagePlan& stage = plan_.stages[j];
          if (stage.parameter_bytes == 0 || stage.owner.value == w) continue;
          if (Holds() || Replicated()) continue;
          name.channel = w == 0 ? Channel::kInject : Channel::kEvaluation;
          name.stage = StageId(j);
          name.version = Newest(j, version);
          Message(w == 0 ? stage.owner.value : left, w, name);
        }
      }
    }
    ReportDuty(version, Copy::kEvaluation);
  }

  // Worker 0 collects the result, unless it is shown all of that version.
  void FinalDuties() {
    if (Collected(plan_.iterations) && collector() == 0) return;
    for (int j = 0; j < plan_.stage_count(); ++j) {
      const StagePlan& stage = plan_.stages[j];
      if (stage.parameter_bytes == 0 || stage.owner.value == 0 || Replicated()) continue;
      Message(stage.owner.value, 0,
              {.channel = Channel::kCollection,
               .copy = Copy::kCollection,
               .stage = StageId(j),
               .iteration = Iteration(plan_.iterations),
               .version = Newest(j, plan_.iterations)});
    }
  }

  const Plan& plan_;
  std::vector<int> evaluations_;
  std::vector<int> collections_;
  std::vector<StaggerWait> waits_;
  Obligations must_;
};

}  // namespace

Obligations DeriveObligations(const Plan& plan) { return Deriver(plan).Derive(); }

MicroBatchPlace PlaceOf(const Plan& plan, int64_t micro_batch) {
  const int64_t round = micro_batch / plan.workers;
  return {.worker = static_cast<int>(micro_batch % plan.workers),
          .iteration = static_cast<int>(round / plan.laps),
          .lap = static_cast<int>(round % plan.laps)};
}

int64_t NumberOf(const Plan& plan, const MicroBatchPlace& place) {
  return (int64_t{place.iteration} * plan.laps + place.lap) * plan.workers + place.worker;
}

int RequiredLabel(const Plan& plan, const MicroBatchPlace& place, int j) {
  if (!plan.exchange || plan.stages[j].sum_bytes == 0) return 0;  // never updated
  const bool only_first_lap_is_stale = place.lap > 0;
  const int newest = place.iteration;
  const int late = plan.predict ? Prediction(newest).value : newest - 1;
  switch (plan.rule) {
    case Rule::kDp: return newest;
    case Rule::kCdpV1: return only_first_lap_is_stale ? newest : late;
    case Rule::kCdpV2:
      return only_first_lap_is_stale || ExistsInTime(plan, place.worker, j) ? newest : late;
  }
  return newest;
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
  if (m < 1) return false;
  if (!wait.in_next_lap) return true;
  const MicroBatchPlace finished = PlaceOf(plan, m - 1), next = PlaceOf(plan, m - 1 + plan.workers);
  if (next.iteration >= plan.iterations) return false;
  if (next.iteration == finished.iteration) return true;
  const auto among = [&](const std::vector<int>& versions) {
    const int between = finished.iteration + (LooksFirst(plan) ? 1 : 0);
    return std::find(versions.begin(), versions.end(), between) != versions.end();
  };
  return !among(RequiredEvaluations(plan)) && !among(RequiredCollections(plan));
}

std::vector<int> RequiredEvaluations(const Plan& plan) {
  std::vector<int> versions;
  const EvaluationPlan& evaluation = plan.evaluation;
  if (!plan.exchange || evaluation.every <= 0 || evaluation.laps <= 0) return versions;
  for (int v = evaluation.every; v < plan.iterations; v += evaluation.every) versions.push_back(v);
  versions.push_back(plan.iterations);
  return versions;
}

std::vector<int> RequiredCollections(const Plan& plan) {
  std::vector<int> versions;
  const CollectionPlan& collection = plan.collection;
  for (int v = 1; v <= plan.iterations && plan.exchange; ++v) {
    const bool due = collection.every > 0 && v % collection.every == 0;
    const bool named = std::find(collection.versions.begin(), collection.versions.end(), v) !=
                       collection.versions.end();
    if (due || named) versions.push_back(v);
  }
  return versions;
}

}  // namespace ringzero
