// What messages a plan's iteration has, and what they ask of a transport: before anything runs.
//
//   RZ_ASSIGN_OR_RETURN(const Plan plan, ReadTrafficPlan("plan.txt"));
//   RZ_ASSIGN_OR_RETURN(const size_t bytes, BytesPerIteration(plan));
//
// Pure functions, but for the file.
#ifndef RINGZERO_BENCH_RING_TRAIN_MESSAGES_H_
#define RINGZERO_BENCH_RING_TRAIN_MESSAGES_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
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

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_TRAIN_MESSAGES_H_
