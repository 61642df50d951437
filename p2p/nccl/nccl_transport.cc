// Says which communicators there are, and makes a LaneTransport of them.
#include "p2p/nccl/nccl_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {

NcclPlan PlanNccl(WorkerId self, int workers, NcclPairs pairs, const LongHopOrder& order) {
  NcclPlan plan;
  plan.routes.to.assign(workers, kNoLane);
  plan.routes.from.assign(workers, kNoLane);
  for (int from = 0; from < workers; ++from) {
    for (int to = 0; to < workers; ++to) {
      const bool neighbours = to == from || to == (from + 1) % workers;
      if (pairs == NcclPairs::kNeighbours && !neighbours) continue;
      const int lane = static_cast<int>(plan.groups.size());
      NcclGroup group{.name = absl::StrCat(from, " -> ", to), .workers = {WorkerId(from)}};
      if (to != from) group.workers.push_back(WorkerId(to));
      plan.groups.push_back(std::move(group));
      if (from == self.value) plan.routes.to[to] = lane;
      if (to == self.value) plan.routes.from[from] = lane;
    }
  }
  // With two workers, or with all pairs, no hop is long.
  if (order == nullptr || pairs == NcclPairs::kAll || workers <= 2) return plan;
  plan.routes.long_hops = static_cast<int>(plan.groups.size());
  plan.routes.order = order;
  NcclGroup all{.name = "long hops"};
  for (int w = 0; w < workers; ++w) {
    all.workers.push_back(WorkerId(w));
    for (std::vector<int>* routes : {&plan.routes.to, &plan.routes.from}) {
      if ((*routes)[w] == kNoLane) (*routes)[w] = plan.routes.long_hops;
    }
  }
  plan.groups.push_back(std::move(all));
  return plan;
}

absl::StatusOr<std::unique_ptr<Transport>> CreateNcclTransport(const JobSeat& seat, NcclParts parts,
                                                               const TransportOptions& options) {
  RZ_RETURN_IF_ERROR(NcclAvailable());
  NcclPlan plan = PlanNccl(seat.self, seat.workers, parts.pairs, parts.order);
  RZ_ASSIGN_OR_RETURN(NcclLanes made, MakeNcclLanes(seat, plan.groups, parts.lane));
  return CreateLaneTransport({.name = "nccl",
                              .words = std::move(parts.words),
                              .news = std::move(parts.news),
                              .lanes = std::move(made.lanes),
                              .routes = std::move(plan.routes),
                              .memory = std::move(made.memory),
                              .word_kinds = std::move(parts.word_kinds),
                              .stall_limit = parts.stall_limit},
                             options);
}

}  // namespace ringzero
