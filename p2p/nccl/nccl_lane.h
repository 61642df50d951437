// Lanes over NCCL: each is a communicator and its stream. And the memory of GPUs.
//
//   RZ_RETURN_IF_ERROR(NcclAvailable());
//   RZ_ASSIGN_OR_RETURN(NcclLanes made, MakeNcclLanes(seat, {.name = "0 -> 1", …}, options));
//
// Communicators are non-blocking: nothing here waits in NCCL, but MakeNcclLanes, up to a limit.
// CUDA and NCCL are loaded when the first of these functions is called, not with the program: a run
// that needs neither never maps them. Functions are thread-safe; lanes are as Lane says.
#ifndef RINGZERO_P2P_NCCL_NCCL_LANE_H_
#define RINGZERO_P2P_NCCL_NCCL_LANE_H_

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/arena.h"
#include "p2p/job/rendezvous.h"
#include "p2p/nccl/lane.h"
#include "p2p/nccl/lane_transport.h"

namespace ringzero {

// OK where lanes over NCCL can be made. Else why not: it was not built (Unimplemented), the
// libraries are not there or too old (FailedPrecondition), there is no GPU (Unavailable).
absl::Status NcclAvailable();
// How many GPUs this process sees; the error of NcclAvailable.
absl::StatusOr<int> NcclDevices();

// Memory of the GPU; or, as if it were the host's, what both address, slowly (tests).
enum class CudaPlace { kDevice, kManaged };

// NcclAvailable's error where there is none or this was not built; InvalidArgument for a GPU that
// is not there. Thread-safe.
absl::StatusOr<PayloadMemory> MakeCudaMemory(int device, CudaPlace place);

struct NcclLaneOptions {
  int device = 0;    // this worker's GPU; NCCL refuses two workers on one
  int max_ctas = 0;  // thread blocks that a lane's operation may occupy; 0: NCCL's choice
  CudaPlace place = CudaPlace::kDevice;
  // For all communicators together.
  std::chrono::milliseconds init_limit = std::chrono::minutes(2);
};

// Workers that share a FIFO.
struct NcclGroup {
  std::string name;  // "0 -> 1"; one per group
  std::vector<WorkerId> workers;
  bool Has(WorkerId worker) const { return std::ranges::count(workers, worker) != 0; }
};

struct NcclLanes {
  // One for each group; null where this worker is not in it.
  std::vector<std::unique_ptr<Lane>> lanes;
  PayloadMemory memory;
};

// `groups` are the same, in the same order, at all workers. Their identifiers travel over the
// seat's rendezvous; every connection is then used once, all together, so that none is set up
// later. InvalidArgument if two workers have the same GPU, DeadlineExceeded after init_limit.
absl::StatusOr<NcclLanes> MakeNcclLanes(const JobSeat& seat, const std::vector<NcclGroup>& groups,
                                        const NcclLaneOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_P2P_NCCL_NCCL_LANE_H_
