// Last writers and the readers since, by block.
#include "sharding/hazards.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ringzero {

int64_t Hazards::WriterOf(int block) const {
  return block < std::ssize(accesses_) ? accesses_[block].writer : -1;
}

Before Hazards::Append(const Op& op, std::span<const NumberedUse> uses) {
  Before before;
  std::vector<int64_t>& after = before.after;
  for (const NumberedUse& use : uses) {
    if (use.block >= std::ssize(accesses_)) accesses_.resize(use.block + 1);
    const Access& access = accesses_[use.block];
    if (access.writer >= 0) after.push_back(access.writer);
    if (use.how == How::kRead) continue;
    after.insert(after.end(), access.readers.begin(), access.readers.end());
    if (access.computing >= 0) after.push_back(access.computing);
  }
  const bool computes = IsCompute(op.kind);
  for (const NumberedUse& use : uses) {
    Access& access = accesses_[use.block];
    if (use.how != How::kRead) {
      access = {.writer = next_};
    } else if (computes) {
      access.computing = next_;
    } else {
      access.readers.push_back(next_);
    }
  }
  if (computes) {
    if (computed_ >= 0) after.push_back(computed_);
    computed_ = next_;
  }
  if (IsMessage(op.kind)) {
    const auto [last, first] = messages_.try_emplace({op.kind, op.channel, op.peer}, next_);
    if (!first) before.behind = std::exchange(last->second, next_);
  }
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  ++next_;
  return before;
}

}  // namespace ringzero
