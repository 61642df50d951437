// Chooses slots, and writes Loads.
#include "sharding/program/residency.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace ringzero {
namespace {

// θ_{-1} is θ_0, in the same place.
StageVersion ReadOf(StageId stage, Version version) {
  return {stage, Version(std::max(version.value, 0))};
}

Copy CopyFor(OpKind kind) {
  if (kind == OpKind::kForward) return Copy::kForward;
  if (kind == OpKind::kBackward) return Copy::kBackward;
  return kind == OpKind::kEvaluate ? Copy::kEvaluation : Copy::kCollection;
}

}  // namespace

FurthestSlots::Place FurthestSlots::Touch(std::span<const StageVersion> upcoming) {
  const auto next_read = [&](const Slot& slot) {
    if (!slot.holds.has_value()) return std::ssize(upcoming) + 1;
    return std::ranges::find(upcoming, *slot.holds) - upcoming.begin();
  };
  const auto room = [&](const Slot& slot) {  // of two that are read as late: unused for longer
    const bool in_use = slot.used >= 0 && slot.used == touches_ - 1;
    return std::tuple(!in_use, next_read(slot), -slot.used);
  };
  auto found = std::ranges::find(slots_, std::optional(upcoming[0]), &Slot::holds);
  const bool is_there = found != slots_.end();
  if (!is_there) found = std::ranges::max_element(slots_, {}, room);
  *found = {upcoming[0], touches_++};
  return {static_cast<int>(found - slots_.begin()), is_there};
}

Use* Residency::Loaded(Instruction& op) const {
  if (!IsCompute(op.kind) || op.stage == kNoStage || !plan_.stage(op.stage).streams_parameters) {
    return nullptr;
  }
  const auto use = std::ranges::find(op.uses, Role::kParameters, &Use::role);
  // Where versions are not fp32, a collection reads masters, which lie elsewhere.
  const bool masters = op.kind == OpKind::kCollect && plan_.stage(op.stage).master_bytes > 0;
  return use == op.uses.end() || masters ? nullptr : &*use;
}

void Residency::AppendLap(const ProgramPart& part, std::vector<StageVersion>& reads) const {
  const MicroBatch m{self_, part.iteration, part.lap};
  const auto append = [&](int j) {
    if (!plan_.stages[j].streams_parameters) return;
    reads.push_back(ReadOf(StageId(j), ReadVersion(rule_, m, StageId(j))));
  };
  for (int j = 0; j < plan_.stage_count(); ++j) append(j);
  for (int j = plan_.stage_count(); j-- > 0;) append(j);
}

std::vector<Instruction> Residency::AddLoads(const std::optional<ProgramPart>& next,
                                             std::vector<Instruction> part) {
  std::vector<StageVersion> reads;
  for (Instruction& op : part) {
    if (Loaded(op) != nullptr) reads.push_back(ReadOf(op.stage, op.version));
  }
  if (next.has_value() && next->iteration.value < plan_.iterations) AppendLap(*next, reads);
  std::vector<Instruction> all;
  size_t read = 0;
  for (Instruction& op : part) {
    if (Use* const use = Loaded(op)) {
      const auto [slot, is_there] = slots_.Touch(std::span(reads).subspan(read++));
      const MemoryBlock to{.kind = BlockKind::kResident, .index = slot};
      Op load = op;
      load.kind = OpKind::kLoad;
      load.copy = CopyFor(op.kind);
      all.emplace_back(load, Uses{Reading(Role::kSource, use->block),
                                  {Role::kTarget, is_there ? How::kReadWrite : How::kWrite, to}});
      use->block = to;
    }
    all.push_back(std::move(op));
  }
  return all;
}

}  // namespace ringzero
