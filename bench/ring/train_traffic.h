// The traffic of training: every message that a plan's programs send, in their order and with their
// waits, without the computing.
//
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Traffic> traffic,
//       MakeTrainTraffic({.waiting = &waiting, .payload = &payload, .plan = plan}));
//
// Each Time and each Check is a whole run of the plan (a Check: of 3 iterations). Computing
// operations are done as soon as they may start. Sums and versions go where the engine's would go;
// only a Check writes into them. Memory is as in the engine.
#ifndef RINGZERO_BENCH_RING_TRAIN_TRAFFIC_H_
#define RINGZERO_BENCH_RING_TRAIN_TRAFFIC_H_

#include <memory>

#include "absl/status/statusor.h"
#include "bench/ring/traffic.h"
#include "sharding/plan.h"

namespace ringzero {

struct TrainSetup {
  Waiting* waiting = nullptr;  // outlives the traffic
  Payload* payload = nullptr;  // outlives the traffic; of the memory that the transport has
  Plan plan;                   // train_messages.h's ReadTrafficPlan
  bool damage = false;         // one bit of stage 0 is wrong in the check of repetition 1
};

absl::StatusOr<std::unique_ptr<Traffic>> MakeTrainTraffic(const TrainSetup& setup);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_TRAIN_TRAFFIC_H_
