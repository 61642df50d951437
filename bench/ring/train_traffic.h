// The traffic of training: every message that a plan's programs send, in their order and with their
// waits, without the computing.
//
//   RZ_ASSIGN_OR_RETURN(const Plan plan, ReadTrafficPlan("plan.txt"));
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Traffic> traffic,
//       MakeTrainTraffic({.waiting = &waiting, .payload = &payload, .plan = plan}));
//
// Each Time and each Check is a whole run of the plan (a Check: of 3 iterations). Computing
// operations are done as soon as they may start. Sums and versions go where the engine's would go;
// only a Check writes into them. Memory is as in the engine.
#ifndef RINGZERO_BENCH_RING_TRAIN_TRAFFIC_H_
#define RINGZERO_BENCH_RING_TRAIN_TRAFFIC_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "bench/ring/traffic.h"
#include "p2p/transport.h"
#include "sharding/plan.h"

namespace ringzero {

// Losses and metrics that are folded, as doubles.
inline constexpr int kTrainMetrics = 4;

// The plan in a file, without its evaluations and collections, which are no part of an iteration.
// InvalidArgument naming file and line, or what makes the plan impossible.
absl::StatusOr<Plan> ReadTrafficPlan(const std::string& file);

// Bytes that all workers together send in an iteration in the middle of a run.
absl::StatusOr<size_t> BytesPerIteration(const Plan& plan);

// Slots and memory that the plan asks of a worker's transport.
TransportOptions TrainNeeds(const Plan& plan, WorkerId self);

struct TrainSetup {
  Waiting* waiting = nullptr;  // outlives the traffic
  Payload* payload = nullptr;  // outlives the traffic; of the memory that the transport has
  Plan plan;                   // ReadTrafficPlan's
  bool damage = false;         // one bit of stage 0 is wrong in the check of repetition 1
};

absl::StatusOr<std::unique_ptr<Traffic>> MakeTrainTraffic(const TrainSetup& setup);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_TRAIN_TRAFFIC_H_
