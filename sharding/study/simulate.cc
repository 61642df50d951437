// The event loop of a run: operations end, messages depart and arrive, slots become free. And what
// is read off its timeline.
#include "sharding/study/simulate.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <queue>
#include <span>
#include <tuple>

#include "base/status.h"
#include "sharding/check/verify.h"
#include "sharding/check/wait_graph.h"
#include "sharding/memory/block_table.h"
#include "sharding/program/kinds.h"
#include "sharding/program/loans.h"
#include "sharding/program/operands.h"
#include "sharding/rules/schedule.h"

namespace ringzero {
namespace {

// From θ_0 on, without a warm-up, evaluations, collections and checkpoints: what most iterations of
// a run are.
Plan RuleAlone(Plan plan) {
  plan.first_iteration = plan.warmup_updates = 0;
  plan.evaluation = {};
  plan.collection = {};
  plan.checkpoint = {};
  return plan;
}

// Metrics, norms and tokens count as 0.
int64_t BytesOf(const Plan& plan, const Op& message) {
  switch (message.channel) {
    case Channel::kMetrics:
    case Channel::kReports:
    case Channel::kNorms:
    case Channel::kReceipts:
    case Channel::kToken:
    case Channel::kReturn:
    case Channel::kReturnCopy: return 0;
    default: return MessageBytes(plan, message, 0);
  }
}

// When all of a ring happens.
struct TimedRing {
  LinkedRing ring;
  Timeline times;
};

// What ended last of all that operation i waited for; there must be something.
int LastCause(const LinkedRing& ring, const Timeline& times, int i) {
  return *std::ranges::max_element(ring.ops[i].after, {},
                                   [&](int after) { return times.end[after]; });
}

// The plan's own programs of the whole run.
absl::StatusOr<TimedRing> RunWhole(const Plan& plan, const SimulationOptions& options) {
  RZ_ASSIGN_OR_RETURN(LinkedRing ring, LinkedRing::Write(plan, /*in_pieces=*/true));
  RZ_ASSIGN_OR_RETURN(Timeline times, RunTimeline(plan, ring, options));
  return TimedRing{std::move(ring), std::move(times)};
}

class Tally {
 public:
  Tally(const Plan& plan, const LinkedRing& ring, const Timeline& times)
      : plan_(plan), ring_(ring), times_(times) {}

  Simulation Count(const SimulationOptions& options) {
    for (const int64_t end : times_.end) {
      result_.makespan_ticks = std::max(result_.makespan_ticks, end);
    }
    result_.iterations.resize(static_cast<size_t>(plan_.iterations) + 1);
    for (int w = 0; w < plan_.workers; ++w) CountWorker(w);
    result_.is_steady = IsSteady(options.cores > 0);
    result_.steady_iteration_ticks = SteadyIteration();
    CountMessages(options.links);
    CountActivations();
    return std::move(result_);
  }

 private:
  static constexpr int kSteadyFrom = 1;
  static_assert(kSteadyFrom + 2 == ShortRun::kMiddle);
  static constexpr int64_t kAlike = 1000;  // steps on shared cores: to so small a part of them

  void CountWorker(int w) {
    WorkerTimes worker;
    std::vector<int64_t> ends(result_.iterations.size());
    for (int i = ring_.begin[w]; i < ring_.begin[w + 1]; ++i) {
      const Op& op = ring_.op(i);
      if (!IsCompute(op.kind)) continue;
      const auto t = static_cast<size_t>(op.iteration.value);
      const int64_t ticks = times_.end[i] - times_.start[i];
      const int64_t gap = std::max<int64_t>(0, times_.start[i] - worker.end_ticks);
      for (WorkerTimes* const times : {&worker, &result_.iterations[t]}) {
        times->busy_ticks += ticks;
        if (gap > 0) *WaitCounter(times->waits, i) += gap;
      }
      worker.end_ticks = ends[t] = times_.end[i];
      result_.computed.push_back({w, op, times_.start[i], times_.end[i]});
    }
    for (size_t t = 0; t < ends.size(); ++t) result_.iterations[t].end_ticks += ends[t];
    result_.workers.push_back(worker);
    if (ends.size() > kSteadyFrom + 2) unsteady_ticks_ += std::abs(ChangeOf(ends));
  }

  // How much longer the second step from kSteadyFrom on takes than the first.
  static int64_t ChangeOf(const std::vector<int64_t>& ends) {
    return ends[kSteadyFrom + 2] - 2 * ends[kSteadyFrom + 1] + ends[kSteadyFrom];
  }

  bool IsSteady(bool shares_cores) const {
    if (plan_.iterations <= kSteadyFrom + 3) return false;
    if (!shares_cores) return unsteady_ticks_ == 0;
    std::vector<int64_t> ends;
    for (const WorkerTimes& all : result_.iterations) ends.push_back(all.end_ticks);
    return kAlike * std::abs(ChangeOf(ends)) <= ends[kSteadyFrom + 2] - ends[kSteadyFrom + 1];
  }

  // By the operation that ended last of those that operation i waited for.
  int64_t* WaitCounter(WaitTicks& waits, int i) const {
    const Op& op = ring_.op(LastCause(ring_, times_, i));
    const bool sum =
        op.kind == OpKind::kAdd || op.channel == Channel::kReturn || op.channel == Channel::kSum;
    if (sum) return &waits.gradient_sums;
    if (op.kind == OpKind::kUpdate) return &waits.update;
    if (op.channel == Channel::kToken) return &waits.token;
    const bool training = op.copy == Copy::kForward || op.copy == Copy::kBackward;
    return training ? &waits.parameters : &waits.evaluation;
  }

  double SteadyIteration() const {
    std::map<int, int64_t> ends;  // iteration -> when its last micro-batch was over
    for (const ComputedOp& computed : result_.computed) {
      if (computed.op.kind != OpKind::kEnd || computed.op.copy == Copy::kEvaluation) continue;
      int64_t& end = ends[computed.op.iteration.value];
      end = std::max(end, computed.end_tick);
    }
    if (ends.size() < 2) return static_cast<double>(result_.makespan_ticks);
    const int last = ends.rbegin()->first, from = (last - 1) / 2;
    return static_cast<double>(ends[last] - ends[from]) / (last - from);
  }

  void CountMessages(const LinkTicks& links) {
    const std::vector<int> hosts = links.HostsOf(plan_.workers);
    std::map<std::tuple<int, Channel, Copy>, ChannelBytes> channels;
    for (int i = 0; i < ring_.count(); ++i) {
      const Op& op = ring_.op(i);
      if (op.kind != OpKind::kSend) continue;
      ChannelBytes& bytes = channels[{op.iteration.value, op.channel, op.copy}];
      bytes.iteration = op.iteration.value;
      bytes.channel = op.channel;
      bytes.copy = op.copy;
      const int64_t size = BytesOf(plan_, op);
      bytes.bytes += size;
      ++bytes.messages;
      if (hosts[ring_.worker_of(i)] == hosts[op.peer.value]) continue;
      bytes.link_ticks += links.latency + links.Of(size);
    }
    for (const auto& [key, bytes] : channels) result_.channels.push_back(bytes);
  }

  void CountActivations() {
    std::vector<std::pair<int64_t, int>> changes;
    for (const ComputedOp& computed : result_.computed) {
      const int more = ActivationsOf(plan_, computed.op);
      if (more != 0) changes.push_back({computed.end_tick, more});
    }
    // Of one tick together: first those that end.
    std::sort(changes.begin(), changes.end());
    int64_t activations = 0;
    for (const auto& [tick, more] : changes) {
      activations += more;
      result_.peak_activations = std::max(result_.peak_activations, activations);
    }
  }

  const Plan& plan_;
  const LinkedRing& ring_;
  const Timeline& times_;
  int64_t unsteady_ticks_ = 0;  // by how much steps differ, all workers together
  Simulation result_;
};

}  // namespace

std::vector<int> LinkTicks::HostsOf(int workers) const {
  std::vector<int> all;
  for (const int count : hosts) all.insert(all.end(), count, static_cast<int>(all.size()));
  for (int w = static_cast<int>(all.size()); w < workers; ++w) all.push_back(w);
  return all;
}

// A stage without a backward keeps nothing for it.
int ActivationsOf(const Plan& plan, const Op& op) {
  if (op.kind == OpKind::kForward) return plan.stage(op.stage).has_backward ? 1 : 0;
  return op.kind == OpKind::kBackward ? -1 : 0;
}

absl::StatusOr<Simulation> Simulate(const Plan& plan, const SimulationOptions& options) {
  RZ_ASSIGN_OR_RETURN(const TimedRing timed, RunWhole(plan, options));
  return Tally(plan, timed.ring, timed.times).Count(options);
}

absl::StatusOr<ShortRun> ShortRun::Make(const Plan& plan) {
  Plan few = RuleAlone(plan);
  few.iterations = kIterations;
  RZ_ASSIGN_OR_RETURN(LinkedRing ring, LinkedRing::Write(few, /*in_pieces=*/true));
  return ShortRun(std::move(few), std::move(ring));
}

absl::StatusOr<Simulation> ShortRun::Simulate(const SimulationOptions& options) const {
  RZ_ASSIGN_OR_RETURN(const Timeline times, RunTimeline(plan_, ring_, options));
  return Tally(plan_, ring_, times).Count(options);
}

absl::StatusOr<Simulation> ShortRun::SimulateLonger(int iterations,
                                                    const SimulationOptions& options) const {
  Plan longer = plan_;
  longer.iterations = iterations;
  return ringzero::Simulate(longer, options);
}

namespace {

std::vector<Event> WorkerEvents(const TimedRing& timed, int w,
                                const std::vector<uint32_t>& messages) {
  const auto& [ring, times] = timed;
  std::vector<Event> events;
  int64_t computed_until = 0;
  for (int i = ring.begin[w]; i < ring.begin[w + 1]; ++i) {
    const Op& op = ring.op(i);
    // A receive starts when its message departs, elsewhere: here it happens when it arrives.
    const int64_t start = op.kind == OpKind::kReceive ? times.end[i] : times.start[i];
    if (IsCompute(op.kind)) {
      if (start > computed_until && !ring.ops[i].after.empty()) {
        const int cause = LastCause(ring, times, i);
        Op missing = ring.op(cause);
        const int where = ring.worker_of(cause);
        if (where != w) missing.peer = WorkerId(where);
        events.push_back({computed_until, EventKind::kWait, missing});
        events.push_back({start, EventKind::kWaited, missing});
      }
      computed_until = times.end[i];
    }
    events.push_back({start, EventKind::kBegin, op, messages[i]});
    events.push_back({times.end[i], EventKind::kEnd, op, messages[i]});
  }
  // By time; what begins and ends in one moment stays in its order within its track.
  std::ranges::stable_sort(events, {}, &Event::time);
  return events;
}

constexpr int kFewIterations = 3, kMoreIterations = 5;

absl::StatusOr<int64_t> Makespan(Plan plan, int iterations) {
  plan.iterations = iterations;
  RZ_ASSIGN_OR_RETURN(const LinkedRing ring, LinkedRing::Write(plan));
  RZ_ASSIGN_OR_RETURN(const Timeline times, RunTimeline(plan, ring, {}));
  return *std::ranges::max_element(times.end);
}

// In ticks, of a few iterations in the middle: begin and end are alike in both runs.
absl::StatusOr<int64_t> StepsWith(int window, Plan plan) {
  plan.window = window;
  RZ_ASSIGN_OR_RETURN(const int64_t less, Makespan(plan, kFewIterations));
  RZ_ASSIGN_OR_RETURN(const int64_t more, Makespan(plan, kMoreIterations));
  return more - less;
}

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// What advances at the same time: a few at full speed, more of them slower.
class Shared {
 public:
  explicit Shared(double at_once) : at_once_(at_once) {}

  void Join(int64_t now, int64_t ticks, int who) {
    Advance(now);
    ends_.push({progress_ + static_cast<double>(ticks), who});
  }
  // Of the first one, if nobody joins before.
  int64_t NextEnd() const {
    if (ends_.empty()) return kNever;
    const double left = (ends_.top().first - progress_) / Rate();
    constexpr double kRounding = 1e-6;  // of progress_: not to be taken for another tick
    return tick_ + std::max<int64_t>(0, static_cast<int64_t>(std::ceil(left - kRounding)));
  }
  // One more would be as fast as if it were alone.
  bool has_room() const { return static_cast<double>(ends_.size()) < at_once_; }
  // That one.
  int Leave() {
    Advance(NextEnd());
    const int who = ends_.top().second;
    ends_.pop();
    return who;
  }

 private:
  // Ticks that each of them gets done in one tick.
  double Rate() const { return std::min(1.0, at_once_ / static_cast<double>(ends_.size())); }
  // Before somebody joins or leaves.
  void Advance(int64_t now) {
    if (!ends_.empty()) progress_ += Rate() * static_cast<double>(now - tick_);
    tick_ = now;
  }

  using End = std::pair<double, int>;  // of progress, who
  const double at_once_;
  // What each who was there from the beginning would have got done, and at which of it others end.
  std::priority_queue<End, std::vector<End>, std::greater<End>> ends_;
  double progress_ = 0;
  int64_t tick_ = 0;
};

class Runner {
 public:
  Runner(const Plan& plan, const LinkedRing& ring, const SimulationOptions& options)
      : plan_(plan),
        ring_(ring),
        options_(options),
        states_(ring.count()),
        followers_(
            ring.count(), [&](int i) -> auto& { return ring.ops[i].after; }),
        begun_followers_(ring.count(),
                         [&](int i) {
                           const int& behind = ring.ops[i].behind;
                           return std::span(&behind, IsStreamed(i) ? 1 : 0);
                         }),
        channels_(ring.queues.size()),
        cores_(options.cores),
        hosts_(options.links.HostsOf(plan.workers)),
        stagings_(static_cast<size_t>(plan.workers)) {
    times_.start.assign(ring.count(), 0);
    times_.end.assign(ring.count(), -1);
    for (size_t q = 0; q < ring.queues.size(); ++q) {
      const MessageQueue& queue = ring.queues[q];
      if (hosts_[queue.from.value] != hosts_[queue.to.value]) {
        channels_[q].link = &links_[{queue.from, queue.to}];
      }
      for (const auto* const ends : {&queue.sends, &queue.receives}) {
        for (const int end : *ends) states_[end].queue = static_cast<int>(q);
      }
    }
    for (int i = 0; i < ring.count(); ++i) {
      State& state = states_[i];
      state.missing = static_cast<int>(ring.ops[i].after.size()) + (IsStreamed(i) ? 1 : 0);
      state.kind = ring.op(i).kind;
      state.is_word = IsWord(ring.ops[i]);
      state.ticks = Duration(i) + More(i) + DiskComputing(i);
    }
    FindStreams();
  }

  absl::StatusOr<Timeline> Run() {
    std::vector<int> ready;  // found first: one may start others
    for (int i = 0; i < ring_.count(); ++i) {
      if (states_[i].missing == 0) ready.push_back(i);
    }
    for (const int i : ready) Start(i, 0);
    while (Next()) {
    }
    if (ended_ == ring_.count()) return std::move(times_);
    RZ_RETURN_IF_ERROR(WaitGraph(ring_).CheckProgress());
    return FailedPrecondition("the run is stuck: states that stream wait for their staging");
  }

 private:
  // Of an operation; together, since each event needs most of it.
  struct State {
    int missing = 0;  // operations of `after` that are not done
    int queue = -1;
    OpKind kind = OpKind::kEnd;
    bool is_word = false;
    bool done = false;
    bool arrived = false;  // of a receive: its message
    int stream = -1;       // of streams_
    int64_t ticks = 0;     // what it takes
  };
  // An update whose states come in chunks, and go.
  struct Stream {
    int fetch, update, store;
    int chunks = 1;
    int64_t chunk_ticks = 0;  // of the disk, one way
    int asked = 0, fetched = 0, updated = 0, stored = 0;
    bool begun = false;     // the update
    bool computes = false;  // a chunk of it
  };
  struct Move {  // of a chunk; or of a version, by an operation of its own
    int stream = -1, op = -1;
    int64_t ticks = 0;
    bool writes = false;
  };
  // One worker's staging, and what moves: one chunk at a time.
  struct Staging {
    Shared* disk = nullptr;
    int64_t free = 0;          // chunks
    std::deque<int> to_fetch;  // streams, all that is left of each
    std::deque<Move> asked;    // fetches and versions, in their order
    std::deque<Move> stores;   // pieces that are written when none of `asked` is left
    std::optional<Move> moving;
  };
  struct ChannelState {
    std::deque<int> waiting;  // sends that have begun
    int64_t last_arrival = 0;
    int64_t* link = nullptr;  // until when the link is busy; null: within a host
  };
  using Event = std::pair<int64_t, int>;  // tick, operation; or -1 - a number of late_

  StageTicks TicksOf(StageId j) const {
    if (!options_.stage_ticks.empty()) return options_.stage_ticks[j.value];
    return {plan_.stage(j).forward_cost, plan_.stage(j).backward_cost};
  }

  int64_t Duration(int i) const {
    const Op& op = ring_.op(i);
    switch (KindOf(op.kind).cost) {
      case Cost::kNone: return 0;
      case Cost::kForward: return TicksOf(op.stage).forward;
      case Cost::kBackward: return TicksOf(op.stage).backward;
      case Cost::kAdd: return options_.add_ticks + TicksOf(op.stage).add;
      case Cost::kUpdate: return options_.update_ticks + TicksOf(op.stage).update;
      case Cost::kLap: return options_.lap_ticks;
      case Cost::kMessage: return options_.message_ticks;
    }
    return 0;
  }

  // Of a version that is moved, or of an update whose states come and go.
  int64_t DiskComputing(int i) const {
    const RingOp& op = ring_.ops[i];
    const bool updates = op.kind == OpKind::kUpdate && IsStreamed(i);
    if (!updates && !MovesVersion(op)) return 0;
    const StagePlan& stage = plan_.stage(op.stage);
    const int64_t bytes = updates ? 2 * stage.streamed_bytes : stage.parameter_bytes;
    return std::llround(options_.disk.computing * static_cast<double>(bytes));
  }

  int64_t More(int i) const {
    return options_.more_ticks ? options_.more_ticks(ring_.ops[i], i) : 0;
  }

  void Start(int i, int64_t now) {
    const State& state = states_[i];
    if (state.kind == OpKind::kReceive) {  // its message starts it
      if (!state.is_word) return Depart(state.queue, now);
      if (state.arrived && !state.done) events_.push({now, i});
      return;
    }
    times_.start[i] = now;
    if (state.stream >= 0) return StartStreamed(i, now);
    if (!MovesVersion(ring_.ops[i])) return Compute(i, state.ticks, now);
    const auto bytes = static_cast<double>(plan_.stage(ring_.op(i).stage).parameter_bytes);
    StagingOf(i).asked.push_back({.op = i, .ticks = std::llround(options_.disk.per_byte * bytes)});
    MoveChunk(ring_.worker_of(i), now);
  }

  // Or whatever else takes so long.
  void Compute(int i, int64_t ticks, int64_t now) {
    if (options_.cores == 0 || ticks == 0) return events_.push({now + ticks, i});
    cores_.Join(now, ticks, i);
  }

  // Whatever happens next; false: nothing.
  bool Next() {
    const int64_t event = events_.empty() ? kNever : events_.top().first;
    const int64_t computed = cores_.NextEnd();
    const auto disk = std::ranges::min_element(
        disks_, {}, [](const auto& each) { return each.second.NextEnd(); });
    const int64_t moved = disk == disks_.end() ? kNever : disk->second.NextEnd();
    const int64_t first = std::min({event, computed, moved});
    if (first == kNever) return false;
    if (event == first) {
      const int i = events_.top().second;
      events_.pop();
      i < 0 ? SeeChunk(late_[-1 - i], first) : Arrive(i, first);
    } else if (computed == first) {
      Arrive(cores_.Leave(), first);
    } else {
      EndChunk(disk->second.Leave(), first);
    }
    return true;
  }

  // An operation ends. What is lent may be here before the name that it is to have is free.
  void Arrive(int i, int64_t now) {
    const State& state = states_[i];
    if (state.stream >= 0 && state.kind == OpKind::kUpdate) return EndUpdateOfChunk(i, now);
    states_[i].arrived = true;
    if (state.missing == 0) End(i, now);
  }

  // Whether it waits for another's begin: it is a fetch, an update or a store that moves in pieces.
  bool IsStreamed(int i) const {
    const RingOp& op = ring_.ops[i];
    return op.behind >= 0 && !IsMessage(op.kind);
  }

  // With its disk.
  Staging& StagingOf(int i) {
    Staging& staging = stagings_[ring_.worker_of(i)];
    const int host = hosts_[ring_.worker_of(i)];
    staging.disk = &disks_.try_emplace(host, options_.disk.at_once).first->second;
    return staging;
  }

  void FindStreams() {
    for (int i = 0; i < ring_.count(); ++i) {
      if (!IsStreamed(i) || states_[i].kind != OpKind::kUpdate) continue;
      const int64_t bytes = plan_.stage(ring_.op(i).stage).streamed_bytes;
      Stream stream{.fetch = ring_.ops[i].behind, .update = i};
      if (options_.disk.per_byte > 0) {
        stream.chunks = static_cast<int>((bytes + ChunkBytes() - 1) / ChunkBytes());
        stream.chunk_ticks = std::llround(options_.disk.per_byte * static_cast<double>(bytes) /
                                          static_cast<double>(stream.chunks));
      }
      for (const int store : begun_followers_[i]) stream.store = store;
      for (const int op : {stream.fetch, stream.update, stream.store}) {
        states_[op].stream = static_cast<int>(streams_.size());
      }
      streams_.push_back(stream);
      StagingOf(i).free = std::max<int64_t>(1, plan_.staging_bytes / ChunkBytes());
    }
  }

  // A stage has so many at most. Of the engine's size where this is larger.
  static constexpr int64_t kMostChunks = 64, kLeastChunkBytes = 1 << 20;
  int64_t ChunkBytes() const {
    int64_t most = 0;
    for (const StagePlan& stage : plan_.stages) most = std::max(most, stage.streamed_bytes);
    return std::max(kLeastChunkBytes, (most + kMostChunks - 1) / kMostChunks);
  }

  void StartStreamed(int i, int64_t now) {
    const int number = states_[i].stream;
    if (states_[i].kind == OpKind::kFetch) {
      stagings_[ring_.worker_of(i)].to_fetch.push_back(number);
      AskForChunks(stagings_[ring_.worker_of(i)]);
    } else if (states_[i].kind == OpKind::kUpdate) {
      streams_[number].begun = true;
    }
    for (const int follower : begun_followers_[i]) {
      if (--states_[follower].missing == 0) Start(follower, now);
    }
    MoveChunk(ring_.worker_of(i), now);
    UpdateChunk(number, now);
    EndStore(number, now);
  }

  // The next one, if its state is there.
  void UpdateChunk(int number, int64_t now) {
    Stream& stream = streams_[number];
    const int chunk = stream.updated;
    if (!stream.begun || stream.computes || chunk == stream.fetched) return;
    stream.computes = true;
    const int64_t ticks = states_[stream.update].ticks;
    const auto until = [&](int chunks) { return ticks * chunks / stream.chunks; };
    Compute(stream.update, until(chunk + 1) - until(chunk), now);
  }

  void EndUpdateOfChunk(int i, int64_t now) {
    const int number = states_[i].stream;
    Stream& stream = streams_[number];
    stream.computes = false;
    stagings_[ring_.worker_of(i)].stores.push_back(
        {.stream = number, .ticks = stream.chunk_ticks, .writes = true});
    if (++stream.updated == stream.chunks) End(i, now);
    MoveChunk(ring_.worker_of(i), now);
    UpdateChunk(number, now);
  }

  // As many as there is room for.
  void AskForChunks(Staging& staging) {
    for (; !staging.to_fetch.empty() && staging.free > 0; --staging.free) {
      const int number = staging.to_fetch.front();
      staging.asked.push_back({.stream = number, .ticks = streams_[number].chunk_ticks});
      if (++streams_[number].asked == streams_[number].chunks) staging.to_fetch.pop_front();
    }
  }

  // StateStore, too, writes pieces behind what else is asked for.
  void MoveChunk(int worker, int64_t now) {
    Staging& staging = stagings_[worker];
    std::deque<Move>& moves = staging.asked.empty() ? staging.stores : staging.asked;
    if (staging.moving.has_value() || moves.empty()) return;
    staging.moving = moves.front();
    moves.pop_front();
    staging.disk->Join(now, staging.moving->ticks, worker);
  }

  // Its thread sees it at once, or when it gets one of the cores that all compute.
  void EndChunk(int worker, int64_t now) {
    const Move moved = *std::exchange(stagings_[worker].moving, std::nullopt);
    if (options_.disk.wake == 0 || options_.cores == 0 || cores_.has_room()) {
      return SeeChunk(moved, now);
    }
    late_.push_back(moved);
    events_.push({now + options_.disk.wake, -static_cast<int>(late_.size())});
    MoveChunk(worker, now);
  }

  void SeeChunk(Move moved, int64_t now) {
    const int worker = ring_.worker_of(moved.op >= 0 ? moved.op : streams_[moved.stream].update);
    Staging& staging = stagings_[worker];
    if (moved.op >= 0) {
      Compute(moved.op, states_[moved.op].ticks, now);
      return MoveChunk(worker, now);
    }
    const int number = moved.stream;
    Stream& stream = streams_[number];
    if (moved.writes) {
      ++staging.free;
      AskForChunks(staging);
      ++stream.stored;
      EndStore(number, now);
    } else if (++stream.fetched == stream.chunks) {
      End(stream.fetch, now);
    }
    UpdateChunk(number, now);
    MoveChunk(worker, now);
  }

  void EndStore(int number, int64_t now) {
    const Stream& stream = streams_[number];
    const State& store = states_[stream.store];
    const bool ends = stream.stored == stream.chunks && store.missing == 0 && !store.done;
    if (ends) End(stream.store, now);
  }

  void End(int i, int64_t now) {
    times_.end[i] = now;
    State& state = states_[i];
    state.done = true;
    ++ended_;
    for (const int follower : followers_[i]) {
      if (--states_[follower].missing == 0) Start(follower, now);
    }
    if (state.kind == OpKind::kSend) {
      channels_[state.queue].waiting.push_back(i);
      Depart(state.queue, now);
    }
  }

  void Depart(int queue, int64_t now) {
    ChannelState& channel = channels_[queue];
    while (!channel.waiting.empty()) {
      const int receive = ring_.partner[channel.waiting.front()];
      if (!states_[receive].is_word && states_[receive].missing > 0) return;  // its block is taken
      channel.waiting.pop_front();
      times_.start[receive] = now;
      int64_t arrival = now + options_.latency_ticks + More(receive);
      if (channel.link != nullptr) {
        const int64_t ticks = options_.links.Of(BytesOf(plan_, ring_.op(receive)));
        *channel.link = std::max(*channel.link, now) + ticks;
        arrival += *channel.link - now + options_.links.latency;
      }
      channel.last_arrival = std::max(channel.last_arrival, arrival);
      events_.push({channel.last_arrival, receive});
    }
  }

  const Plan& plan_;
  const LinkedRing& ring_;
  const SimulationOptions& options_;
  std::vector<State> states_;
  const Reverse followers_;        // of an operation's end
  const Reverse begun_followers_;  // and of its begin
  std::vector<ChannelState> channels_;
  std::map<std::pair<WorkerId, WorkerId>, int64_t> links_;  // by sender and receiver
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  Shared cores_;                  // operations
  const std::vector<int> hosts_;  // by worker
  std::map<int, Shared> disks_;   // by host: workers
  std::vector<Stream> streams_;
  std::vector<Staging> stagings_;  // by worker
  std::vector<Move> late_;         // moved, but not seen at once
  int ended_ = 0;
  Timeline times_;
};

}  // namespace

absl::StatusOr<std::vector<std::vector<Event>>> PredictEvents(const Plan& plan,
                                                              const SimulationOptions& options) {
  RZ_ASSIGN_OR_RETURN(const TimedRing timed, RunWhole(plan, options));
  const LinkedRing& ring = timed.ring;
  std::vector<uint32_t> messages(static_cast<size_t>(ring.count()), 0);
  for (const MessageQueue& queue : ring.queues) {
    for (size_t n = 0; n < queue.sends.size(); ++n) {
      messages[queue.sends[n]] = messages[queue.receives[n]] = static_cast<uint32_t>(n);
    }
  }
  std::vector<std::vector<Event>> events;
  for (int w = 0; w < plan.workers; ++w) events.push_back(WorkerEvents(timed, w, messages));
  return events;
}

absl::StatusOr<int> ChooseFreeWindow(const Plan& plan) {
  RZ_ASSIGN_OR_RETURN(int least, ChooseWindow(plan));
  if (plan.window > 0 || plan.workers == 1 || !plan.exchange) return least;
  if (plan.warmup_updates > 0) {
    RZ_ASSIGN_OR_RETURN(const int warmup, ChooseFreeWindow(WarmupOf(plan)));
    least = std::max(least, warmup);
  }
  // Messages come early from one lap to the next. With more laps the same waits are a smaller part.
  constexpr int kEnoughLaps = 4;
  Plan few = RuleAlone(plan);
  few.laps = std::min(plan.laps, kEnoughLaps);
  few.iterations = kMoreIterations;
  RZ_ASSIGN_OR_RETURN(const int no_limit, LargestUsefulWindow(few));
  const int most = std::max(least, no_limit);
  RZ_ASSIGN_OR_RETURN(const int64_t shortest, StepsWith(most, few));
  const auto is_enough = [&](int window) -> absl::StatusOr<bool> {
    RZ_ASSIGN_OR_RETURN(const int64_t step, StepsWith(window, few));
    return 100 * (step - shortest) <= shortest;
  };
  // Most often a few more do. More slots delay nothing, so all that are larger are enough, too.
  int low = least - 1, high = least;
  while (true) {
    RZ_ASSIGN_OR_RETURN(const bool enough, is_enough(high));
    if (enough) break;
    low = std::exchange(high, std::min(2 * high, most));
  }
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    RZ_ASSIGN_OR_RETURN(const bool enough, is_enough(middle));
    (enough ? high : low) = middle;
  }
  return high;
}

absl::StatusOr<Timeline> RunTimeline(const Plan& plan, const LinkedRing& ring,
                                     const SimulationOptions& options) {
  if (plan.window < 1 && plan.workers > 1) {
    return absl::InvalidArgumentError("plan: window is not resolved yet (ChooseWindow)");
  }
  const bool profiled = !options.stage_ticks.empty();
  if (profiled && std::ssize(options.stage_ticks) != plan.stage_count()) {
    return absl::InvalidArgumentError("simulation: stage_ticks must have one entry per stage");
  }
  return Runner(plan, ring, options).Run();
}

}  // namespace ringzero
