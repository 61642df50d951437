// Numbers that do not mix: workers, stages, versions, iterations and laps.
//
//   WorkerId owner(2);
//   Version next = Version(iteration.value + 1);
//
// Each is a plain int underneath (`.value`); arithmetic is done on the int, on purpose.
#ifndef RINGZERO_BASE_IDS_H_
#define RINGZERO_BASE_IDS_H_

#include <compare>

namespace ringzero {

template <typename Tag>
struct Id {
  constexpr Id() = default;
  constexpr explicit Id(int v) : value(v) {}
  constexpr auto operator<=>(const Id&) const = default;
  int value = 0;
};

// worker w = 0..N-1: one data-parallel replica.
using WorkerId = Id<struct WorkerTag>;
// stage j = 0..S-1: a run of consecutive layers, the unit that travels.
using StageId = Id<struct StageTag>;
// A label: version t = parameters after t updates; -1 is a label of its own, equal in value to 0.
using Version = Id<struct VersionTag>;
// iteration t: one update of every stage.
using Iteration = Id<struct IterationTag>;
// lap l = 0..K-1 of an iteration, an accumulation step: one micro-batch per worker.
using Lap = Id<struct LapTag>;

}  // namespace ringzero

#endif  // RINGZERO_BASE_IDS_H_
