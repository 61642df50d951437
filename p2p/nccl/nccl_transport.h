// NcclTransport: payload over NCCL between GPUs, words over another transport.
//
//   auto news = std::make_shared<LaneNews>();
//   ... words: shm or ucx, made with LaneWordsOptions(options, news) ...
//   RZ_ASSIGN_OR_RETURN(auto transport, CreateNcclTransport(seat, {.words = std::move(words),
//                           .news = news, .lane = {.device = 0}},
//                           options));
//
// One communicator and stream for every ordered pair of workers that exchange payload (`pairs`),
// one for messages to oneself, and, with `order`, one for all other pairs together. Payload lies in
// the GPU's memory (TransportOptions::memory = MemoryKind::kCuda). As LaneTransport otherwise.
#ifndef RINGZERO_P2P_NCCL_NCCL_TRANSPORT_H_
#define RINGZERO_P2P_NCCL_NCCL_TRANSPORT_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/nccl/lane_transport.h"
#include "p2p/nccl/nccl_lane.h"
#include "p2p/rendezvous/rendezvous.h"
#include "p2p/transport.h"

namespace ringzero {

enum class NcclPairs {
  kNeighbours,  // from each worker to the one on its right, and to itself
  kAll,         // N² communicators in all, 2N - 1 of them at each worker: small N
};

struct NcclParts {
  std::unique_ptr<Transport> words;
  std::shared_ptr<LaneNews> news;
  NcclLaneOptions lane;
  NcclPairs pairs = NcclPairs::kNeighbours;
  LongHopOrder order;               // none: a message that no pair carries is an error
  std::vector<uint8_t> word_kinds;  // likewise
  std::chrono::milliseconds stall_limit = std::chrono::seconds(60);
};

// The groups of workers that share a FIFO, in the order of all workers, and where each of `self`'s
// messages goes (lane i is group i). A pure function.
struct NcclPlan {
  std::vector<NcclGroup> groups;
  LaneRoutes routes;
};
NcclPlan PlanNccl(WorkerId self, int workers, NcclPairs pairs, const LongHopOrder& order);

// NcclAvailable's error where there is none; else MakeNcclLanes's and CreateLaneTransport's.
absl::StatusOr<std::unique_ptr<Transport>> CreateNcclTransport(const JobSeat& seat, NcclParts parts,
                                                               const TransportOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_P2P_NCCL_NCCL_TRANSPORT_H_
