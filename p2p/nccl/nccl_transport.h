// NcclTransport: payload over NCCL between GPUs, words over another transport.
//
//   auto news = std::make_shared<LaneNews>();
//   ... words: shm or ucx, made with LaneWordsOptions(options, news) ...
//   RZ_ASSIGN_OR_RETURN(auto transport, CreateNcclTransport(seat, {.words = std::move(words),
//                           .news = news, .lane = {.device = 0}},
//                           options));
//
// One communicator and stream for every ordered pair of workers that exchange payload (`pairs`), and
// one for each worker's messages to itself. Payload lies in the GPU's memory
// (TransportOptions::memory = MemoryKind::kCuda). As LaneTransport otherwise.
#ifndef RINGZERO_P2P_NCCL_NCCL_TRANSPORT_H_
#define RINGZERO_P2P_NCCL_NCCL_TRANSPORT_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/job/rendezvous.h"
#include "p2p/nccl/lane_transport.h"
#include "p2p/nccl/nccl_lane.h"
#include "p2p/transport.h"

namespace ringzero {

struct NcclParts {
  std::unique_ptr<Transport> words;
  std::shared_ptr<LaneNews> news;
  NcclLaneOptions lane;
  // Of different workers, the same at all; a message of another pair is an error. None: from each
  // worker to the one on its right.
  std::vector<WorkerPair> pairs;
  std::vector<uint8_t> word_kinds;  // as in LaneParts
  std::chrono::milliseconds stall_limit = std::chrono::seconds(60);
};

// The groups of workers that share a FIFO, in the order of all workers, and where each of `self`'s
// messages goes (lane i is group i). A pure function.
struct NcclPlan {
  std::vector<NcclGroup> groups;
  LaneRoutes routes;
};
NcclPlan PlanNccl(WorkerId self, int workers, std::vector<WorkerPair> pairs);

// NcclAvailable's error where there is none; else MakeNcclLanes's and CreateLaneTransport's.
absl::StatusOr<std::unique_ptr<Transport>> CreateNcclTransport(const JobSeat& seat, NcclParts parts,
                                                               const TransportOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_P2P_NCCL_NCCL_TRANSPORT_H_
