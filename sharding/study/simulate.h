// Simulate: the programs with costs: when everything happens, and who waits for what.
//
//   RZ_ASSIGN_OR_RETURN(Simulation run, Simulate(plan, {.latency_ticks = 1}));
//   run.makespan_ticks;  run.workers[2].waits.update;  run.peak_activations;
//
// Event-driven over the links that the engine executes. A tick is the unit of the stages' costs.
// Adds and updates never wait for a thread; with `cores`, all that computes shares these. Pure and
// deterministic.
#ifndef RINGZERO_SHARDING_STUDY_SIMULATE_H_
#define RINGZERO_SHARDING_STUDY_SIMULATE_H_

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "sharding/program/linked_ring.h"
#include "sharding/study/event.h"

namespace ringzero {

// What one stage takes.
struct StageTicks {
  int64_t forward = 0;  // of a micro-batch; also of an evaluation
  int64_t backward = 0;
  int64_t add = 0;     // its gradient into its sum
  int64_t update = 0;  // of an iteration
};
inline constexpr int64_t StageTicks::*kStageParts[] = {&StageTicks::forward, &StageTicks::backward,
                                                       &StageTicks::add, &StageTicks::update};

// What messages between hosts take beside everything else.
struct LinkTicks {
  std::vector<int> hosts;  // how many workers each has, in order, as Plan::hosts; empty: one each
  int64_t latency = 0;
  double per_byte = 0;  // messages from one worker to another follow each other
  std::string text;     // for the user: what they are, and who says so

  // The host of each worker.
  std::vector<int> HostsOf(int workers) const;
  // Without the latency.
  int64_t Of(int64_t bytes) const { return std::llround(per_byte * static_cast<double>(bytes)); }
};

// What the disk of each host takes of states that stream, and of versions in files; both ways.
struct DiskTicks {
  double per_byte = 0;   // of one worker's I/O, alone
  double at_once = 1;    // so many workers are each as fast as one alone; more share this rate
  double computing = 0;  // of a core, per byte: what the system does for it, and its checksum
  int64_t wake = 0;      // while all cores compute: until a thread sees what the disk has done
};

struct SimulationOptions {
  std::vector<StageTicks> stage_ticks;  // a profile, by stage; empty: the plan's costs
  int64_t latency_ticks = 0;  // from a message's departure to its arrival; any number at once
  LinkTicks links;
  DiskTicks disk;
  int64_t message_ticks = 0;  // of computing, by whoever sends, before it departs
  int64_t lap_ticks = 0;      // of computing at the end of each micro-batch: metrics, the next data
  int64_t add_ticks = 0;      // more for every add, and
  int64_t update_ticks = 0;   // every update than its stage's
  // Of the host that all workers share: what computes at the same time (all of the above but
  // latencies) advances at the same rate, each by one core at most. 0: as many as needed.
  int cores = 0;
  // More for one operation, by its number in the ring; of a receive, for its message on its way.
  std::function<int64_t(const RingOp& op, int number)> more_ticks;
};

// Ticks in which a worker's computing waited, by what came last.
struct WaitTicks {
  int64_t parameters = 0;     // a copy for training, relayed or injected
  int64_t gradient_sums = 0;  // more than `pending` gradients waited for their sums
  int64_t update = 0;         // an update of its own
  int64_t token = 0;          // the stagger
  int64_t evaluation = 0;     // copies and statistics of evaluations and of the collection
};

struct WorkerTimes {
  int64_t busy_ticks = 0;  // of computing, stretched where cores are shared
  WaitTicks waits;
  int64_t end_ticks = 0;  // its last computing is done
};

struct ComputedOp {
  int worker = 0;
  Op op;
  int64_t start_tick = 0;
  int64_t end_tick = 0;
};

// What one iteration (as messages are named: the receiver's) sends by one kind of message.
struct ChannelBytes {
  int iteration = 0;
  Channel channel = Channel::kNone;
  Copy copy = Copy::kNone;
  int64_t bytes = 0;  // metrics, norms and tokens count as 0
  int64_t messages = 0;
  int64_t link_ticks = 0;  // of those between hosts, each alone
};

struct Simulation {
  int64_t makespan_ticks = 0;
  double steady_iteration_ticks = 0;  // between ends of training iterations, second half of the run
  std::vector<WorkerTimes> workers;
  std::vector<WorkerTimes> iterations;  // all workers together; `end_ticks`: the sum of their ends
  // Each worker takes as long from iteration 1 to 2 as from 2 to 3: a run goes on like that. (Where
  // cores are shared workers overtake each other a little: all together, to one part in 1,000.)
  bool is_steady = false;
  std::vector<ComputedOp> computed;    // by worker, in program order
  int64_t peak_activations = 0;        // of all workers at one time
  std::vector<ChannelBytes> channels;  // ascending by iteration, channel, copy
};

// How many more activations, in stages of micro-batches, a worker holds when `op` has ended.
int ActivationsOf(const Plan& plan, const Op& op);

// The plan's own programs of the whole run.
absl::StatusOr<Simulation> Simulate(const Plan& plan, const SimulationOptions& options = {});

// A few iterations of a plan, without evaluations and collections, to be timed at several speeds.
class ShortRun {
 public:
  static constexpr int kIterations = 5;
  // Of these one that is as all others are, where Simulation::is_steady.
  static constexpr int kMiddle = kIterations - 2;

  // Errors of MakeProgram.
  static absl::StatusOr<ShortRun> Make(const Plan& plan);
  absl::StatusOr<Simulation> Simulate(const SimulationOptions& options) const;
  // The same plan, but with so many iterations.
  absl::StatusOr<Simulation> SimulateLonger(int iterations, const SimulationOptions& options) const;
  const Plan& plan() const { return plan_; }
  const LinkedRing& ring() const { return ring_; }

 private:
  ShortRun(Plan plan, LinkedRing ring) : plan_(std::move(plan)), ring_(std::move(ring)) {}

  Plan plan_;
  LinkedRing ring_;
};

// Start and end of every operation of a ring; a receive's start is its message's departure.
struct Timeline {
  std::vector<int64_t> start;
  std::vector<int64_t> end;
};

// FailedPrecondition, spelling out the circle of waits, if it gets stuck.
absl::StatusOr<Timeline> RunTimeline(const Plan& plan, const LinkedRing& ring,
                                     const SimulationOptions& options);

// The events that Simulate expects, as the engine would record them: of the whole run, by worker
// and time; times are ticks. The errors of Simulate.
absl::StatusOr<std::vector<std::vector<Event>>> PredictEvents(const Plan& plan,
                                                              const SimulationOptions& options);

// Slots of a channel with which messages hardly hold each other up. With too few slots a message
// that comes early holds up those behind it; more slots take memory. The smallest window, but none
// below ChooseWindow's, whose step takes at most 1 % longer than one without a limit. A step is
// simulated with the plan's costs, so all workers choose the same one. plan.window > 0: itself.
// Errors of ChooseWindow. Pure.
absl::StatusOr<int> ChooseFreeWindow(const Plan& plan);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_STUDY_SIMULATE_H_
