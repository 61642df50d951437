// Says which communicators there are, and makes a LaneTransport of them.
#include "p2p/nccl/nccl_transport.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace ringzero {

NcclPlan PlanNccl(WorkerId self, int workers, std::vector<WorkerPair> pairs) {
  const bool neighbours = pairs.empty() && workers > 1;
  for (int w = 0; w < workers; ++w) {
    pairs.emplace_back(WorkerId(w), WorkerId(w));
    if (neighbours) pairs.emplace_back(WorkerId(w), WorkerId((w + 1) % workers));
  }
  std::sort(pairs.begin(), pairs.end());
  NcclPlan plan;
  plan.routes.to.assign(workers, kNoLane);
  plan.routes.from.assign(workers, kNoLane);
  for (const auto& [from, to] : pairs) {
    const int lane = static_cast<int>(plan.pairs.size());
    plan.pairs.emplace_back(from, to);
    if (from == self) plan.routes.to[to.value] = lane;
    if (to == self) plan.routes.from[from.value] = lane;
  }
  return plan;
}

absl::StatusOr<std::unique_ptr<Transport>> CreateNcclTransport(const JobSeat& seat, NcclParts parts,
                                                               const TransportOptions& options) {
  RZ_RETURN_IF_ERROR(NcclAvailable());
  NcclPlan plan = PlanNccl(seat.self, seat.workers, std::move(parts.gpu.pairs));
  RZ_ASSIGN_OR_RETURN(NcclLanes made,
                      MakeNcclLanes(seat, plan.pairs, parts.gpu.device, parts.place));
  return CreateLaneTransport({.name = "nccl",
                              .words = std::move(parts.words),
                              .news = std::move(parts.news),
                              .lanes = std::move(made.lanes),
                              .routes = std::move(plan.routes),
                              .memory = std::move(made.memory),
                              .word_kinds = std::move(parts.gpu.word_kinds)},
                             options);
}

}  // namespace ringzero
