// Fetches and stores, as operations of the program.
#include "zero/engine/streams.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/status.h"
#include "zero/engine_options.h"

namespace ringzero {

absl::Status Streams::Begin(TierOptions tier) {
  const EngineOptions& options = executor_.options();
  layout_ =
      LayOutTier(options.plan, options.self, options.layouts, options.optimizer, tier.least_values);
  if (layout_.groups.empty()) return absl::OkStatus();
  if (tier.io == nullptr) return absl::InvalidArgumentError("a plan that streams needs a tier");
  const CollectionPlan& collection = options.plan.collection;
  const bool shows = (collection.any() && !collection.parameters_only) ||
                     options.plan.checkpoint.any() || options.plan.first_iteration > 0;
  if (shows && tier.mapped == nullptr) {
    return absl::InvalidArgumentError("states that are streamed and looked at need a mapped tier");
  }
  file_ = tier.file;
  mapped_ = tier.mapped;
  RZ_ASSIGN_OR_RETURN(store_,
                      StateStore::Create({.groups = layout_.groups,
                                          .ring = blocks_.Bytes({.kind = BlockKind::kStaging}),
                                          .keeper = blocks_.Lend({.kind = BlockKind::kStaging}),
                                          .file = tier.file,
                                          .file_name = std::move(tier.file_name),
                                          .engine = std::move(tier.io),
                                          // Before an update's own: it would blame the worker.
                                          .wait_timeout = options.wait_timeout / 2,
                                          .failed = [this](const absl::Status& why) {
                                            const Executor::Lock lock = executor_.Hold();
                                            executor_.Fail(why);
                                          }}));
  return absl::OkStatus();
}

void Streams::Show(StageId stage, StageOptimizer& optimizer) const {
  const auto group = layout_.group_of.find(stage);
  if (group == layout_.group_of.end() || mapped_ == nullptr) return;
  const std::vector<StatePiece>& pieces = layout_.pieces.at(stage);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].begin > 0) continue;
    const int parameter = pieces[i].parameter;
    const StageLayout& layout = executor_.options().layouts[stage.value];
    const auto count = static_cast<size_t>(layout.parameters[parameter].numel);
    const std::vector<Extent>& extents = layout_.groups[group->second].pieces[i].extents;
    const auto at = [&](size_t state) {
      return std::span(reinterpret_cast<float*>(mapped_ + extents[state].offset), count);
    };
    optimizer.state(parameter).first = at(0);
    if (extents.size() > 1) optimizer.state(parameter).second = at(1);
  }
}

void Streams::Adopt(StageId stage) {
  const auto group = layout_.group_of.find(stage);
  if (group == layout_.group_of.end()) return;
  std::vector<uint64_t> digests;
  const std::vector<StatePiece>& pieces = layout_.pieces.at(stage);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const StatePiece& piece = pieces[i];
    const std::vector<Extent>& extents = layout_.groups[group->second].pieces[i].extents;
    uint64_t& digest = digests.emplace_back(0);
    for (int64_t at = piece.begin; at < piece.end; at += kUpdateBlockValues) {
      const int64_t end = std::min(at + kUpdateBlockValues, piece.end);
      for (const Extent& extent : extents) {
        const auto* values = reinterpret_cast<const float*>(mapped_ + extent.offset);
        digest = AddToDigest(digest, {values + at - piece.begin, values + end - piece.begin});
      }
    }
  }
  store_->Adopt(group->second, digests);
  (void)msync(mapped_, static_cast<size_t>(layout_.bytes), MS_SYNC);
  Forget(stage);
}

void Streams::Forget(StageId stage) const {
  const auto group = layout_.group_of.find(stage);
  if (group == layout_.group_of.end()) return;
  for (const StorePiece& piece : layout_.groups[group->second].pieces) {
    for (const Extent& extent : piece.extents) {
      (void)madvise(mapped_ + extent.offset, static_cast<size_t>(extent.bytes), MADV_DONTNEED);
      (void)posix_fadvise(file_, extent.offset, extent.bytes, POSIX_FADV_DONTNEED);
    }
  }
}

std::vector<StatePiece> Streams::PiecesOf(StageId stage) const {
  const auto found = layout_.pieces.find(stage);
  return found == layout_.pieces.end() ? std::vector<StatePiece>() : found->second;
}

void Streams::StartFetch(int64_t number) {
  const StageId stage = executor_.OpOf(number).stage;
  store_->Fetch(layout_.group_of.at(stage), executor_.BeginElsewhere(number));
}

void Streams::StartStore(int64_t number) {
  const StageId stage = executor_.OpOf(number).stage;
  store_->Store(layout_.group_of.at(stage), executor_.BeginElsewhere(number));
}

}  // namespace ringzero
