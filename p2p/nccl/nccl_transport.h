// NcclTransport: payload over NCCL between GPUs, words over another transport. The lanes that it is
// made of: each is a communicator and its stream. And the memory of GPUs.
//
//   RZ_ASSIGN_OR_RETURN(auto transport, CreateNcclTransport(seat, {.words = std::move(words),
//                           .news = news, .gpu = {.device = 0}}, options));
//
// There is a lane for every ordered pair of workers that exchange payload (`pairs`), and one for
// each worker's messages to itself. Payload lies in the GPU's memory (TransportOptions::memory =
// MemoryKind::kCuda). As LaneTransport otherwise.
//
// Communicators are non-blocking: nothing here waits in NCCL, but MakeNcclLanes, up to a limit.
// CUDA and NCCL are loaded when the first of these functions is called, not with the program: a run
// that needs neither never maps them. Functions are thread-safe; lanes are as Lane says.
#ifndef RINGZERO_P2P_NCCL_NCCL_TRANSPORT_H_
#define RINGZERO_P2P_NCCL_NCCL_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/arena.h"
#include "p2p/job/rendezvous.h"
#include "p2p/nccl/lane.h"
#include "p2p/nccl/lane_transport.h"
#include "p2p/transport.h"

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

struct NcclLanes {
  // One for each pair; null where this worker is not of it.
  std::vector<std::unique_ptr<Lane>> lanes;
  PayloadMemory memory;
};

// `pairs` are the same, in the same order, at all workers. Their identifiers travel over the
// seat's rendezvous; every connection is then used once, all together, so that none is set up
// later. InvalidArgument if two workers have the same GPU, DeadlineExceeded after 2 minutes.
absl::StatusOr<NcclLanes> MakeNcclLanes(const JobSeat& seat, const std::vector<WorkerPair>& pairs,
                                        int device, CudaPlace place);

// For payload in GPUs' memory.
struct GpuNeeds {
  int device = 0;  // this worker's GPU, where its payload lies; NCCL refuses two workers on one
  // nccl: who sends payload to whom. Of different workers, the same at all; a message of another
  // pair is an error. None: from each worker to the one on its right.
  std::vector<WorkerPair> pairs;
  std::vector<uint8_t> word_kinds;  // nccl: as in LaneParts
};

struct NcclParts {
  std::unique_ptr<Transport> words;
  std::shared_ptr<LaneNews> news;
  GpuNeeds gpu;
  CudaPlace place = CudaPlace::kDevice;
};

// The pairs that have a lane, in the order of all workers, and where each of `self`'s messages goes
// (lane i is of pair i). A pure function.
struct NcclPlan {
  std::vector<WorkerPair> pairs;
  LaneRoutes routes;
};
NcclPlan PlanNccl(WorkerId self, int workers, std::vector<WorkerPair> pairs);

// NcclAvailable's error where there is none; else MakeNcclLanes's and CreateLaneTransport's.
absl::StatusOr<std::unique_ptr<Transport>> CreateNcclTransport(const JobSeat& seat, NcclParts parts,
                                                               const TransportOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_P2P_NCCL_NCCL_TRANSPORT_H_
