// Replays allocations, with gradients kept for as long as is asked for.
#include "sharding/study/pass_timeline.h"

#include <algorithm>
#include <deque>
#include <iterator>

namespace ringzero {

void PassTimeline::Allocate(uint64_t block, int64_t bytes) {
  places_[block] = blocks_.size();
  entries_.push_back({.kind = Kind::kAllocate, .block = blocks_.size()});
  blocks_.push_back({.bytes = bytes});
}

void PassTimeline::Free(uint64_t block) {
  const auto found = places_.find(block);
  if (found == places_.end() || blocks_[found->second].freed) return;
  blocks_[found->second].freed = true;
  entries_.push_back({.kind = Kind::kFree, .block = found->second});
}

void PassTimeline::EndStage(const std::vector<uint64_t>& gradients) {
  int64_t bytes = 0;
  for (const uint64_t address : gradients) {
    auto found = places_.upper_bound(address);
    if (found == places_.begin()) continue;
    found = std::prev(found);
    Block& block = blocks_[found->second];
    if (address >= found->first + static_cast<uint64_t>(block.bytes)) continue;
    if (!block.gradient) bytes += block.bytes;
    block.gradient = true;
  }
  entries_.push_back({.kind = Kind::kEndStage, .block = stage_gradients_.size()});
  stage_gradients_.push_back(bytes);
}

int64_t PassTimeline::Peak(Gradients gradients, int pending) const {
  const size_t waiting_most =
      gradients == Gradients::kWait ? static_cast<size_t>(std::max(pending, 0)) : 0;
  std::deque<int64_t> waiting;
  int64_t live = 0, peak = 0;
  // Twice: the gradients of the pass before may wait when it begins.
  for (int pass = 0; pass < 2; ++pass) {
    int64_t left = 0;  // what this pass has not freed at its end is freed by others
    for (const Entry& entry : entries_) {
      if (entry.kind == Kind::kEndStage) {
        const int64_t bytes = stage_gradients_[entry.block];
        if (bytes == 0 || gradients == Gradients::kNone) continue;
        waiting.push_back(bytes);
        if (waiting.size() <= waiting_most) continue;
        live -= waiting.front();
        waiting.pop_front();
        continue;
      }
      const Block& block = blocks_[entry.block];
      if (block.gradient && (gradients == Gradients::kNone || entry.kind == Kind::kFree)) continue;
      const int64_t bytes = entry.kind == Kind::kAllocate ? block.bytes : -block.bytes;
      live += bytes;
      if (!block.gradient) left += bytes;
      peak = std::max(peak, live);
    }
    live -= left;
  }
  return peak;
}

}  // namespace ringzero
