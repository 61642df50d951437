// The update rules and the sources of copies, as pure functions.
#include "sharding/rules/schedule.h"

#include <algorithm>

namespace ringzero {
namespace {

using Wide = __int128;

// Whether the run makes version v.
bool IsMade(const Plan& plan, Version v) {
  return plan.exchange && v.value > plan.first_iteration && v.value <= plan.iterations;
}

// One of every so many, or of those that are named.
bool IsAmong(Version v, int every, const std::vector<int>& versions) {
  return (every > 0 && v.value % every == 0) ||
         std::binary_search(versions.begin(), versions.end(), v.value);
}

// Where a worker reads a version of a stage within one iteration: the first and the last of its
// laps (0 to K-1) and its evaluation (EvaluationPlace).
struct Reads {
  std::optional<int> first, last;
};

// Before the laps of the iteration, or behind them.
int EvaluationPlace(const Plan& plan) { return plan.updates_in_place() ? -1 : plan.laps; }

Reads ReadsIn(const UpdateRule& rule, WorkerId w, int iteration, StageId j, Version v) {
  const Plan& plan = rule.plan();
  Reads reads;
  if (iteration < plan.first_iteration || iteration > plan.iterations) return reads;
  for (int l = 0; l < plan.laps && iteration < plan.iterations; ++l) {
    if (ReadVersion(rule, {w, Iteration(iteration), Lap(l)}, j) != v) continue;
    if (!reads.first) reads.first = l;
    reads.last = l;
  }
  if (IsEvaluated(plan, Version(iteration)) && VersionAfter(plan, j, iteration) == v) {
    const int place = EvaluationPlace(plan);
    reads.first = std::min(reads.first.value_or(place), place);
    reads.last = std::max(reads.last.value_or(place), place);
  }
  return reads;
}

// Whether a worker reads version v there, and not before; and not behind it.
bool IsFirst(const UpdateRule& rule, WorkerId w, int iteration, int place, StageId j, Version v) {
  return ReadsIn(rule, w, iteration, j, v).first == place &&
         !ReadsIn(rule, w, iteration - 1, j, v).first;
}
bool IsLast(const UpdateRule& rule, WorkerId w, int iteration, int place, StageId j, Version v) {
  return ReadsIn(rule, w, iteration, j, v).last == place &&
         !ReadsIn(rule, w, iteration + 1, j, v).first;
}

// A held copy is of a new version each iteration, or never comes again. Whoever reads a prediction
// in the first lap reads θ_t in the others.
int64_t HeldCopiesPerIteration(const UpdateRule& rule, StageId j) {
  const Plan& plan = rule.plan();
  if (plan.stage(j).sum_bytes == 0) return 0;
  int64_t copies = 0;
  for (int w = 0; w < plan.workers; ++w) {
    if (plan.owner(j).value == w) continue;
    const bool both = plan.predict && plan.laps > 1 && !ReadsFresh(rule, WorkerId(w), j);
    copies += both ? 2 : 1;
  }
  return copies;
}

}  // namespace

std::optional<MicroBatch> PreviousMicroBatch(const Plan& plan, const MicroBatch& m) {
  const auto& [w, t, l] = m;
  if (w.value > 0) return MicroBatch{WorkerId(w.value - 1), t, l};
  const WorkerId last(plan.workers - 1);
  if (l.value > 0) return MicroBatch{last, t, Lap(l.value - 1)};
  if (t.value == plan.first_iteration) return std::nullopt;
  return MicroBatch{last, Iteration(t.value - 1), Lap(plan.laps - 1)};
}

std::optional<MicroBatch> NextMicroBatch(const Plan& plan, const MicroBatch& m) {
  const auto& [w, t, l] = m;
  if (w.value + 1 < plan.workers) return MicroBatch{WorkerId(w.value + 1), t, l};
  if (l.value + 1 < plan.laps) return MicroBatch{WorkerId(0), t, Lap(l.value + 1)};
  if (t.value + 1 >= plan.iterations) return std::nullopt;
  return MicroBatch{WorkerId(0), Iteration(t.value + 1), Lap(0)};
}

// Before stage j: what happens between its sum being complete and its read in the next lap, the
// backwards and forwards of the stages before. Where all sums have to be complete (strict), the
// forwards alone.
UpdateRule::UpdateRule(const Plan& plan) : plan_(plan) {
  before_.reserve(plan.stages.size());
  int64_t before = 0;
  for (const StagePlan& stage : plan.stages) {
    before_.push_back(before);
    before += plan.strict ? stage.forward_cost : stage.computed_cost();
    total_ += stage.computed_cost();
  }
}

Plan WarmupOf(Plan plan) {
  plan.rule = Rule::kDp;
  plan.warmup_updates = 0;
  plan.predict = plan.stagger = plan.strict = false;
  return plan;
}

bool ReadsFresh(const UpdateRule& rule, WorkerId w, StageId j) {
  const Plan& plan = rule.plan();
  if (plan.rule == Rule::kDp) return true;
  if (plan.rule == Rule::kCdpV1) return false;
  // fresh iff P_j (strict: F_j) >= (N-1-w)·T/N + min(slack·T/S, T/N), both sides times N·S.
  const Wide total = rule.total();
  const Wide n = plan.workers, s = plan.stage_count();
  const Wide slack = std::min<Wide>(Wide(plan.slack) * total * n, total * s);
  return Wide(rule.before(j)) * n * s >= (n - 1 - w.value) * total * s + slack;
}

Version ReadVersion(const UpdateRule& rule, const MicroBatch& m, StageId j) {
  const Plan& plan = rule.plan();
  if (!plan.exchange || plan.stage(j).sum_bytes == 0) return Version(0);
  const bool fresh =
      m.lap.value > 0 || plan.rule_at(m.iteration) == Rule::kDp || ReadsFresh(rule, m.worker, j);
  if (fresh) return Version(m.iteration.value);
  return plan.predict ? Prediction(m.iteration.value) : Version(m.iteration.value - 1);
}

std::vector<Version> FirstVersions(const Plan& plan, StageId j) {
  const int first = plan.first_iteration;
  if (plan.stage(j).sum_bytes == 0) return {Version(0)};
  std::vector<Version> versions = {Version(first)};
  const bool warms_up = first < plan.warmup_updates;
  if (IsPredicted(plan, j)) {
    for (const int t : {first, first + 1}) {
      if (t >= plan.warmup_updates) versions.push_back(Prediction(t));
    }
  } else if (first > 0 && !warms_up && plan.exchange && !plan.updates_in_place()) {
    versions.push_back(Version(first - 1));
  }
  return versions;
}

std::vector<Version> SavedVersions(Plan plan, StageId j, Version v) {
  plan.first_iteration = v.value;
  return FirstVersions(plan, j);
}

std::vector<Version> OverwrittenVersions(const Plan& plan, Iteration t) {
  std::vector<Version> versions = {Version(plan.updates_in_place() ? t.value : t.value - 1)};
  if (plan.predict) versions.push_back(Prediction(t.value));
  return versions;
}

bool IsPredicted(const Plan& plan, StageId j) {
  // Of all workers 0 has the least time.
  const bool stale = plan.checkpoint.any() || !ReadsFresh(plan, WorkerId(0), j);
  return plan.predict && plan.exchange && plan.stage(j).sum_bytes > 0 && stale;
}

bool MakesPrediction(const Plan& plan, StageId j, Iteration t) {
  return t.value + 2 >= plan.warmup_updates && IsPredicted(plan, j);
}

Version VersionAfter(const Plan& plan, StageId j, int updates) {
  return Version(plan.stage(j).sum_bytes == 0 ? 0 : updates);
}

CopySource SourceOf(const UpdateRule& rule, const MicroBatch& m, StageId j) {
  const Plan& plan = rule.plan();
  const WorkerId owner = plan.owner(j);
  if (plan.has_masters(m.worker, j)) return {CopySource::How::kOwn, m.worker};
  const bool begins_lap = m.worker.value == 0 && m.lap.value > 0;
  if (begins_lap && plan.ends_laps_at_owners(m.iteration)) return {CopySource::How::kInject, owner};
  const std::optional<MicroBatch> previous = PreviousMicroBatch(plan, m);
  if (previous && ReadVersion(rule, *previous, j) == ReadVersion(rule, m, j)) {
    return {CopySource::How::kRelay, previous->worker};
  }
  return {CopySource::How::kInject, owner};
}

bool IsParked(const Plan& plan, Iteration t, StageId j) {
  const WorkerId owner = plan.owner(j);
  return plan.ends_laps_at_owners(t) && owner.value > 0 && owner != SumsEndAt(plan);
}

bool IsFirstRead(const UpdateRule& rule, const MicroBatch& m, StageId j) {
  return IsFirst(rule, m.worker, m.iteration.value, m.lap.value, j, ReadVersion(rule, m, j));
}

bool IsLastRead(const UpdateRule& rule, const MicroBatch& m, StageId j) {
  return IsLast(rule, m.worker, m.iteration.value, m.lap.value, j, ReadVersion(rule, m, j));
}

bool IsFirstReadOfEvaluation(const UpdateRule& rule, WorkerId w, Iteration t, StageId j) {
  const Plan& plan = rule.plan();
  return IsFirst(rule, w, t.value, EvaluationPlace(plan), j, VersionAfter(plan, j, t.value));
}

bool IsLastReadOfEvaluation(const UpdateRule& rule, WorkerId w, Iteration t, StageId j) {
  const Plan& plan = rule.plan();
  return IsLast(rule, w, t.value, EvaluationPlace(plan), j, VersionAfter(plan, j, t.value));
}

std::pair<OpKind, StageId> LastReadOfLap(const Plan& plan, StageId j) {
  if (plan.stage(j).has_backward) return {OpKind::kBackward, j};
  const StageId last = plan.last_use(j);
  return {plan.stage(last).has_backward ? OpKind::kBackward : OpKind::kForward, last};
}

CopySource EvaluationSourceOf(const Plan& plan, WorkerId w, StageId j) {
  const WorkerId owner = plan.owner(j);
  if (plan.has_masters(w, j)) return {CopySource::How::kOwn, w};
  if (w.value == 0) return {CopySource::How::kInject, owner};
  return {CopySource::How::kRelay, WorkerId(w.value - 1)};
}

bool HasBackwardCopy(const Plan& plan, StageId j) {
  return plan.stage(j).has_backward && !plan.holds_copies() &&
         j.value < plan.stage_count() - plan.retain;
}

bool IsEvaluated(const Plan& plan, Version v) {
  const auto& [every, laps, versions] = plan.evaluation;
  const bool among = v.value >= plan.first_iteration && v.value <= plan.iterations;
  if (!among || laps <= 0 || !plan.exchange) return false;
  if (std::binary_search(versions.begin(), versions.end(), v.value)) return true;
  return every > 0 && ((v.value > 0 && v.value % every == 0) || v.value == plan.iterations);
}

bool IsCollected(const Plan& plan, Version v) {
  return IsMade(plan, v) && IsAmong(v, plan.collection.every, plan.collection.versions);
}

bool IsSaved(const Plan& plan, Version v) {
  const CheckpointPlan& checkpoint = plan.checkpoint;
  const bool at_end = checkpoint.at_end && v.value == plan.iterations;
  return IsMade(plan, v) && (at_end || IsAmong(v, checkpoint.every, checkpoint.versions));
}

bool Saves(const Plan& plan, WorkerId w) {
  const bool last = w.value == plan.workers - 1;
  return std::ranges::any_of(plan.stages, [&](const StagePlan& stage) {
    return (stage.owner == w && stage.parameter_bytes > 0) || (last && stage.buffer_bytes > 0);
  });
}

std::optional<MicroBatch> FollowingLap(const Plan& plan, const MicroBatch& m) {
  const auto& [w, t, l] = m;
  if (l.value + 1 < plan.laps) return MicroBatch{w, t, Lap(l.value + 1)};
  const Version evaluated(t.value + (plan.updates_in_place() ? 1 : 0));
  if (IsEvaluated(plan, evaluated) || IsCollected(plan, evaluated)) return std::nullopt;
  const Iteration next(t.value + 1);
  if (next.value >= plan.iterations || plan.rule_at(next) == Rule::kDp) return std::nullopt;
  return MicroBatch{w, next, Lap(0)};
}

std::vector<StaggerToken> StaggerTokens(const Plan& plan) {
  const int stages = plan.stage_count();
  std::vector<Wide> ends;  // of the operations of two laps in a row
  Wide now = 0;
  for (int lap = 0; lap < 2; ++lap) {
    for (int q = 0; q < 2 * stages; ++q) {
      const StagePlan& stage = plan.stages[q < stages ? q : 2 * stages - 1 - q];
      if (q >= stages && !stage.has_backward) break;
      now += q < stages ? stage.forward_cost : stage.backward_cost;
      ends.push_back(now);
    }
  }
  const int operations = static_cast<int>(ends.size()) / 2;
  const Wide total = UpdateRule(plan).total();
  // A first operation longer than the distance breaks it; nothing then says that waiting for a
  // later lap ends.
  const int limit = ends[0] * plan.workers <= total ? 2 * operations : operations;
  std::vector<StaggerToken> tokens;
  int after = 0;
  for (int before = 0; before < operations; ++before) {
    const Wide begins = before == 0 ? 0 : ends[before - 1];
    while (after + 1 < limit && (ends[after + 1] - begins) * plan.workers <= total) ++after;
    const StaggerToken token{after % operations, after >= operations, before};
    const bool known = !tokens.empty() && tokens.back().after == token.after &&
                       tokens.back().in_following_lap == token.in_following_lap;
    if (!known) tokens.push_back(token);
  }
  return tokens;
}

int LeastWindow(const Plan& plan) {
  int least = 2 * plan.stages_per_worker();
  if (!plan.stagger) return least;
  for (const StaggerToken& token : StaggerTokens(plan)) {
    if (!token.in_following_lap) least = std::max(least, token.after - token.before + 1);
  }
  return least;
}

double StaleShare(const Plan& plan) {
  const UpdateRule rule(plan);
  int stale = 0;
  for (int w = 0; w < plan.workers; ++w) {
    for (int j = 0; j < plan.stage_count(); ++j) {
      if (!plan.exchange || plan.stages[j].sum_bytes == 0) continue;
      if (!ReadsFresh(rule, WorkerId(w), StageId(j))) ++stale;
    }
  }
  return static_cast<double>(stale) / (plan.workers * plan.stage_count());
}

std::vector<WorkerId> NormReceivers(const Plan& plan, Iteration t) {
  std::vector<WorkerId> receivers;
  if (!plan.has_norm() || plan.spreads_sums()) return receivers;
  const int used_by = t.value + (plan.clipping == Clipping::kPrevious ? 1 : 0);
  if (used_by >= plan.iterations && !plan.skips()) return receivers;
  for (int w = 1; w < plan.workers; ++w) {
    const bool updates = std::ranges::any_of(plan.stages, [w](const StagePlan& stage) {
      return stage.owner.value == w && stage.sum_bytes > 0;
    });
    if (updates || plan.skips()) receivers.push_back(WorkerId(w));
  }
  return receivers;
}

WireBytes SteadyWireBytes(const Plan& plan) {
  WireBytes bytes;
  const UpdateRule rule(plan);
  const int64_t n = plan.workers, k = plan.laps;
  const Iteration steady(plan.warmup_updates);
  if (n < 2 || !plan.exchange) return bytes;
  for (int j = 0; j < plan.stage_count(); ++j) {
    const StagePlan& stage = plan.stages[j];
    bytes.sums += (n * k - 1 + (IsParked(plan, steady, StageId(j)) ? k - 1 : 0)) * stage.sum_bytes;
    if (plan.spreads_sums()) {
      bytes.sums += (n - 1) * stage.sum_bytes;
      continue;
    }
    if (stage.owner != SumsEndAt(plan)) bytes.sums += stage.sum_bytes;
    int64_t copies = (n - 1) * k * (HasBackwardCopy(plan, StageId(j)) ? 2 : 1);
    if (plan.holds_copies()) copies = HeldCopiesPerIteration(rule, StageId(j));
    bytes.parameters += copies * stage.parameter_bytes;
  }
  return bytes;
}

namespace {

// Where a run begins, shortened. Whether its first version is evaluated stays as it is, though
// evaluations come closer together.
int ShortenedFirst(const Plan& plan) {
  const bool evaluated =
      plan.evaluation.every > 1 && IsEvaluated(plan, Version(plan.first_iteration));
  return evaluated ? 2 : std::min(plan.first_iteration, 1);
}

// Where its warm-up ends, if it has one left: behind the first iteration, one that follows, and the
// last. Whether θ_W is evaluated, with which the rule begins, stays as it is.
int ShortenedWarmup(const Plan& plan, int first) {
  constexpr int kEnough = 3;
  const int left = plan.warmup_updates - plan.first_iteration, every = plan.evaluation.every;
  if (left <= 0) return 0;
  const int warmup = first + std::min(left, kEnough);
  if (every <= 1) return warmup;
  const bool evaluated = plan.warmup_updates % every == 0;
  return evaluated == (warmup % 2 == 0) ? warmup : warmup + 1;
}

// What may be asked for while the run goes on: versions alone, one behind the other, and at the
// end.
void AddRequests(Plan& plan) {
  const int last = plan.iterations;
  const CollectionPlan& collected = plan.collection;
  const bool adds_collection = collected.on_request && collected.every == 0 && last > 0;
  if (adds_collection && collected.versions.empty()) plan.collection.versions = {last};
  if (plan.evaluation.laps == 0 || !plan.evaluation.versions.empty()) return;
  const bool planned = plan.evaluation.every > 0;  // the last one is evaluated in any case
  for (const int v : {planned ? last - 2 : last - 4, last - 1, last}) {
    if (v > plan.first_iteration) plan.evaluation.versions.push_back(v);
  }
}

// Samples of an iteration whose micro-batches are full.
int64_t FullIteration(const Plan& plan) {
  return int64_t{plan.workers} * plan.laps * plan.samples.micro_batch;
}

// Samples that are left of the epoch at the beginning of `iteration`, as far as it can take them.
int64_t SamplesOfIteration(const Plan& plan, Iteration iteration) {
  const int64_t full = FullIteration(plan);
  if (plan.samples.per_epoch == 0) return full;
  const int64_t taken = iteration.value % IterationsPerEpoch(plan) * full;
  return std::min(full, plan.samples.per_epoch - taken);
}

}  // namespace

Plan ShortenedPlan(const Plan& plan) {
  constexpr int kEnough = 5;
  // The first, which may be stale, the second, which takes what is injected after it, those that go
  // on and the last: among so many a worker's horizon has passed some.
  constexpr int kEnoughLaps = 5;
  Plan shortened = plan;
  shortened.laps = std::min(plan.laps, kEnoughLaps);
  // The first, one in the middle, and the last.
  shortened.evaluation.laps = std::min(plan.evaluation.laps, 3);
  if (plan.iterations - plan.first_iteration <= kEnough) {
    if (plan.requests) AddRequests(shortened);
    return shortened;
  }
  const int first = ShortenedFirst(plan), warmup = ShortenedWarmup(plan, first);
  const int of_rule =
      std::max(0, plan.iterations - std::max(plan.first_iteration, plan.warmup_updates));
  shortened.first_iteration = first;
  shortened.warmup_updates = warmup;
  shortened.iterations = std::max(first, warmup) + std::min(of_rule, kEnough - 1);
  // Every version collected: waits are only taken away where one is not.
  if (plan.collection.any()) {
    shortened.collection.every = 1;
    shortened.collection.versions.clear();
  }
  if (plan.checkpoint.any()) shortened.checkpoint = {.every = 1};
  if (plan.evaluation.every > 0) {
    // How closely evaluations follow each other, and the last one the one before it, is kept up to
    // 2.
    shortened.evaluation.every = std::min(plan.evaluation.every, 2);
    const bool last_two_adjacent = plan.iterations % plan.evaluation.every == 1;
    const bool are_adjacent = shortened.iterations % shortened.evaluation.every == 1;
    if (shortened.evaluation.every == 2 && last_two_adjacent != are_adjacent) {
      ++shortened.iterations;
    }
  }
  shortened.evaluation.versions.clear();
  if (plan.requests) {
    shortened.iterations += 2;  // room for what may be asked for
    AddRequests(shortened);
  }
  if (of_rule == 0) shortened.warmup_updates = shortened.iterations;
  return shortened;
}

int64_t IterationsPerEpoch(const Plan& plan) {
  const int64_t full = FullIteration(plan);
  return (plan.samples.per_epoch + full - 1) / full;
}

int64_t SamplesOf(const Plan& plan, Iteration iteration, int micro_batch) {
  const int64_t each = plan.samples.micro_batch;
  const int64_t left = SamplesOfIteration(plan, iteration) - micro_batch * each;
  return std::clamp<int64_t>(left, 0, each);
}

int64_t SamplesBefore(const Plan& plan, Iteration iteration) {
  const int64_t full = FullIteration(plan);
  if (plan.samples.per_epoch == 0) return iteration.value * full;
  const int64_t epoch = iteration.value / IterationsPerEpoch(plan);
  return epoch * plan.samples.per_epoch + iteration.value % IterationsPerEpoch(plan) * full;
}

double WeightOf(const Plan& plan, Iteration iteration, int micro_batch) {
  return static_cast<double>(SamplesOf(plan, iteration, micro_batch)) /
         static_cast<double>(plan.samples.micro_batch);
}

double DivisorOf(const Plan& plan, Iteration iteration) {
  return static_cast<double>(SamplesOfIteration(plan, iteration)) /
         static_cast<double>(plan.samples.micro_batch);
}

}  // namespace ringzero
