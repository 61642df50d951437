// Last writers and the readers since, by block.
#include "sharding/hazards.h"

#include <algorithm>

namespace ringzero {

int64_t Hazards::WriterOf(const MemoryBlock& block) const {
  const auto access = accesses_.find(block);
  return access == accesses_.end() ? -1 : access->second.writer;
}

std::optional<Hazards::Line> Hazards::LineOf(const Op& op) {
  if (IsCompute(op.kind)) return Line{Channel::kNone, kNoWorker};
  if (op.kind == OpKind::kSend) return Line{op.channel, op.peer};
  return std::nullopt;
}

std::vector<int64_t> Hazards::Append(const Instruction& op) {
  std::vector<int64_t> after;
  for (const Use& use : op.uses) {
    const Access& access = accesses_[use.block];
    if (access.writer >= 0) after.push_back(access.writer);
    if (use.how == How::kRead) continue;
    for (const Reader& reader : access.readers) after.push_back(reader.op);
  }
  const std::optional<Line> line = LineOf(op);
  for (const Use& use : op.uses) {
    Access& access = accesses_[use.block];
    if (use.how != How::kRead) {
      access = {next_, {}};
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
