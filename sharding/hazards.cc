// Last writers and the readers since, by block.
#include "sharding/hazards.h"

#include <algorithm>
#include <iterator>

namespace ringzero {

int64_t Hazards::WriterOf(int block) const {
  return block < std::ssize(accesses_) ? accesses_[block].writer : -1;
}

std::optional<Hazards::Line> Hazards::LineOf(const Op& op) {
  if (IsCompute(op.kind)) return Line{Channel::kNone, kNoWorker};
  if (op.kind == OpKind::kSend) return Line{op.channel, op.peer};
  return std::nullopt;
}

std::vector<int64_t> Hazards::Append(const Op& op, std::span<const NumberedUse> uses) {
  std::vector<int64_t> after;
  for (const NumberedUse& use : uses) {
    if (use.block >= std::ssize(accesses_)) accesses_.resize(use.block + 1);
    const Access& access = accesses_[use.block];
    if (access.writer >= 0) after.push_back(access.writer);
    if (use.how == How::kRead) continue;
    for (const Reader& reader : access.readers) after.push_back(reader.op);
  }
  const std::optional<Line> line = LineOf(op);
  for (const NumberedUse& use : uses) {
    Access& access = accesses_[use.block];
    if (use.how != How::kRead) {
      access.writer = next_;
      access.readers.clear();
      continue;
    }
    std::erase_if(access.readers,
                  [&](const Reader& reader) { return line.has_value() && reader.line == line; });
    access.readers.push_back({line, next_});
  }
  if (line.has_value()) {
    const auto [last, first] = last_.try_emplace(*line, next_);
    if (!first) after.push_back(std::exchange(last->second, next_));
  }
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  ++next_;
  return after;
}

}  // namespace ringzero
