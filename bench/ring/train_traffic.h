// The traffic of training: every message that a plan's programs send, in their order and with their
// waits, without the computing.
//
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Traffic> traffic,
//       MakeTrainTraffic({.waiting = &waiting, .payload = &payload, .plan = plan}));
//
// Each Time and each Check is a whole run of the plan with as many iterations: what computes is
// done as soon as it may start, sums and versions go where the engine's would go, and nothing is
// written into them (but in a Check). Memory and credit are the engine's.
#ifndef RINGZERO_BENCH_RING_TRAIN_TRAFFIC_H_
#define RINGZERO_BENCH_RING_TRAIN_TRAFFIC_H_

#include <memory>

#include "absl/status/statusor.h"
#include "bench/ring/traffic.h"
#include "sharding/plan.h"

namespace ringzero {

struct TrainSetup {
  Waiting* waiting = nullptr;  // outlives the traffic
  Payload* payload = nullptr;  // likewise; of the memory that the transport has
  Plan plan;                   // train_messages.h's ReadTrafficPlan
};

absl::StatusOr<std::unique_ptr<Traffic>> MakeTrainTraffic(const TrainSetup& setup);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_TRAIN_TRAFFIC_H_
