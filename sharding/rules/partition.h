// Partition: a model's layers cut into stages, and the stages given to owners.
//
//   std::vector<LayerInfo> layers = ...;   // in model order
//   PartitionOptions options{.stages = DefaultStageCount(layers, plan.workers)};
//   RZ_ASSIGN_OR_RETURN(plan.stages, PartitionLayers(layers, options));
//   AssignOwners(plan);
//
// Pure and deterministic: every worker computes the same stages from the same layers.
#ifndef RINGZERO_SHARDING_RULES_PARTITION_H_
#define RINGZERO_SHARDING_RULES_PARTITION_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sharding/plan.h"

namespace ringzero {

// A layer as numbers: the smallest unit that a stage may hold.
struct LayerInfo {
  std::string name;
  int64_t parameter_bytes = 0;  // one version as it travels
  int64_t sum_bytes = 0;        // one gradient sum as it travels
  int64_t buffer_bytes = 0;     // running statistics
  int64_t forward_cost = 1;     // any common unit
  int64_t backward_cost = 1;
  int last_use = -1;      // tied: the last layer that reads these parameters too; -1: none
  bool trainable = true;  // false: frozen, sum_bytes do not count
};

enum class Balance {
  kCost,   // the most expensive stage (forward and backward) is as cheap as it can be
  kBytes,  // the largest stage (parameters) is as small as it can be
};

struct PartitionOptions {
  Balance balance = Balance::kCost;
  int stages = 1;  // S
  // Where stages begin, from 0, ascending: then neither of the above is read. Empty: not given.
  std::vector<int> first_layers;
};

// S = k·N with the largest k <= 4 for which so many layers have parameters; with fewer such layers
// than workers, their number (at least 1): some workers then own nothing, and the caller says so.
int DefaultStageCount(std::span<const LayerInfo> layers, int workers);

// Contiguous, non-empty stages; the maximum is optimal, then the sum of squares, then earlier
// stages take more layers. Stages before the first trainable layer have no backward (has_backward =
// false); costs count only the backwards that are computed. Owners are all 0 (AssignOwners). A
// stage is named after its layers ("conv1" or "conv1..conv3"). InvalidArgument if S is not 1 to the
// number of layers, if first_layers are not ascending from 0, or if a layer's numbers make no
// sense.
absl::StatusOr<std::vector<StagePlan>> PartitionLayers(std::span<const LayerInfo> layers,
                                                       const PartitionOptions& options);

// Sets the owner of every stage: no owner holds more than longest-first greedy gives the fullest
// one, and within that bound stage j goes to its home N-1 - floor(j·N/S) wherever it fits. S = k·N
// equal stages are all at home. Needs plan.workers >= 1.
void AssignOwners(Plan& plan);

// Bytes per owner as AssignOwners balances them: parameters (the versions) and sums (masters and
// optimizer state grow with them; a frozen stage has none).
struct OwnerBytes {
  std::vector<int64_t> bytes;  // one per worker
  int64_t max = 0;
  double mean = 0;
};
OwnerBytes BytesPerOwner(const Plan& plan);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_RULES_PARTITION_H_
