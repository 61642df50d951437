// FlatShards: which worker updates which parameters, and where they lie in its one flat shard.
//
//   RZ_ASSIGN_OR_RETURN(FlatShards shards, FlatShards::Make(parameters, /*workers=*/3));
//   shards.places[7];                    // parameter 7 of the model: shard 2, its number 1 there
//   shards.layouts[2].parameters[1];     // at offset_bytes, a multiple of 64
//
// By bytes: the largest parameter first, each to the shard that has least (the lower number where
// two have as little); within a shard in the order of the model. So the cut depends on nothing but
// sizes and order. A parameter is never cut: no shard is larger than the mean by more than one
// parameter, but where one parameter is half of the model, its owner holds half of all states and
// does half of all updates, however many workers there are. A value.
#ifndef RINGZERO_ZERO_FLAT_SHARDS_H_
#define RINGZERO_ZERO_FLAT_SHARDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "zero/layout.h"

namespace ringzero {

struct FlatShards {
  struct Place {
    int shard = 0;
    int parameter = 0;  // in layouts[shard]
  };
  std::vector<StageLayout> layouts;  // by worker; one may be empty
  std::vector<Place> places;         // by parameter of the model

  // InvalidArgument: no worker, no parameter, a name twice.
  static absl::StatusOr<FlatShards> Make(const std::vector<ParameterSpec>& parameters, int workers);

  int count() const { return static_cast<int>(layouts.size()); }
};

// "worker 0 owns 16640 bytes of parameters, worker 1 1292; the fullest has 1.86 times the mean".
// Moments are as many bytes for each value of a parameter, so they are shared in the same way.
std::string DescribeOwners(const FlatShards& shards);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_FLAT_SHARDS_H_
