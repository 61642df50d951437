// MemoryLanes: lanes over the memory of one process, with NCCL's rules and nothing of its hardware.
//
//   auto group = MakeMemoryLaneGroup("0 -> 1", {WorkerId(0), WorkerId(1)}, HostMemory());
//   // One end for each worker:
//   std::unique_ptr<Lane> lane = MakeMemoryLane(group, WorkerId(0));
//
// The reference of NcclLane: what hangs there hangs here. A transfer is a copy, made by the end
// that comes second. The group is thread-safe; an end is for one thread at a time, as Lane says.
#ifndef RINGZERO_TESTS_P2P_MEMORY_LANE_H_
#define RINGZERO_TESTS_P2P_MEMORY_LANE_H_

#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "p2p/arena.h"
#include "p2p/nccl/lane.h"

namespace ringzero {

class MemoryLaneGroup;  // the FIFOs of all ends

// `memory`: what transfers go between.
std::shared_ptr<MemoryLaneGroup> MakeMemoryLaneGroup(std::string name,
                                                     const std::vector<WorkerId>& workers,
                                                     PayloadMemory memory);
// `self` is one of the group's workers, and has one end.
std::unique_ptr<Lane> MakeMemoryLane(std::shared_ptr<MemoryLaneGroup> group, WorkerId self);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_P2P_MEMORY_LANE_H_
