// Runs of a tier file, stage by stage and parameter by parameter.
#include "zero/state_tier.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ringzero {

TierLayout LayOutTier(const Plan& plan, WorkerId self, const std::vector<StageLayout>& layouts,
                      const OptimizerOptions& optimizer, int64_t least_values) {
  TierLayout layout;
  for (int j = 0; j < plan.stage_count() && plan.exchange; ++j) {
    const StageId stage(j);
    if (!plan.stages[j].streams() || !plan.has_masters(self, stage)) continue;
    std::vector<StatePiece>& pieces = layout.pieces[stage];
    pieces = StatePieces(optimizer, layouts[j], least_values);
    layout.group_of[stage] = static_cast<int>(layout.groups.size());
    StoreGroup& group = layout.groups.emplace_back();
    group.name = absl::StrCat("stage ", j, " (", plan.stages[j].name, ")");
    int64_t first = 0, second = 0;  // where the states of the parameter begin
    for (const StatePiece& piece : pieces) {
      if (piece.begin == 0) {
        const StatePiece whole{.end = layouts[j].parameters[piece.parameter].numel};
        first = layout.bytes;
        second = first + whole.StateBytes();
        layout.bytes += piece.states * whole.StateBytes();
      }
      const int64_t from = piece.begin * static_cast<int64_t>(sizeof(float));
      StorePiece& stored = group.pieces.emplace_back();
      stored.extents.push_back({first + from, piece.StateBytes()});
      if (piece.states > 1) stored.extents.push_back({second + from, piece.StateBytes()});
      layout.piece_bytes = std::max(layout.piece_bytes, stored.bytes());
    }
  }
  return layout;
}

}  // namespace ringzero
