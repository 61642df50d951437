// The traffic of training: every message that a plan's programs send, in their order and with their
// waits, without the computing.
//
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Traffic> traffic,
//                       MakeTrainTraffic({.waiting = &waiting, .plan = plan}));
//
// Each Time and each Check is a whole run of the plan with as many iterations: what computes is
// done as soon as it may start, sums and versions go where the engine's would go, and nothing is
// written into them (but in a Check). Memory and credit are the engine's.
#ifndef RINGZERO_BENCH_RING_TRAIN_TRAFFIC_H_
#define RINGZERO_BENCH_RING_TRAIN_TRAFFIC_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/ring/traffic.h"
#include "p2p/transport.h"
#include "sharding/plan.h"

namespace ringzero {

struct TrainSetup {
  Waiting* waiting = nullptr;  // outlives the traffic
  Plan plan;                   // ReadTrafficPlan's
};

// The plan in a file, without its evaluations and collections, which are no part of an iteration.
// InvalidArgument naming file and line, or what makes the plan impossible.
absl::StatusOr<Plan> ReadTrafficPlan(const std::string& file);

absl::StatusOr<std::unique_ptr<Traffic>> MakeTrainTraffic(const TrainSetup& setup);

// Bytes that all workers together send in an iteration in the middle of a run.
absl::StatusOr<size_t> BytesPerIteration(const Plan& plan);

// Slots and memory that the plan asks of a worker's transport.
TransportOptions TrainNeeds(const Plan& plan, WorkerId self);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_TRAIN_TRAFFIC_H_
