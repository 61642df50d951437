// Runs of a tier file, stage by stage and parameter by parameter.
#include "zero/state_tier.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {

absl::StatusOr<OpenedTier> OpenTier(const std::string& folder, int64_t bytes, int64_t version_bytes,
                                    const IoEngineOptions& io) {
  OpenedTier tier;
  tier.options.folder = folder;
  tier.options.file_name = absl::StrCat("files in ", folder);
  const auto note = [&](bool so, const auto&... words) {
    if (so) tier.notes.push_back(absl::StrCat(folder, words...));
  };
  RZ_ASSIGN_OR_RETURN(ChosenIoEngine chosen, MakeIoEngine(io));
  tier.options.io = std::move(chosen.engine);
  note(chosen.why != "io_uring", ": ", chosen.why);
  for (const auto& [wanted, file] :
       {std::pair(version_bytes, &tier.options.versions), std::pair(bytes, &tier.options.file)}) {
    if (wanted == 0) continue;
    RZ_ASSIGN_OR_RETURN(TierFile made, TierFile::Create(folder, wanted));
    *file = std::make_shared<const TierFile>(std::move(made));
  }
  const auto one = tier.options.file != nullptr ? tier.options.file : tier.options.versions;
  if (one == nullptr) return tier;
  note(one->is_memory(), " is memory (tmpfs): nothing is saved by what lies there");
  note(!one->is_direct(), ": no direct I/O there, so what lies there fills the page cache, too");
  return tier;
}

TierLayout LayOutTier(const Plan& plan, WorkerId self, const std::vector<StageLayout>& layouts,
                      const OptimizerOptions& optimizer, int64_t least_values) {
  TierLayout layout;
  std::vector<int> stages;
  for (int j = 0; j < plan.stage_count() && plan.exchange; ++j) {
    if (plan.stages[j].streams() && plan.has_masters(self, StageId(j))) stages.push_back(j);
  }
  // A head names each state, and what fills its last page, in so many bytes at most.
  constexpr int64_t kNamed = 256, kEscaped = 6;
  for (const int j : stages) {
    for (const StatePiece& piece :
         StatePieces(optimizer, layouts[j], plan.stages[j].streams_masters, least_values)) {
      if (piece.begin > 0) continue;
      const std::string& name = layouts[j].parameters[piece.parameter].name;
      layout.head_bytes += piece.states * (2 * kNamed + kEscaped * std::ssize(name));
    }
  }
  layout.head_bytes = (layout.head_bytes + kDirectAlignment - 1) & -kDirectAlignment;
  for (const int j : stages) {
    const int64_t values = std::max<int64_t>(0, layout.bytes - layout.head_bytes);
    layout.bytes = layout.head_bytes + ((values + kTierStageBytes - 1) & -kTierStageBytes);
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

std::pair<int64_t, int64_t> TierLayout::RunOf(StageId stage) const {
  const auto begin = [this](int group) { return groups[group].pieces.front().extents[0].offset; };
  const int group = group_of.at(stage);
  const bool last = group + 1 == std::ssize(groups);
  return {begin(group), last ? bytes : begin(group + 1)};
}

}  // namespace ringzero
