// Fetches and stores, as operations of the program.
#include "zero/engine/streams.h"

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
  RZ_ASSIGN_OR_RETURN(store_,
                      StateStore::Create({.groups = layout_.groups,
                                          .ring = blocks_.Bytes({.kind = BlockKind::kStaging}),
                                          .file = tier.file,
                                          .file_name = std::move(tier.file_name),
                                          .engine = std::move(tier.io),
                                          .wait_timeout = options.wait_timeout,
                                          .failed = [this](const absl::Status& why) {
                                            const Executor::Lock lock = executor_.Hold();
                                            executor_.Fail(why);
                                          }}));
  return absl::OkStatus();
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
