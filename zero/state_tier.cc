// Runs of a tier file, stage by stage and parameter by parameter.
#include "zero/state_tier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {

absl::StatusOr<OpenedTier> OpenTier(const std::string& folder, int64_t bytes,
                                    const IoEngineOptions& io) {
  OpenedTier tier;
  RZ_ASSIGN_OR_RETURN(tier.file, TierFile::Create(folder, bytes));
  RZ_ASSIGN_OR_RETURN(ChosenIoEngine chosen, MakeIoEngine(io));
  const auto note = [&](bool so, const auto&... words) {
    if (so) tier.notes.push_back(absl::StrCat(folder, words...));
  };
  note(chosen.why != "io_uring", ": ", chosen.why);
  note(tier.file->is_memory(), " is memory (tmpfs): nothing is saved by states that lie there");
  note(!tier.file->is_direct(), ": no direct I/O there, so states fill the page cache, too");
  tier.options = {.file = tier.file->descriptor(),
                  .file_name = absl::StrCat("states in ", folder),
                  .io = std::move(chosen.engine),
                  .mapped = tier.file->mapped()};
  return tier;
}

TierLayout LayOutTier(const Plan& plan, WorkerId self, const std::vector<StageLayout>& layouts,
                      const OptimizerOptions& optimizer, int64_t least_values) {
  TierLayout layout;
  for (int j = 0; j < plan.stage_count() && plan.exchange; ++j) {
    if (!plan.stages[j].streams() || !plan.has_masters(self, StageId(j))) continue;
    AddStage(StageId(j), absl::StrCat("stage ", j, " (", plan.stages[j].name, ")"), layouts[j],
             optimizer, plan.stages[j].streams_masters, least_values, layout);
  }
  return layout;
}

void AddStage(StageId stage, std::string name, const StageLayout& stage_layout,
              const OptimizerOptions& optimizer, bool masters, int64_t least_values,
              TierLayout& layout) {
  std::vector<StatePiece>& pieces = layout.pieces[stage];
  pieces = StatePieces(optimizer, stage_layout, masters, least_values);
  layout.group_of[stage] = static_cast<int>(layout.groups.size());
  StoreGroup& group = layout.groups.emplace_back(StoreGroup{.name = std::move(name)});
  int64_t first = 0;  // where the states of the parameter begin
  for (const StatePiece& piece : pieces) {
    const StatePiece whole{.end = stage_layout.parameters[piece.parameter].numel};
    if (piece.begin == 0) {
      first = layout.bytes;
      layout.bytes += piece.states * whole.StateBytes();
    }
    const int64_t from = first + piece.begin * static_cast<int64_t>(sizeof(float));
    StorePiece& stored = group.pieces.emplace_back();
    for (int s = 0; s < piece.states; ++s) {
      stored.extents.push_back({from + s * whole.StateBytes(), piece.StateBytes()});
    }
    layout.piece_bytes = std::max(layout.piece_bytes, stored.bytes());
  }
}

}  // namespace ringzero
