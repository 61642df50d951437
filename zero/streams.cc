// Pieces of states between a tier file and the updates.
#include "zero/streams.h"

#include <sys/mman.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/status.h"

namespace ringzero {

absl::Status Streams::Begin(StreamOptions options) {
  layout_ = std::move(options.layout);
  folder_ = std::move(options.tier.folder);
  const std::shared_ptr<const TierFile>& file = options.tier.file;
  for (const auto& [stage, group] : layout_.group_of) files_[stage] = {file, file};
  RZ_ASSIGN_OR_RETURN(store_, StateStore::Create({.groups = layout_.groups,
                                                  .ring = options.staging,
                                                  .keeper = std::move(options.keeper),
                                                  .file = file ? file->descriptor() : -1,
                                                  .file_name = std::move(options.tier.file_name),
                                                  .engine = std::move(options.tier.io),
                                                  .wait_timeout = options.wait_timeout,
                                                  .failed = std::move(options.failed)}));
  return absl::OkStatus();
}

void Streams::Store(StageId stage, StateStore::Done done) {
  store_->Store(layout_.group_of.at(stage), [this, stage, done = std::move(done)] {
    Files& files = files_.at(stage);
    if (files.complete != files.next) {
      files.complete = files.next;
      Show(stage, *files.optimizer);
    }
    done();
  });
}

absl::StatusOr<Streams::LeftFile> Streams::Leave(StageId stage, Version version) {
  if (left_ > 0 && version != leaves_) return Internal("the tier is in two files");
  if (left_ == 0) {
    RZ_ASSIGN_OR_RETURN(TierFile made, TierFile::Create(folder_, layout_.bytes));
    fresh_ = std::make_shared<const TierFile>(std::move(made));
    leaves_ = version;
  }
  Files& files = files_.at(stage);
  files.next = fresh_;
  store_->MoveTo(layout_.group_of.at(stage), fresh_->descriptor());
  const bool is_whole = ++left_ == std::ssize(files_);
  if (is_whole) left_ = 0;
  return LeftFile{files.complete, is_whole};
}

void Streams::Show(StageId stage, StageOptimizer& optimizer) {
  if (!IsMapped(stage)) return;
  Files& files = files_.at(stage);
  files.optimizer = &optimizer;
  const std::vector<StatePiece>& pieces = layout_.pieces.at(stage);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].begin > 0) continue;
    const int parameter = pieces[i].parameter;
    const auto count = static_cast<size_t>(layouts_[stage.value].parameters[parameter].numel);
    const std::vector<Extent>& extents =
        layout_.groups[layout_.group_of.at(stage)].pieces[i].extents;
    const auto at = [&](size_t state) {
      std::byte* const values = files.complete->mapped() + extents[state].offset;
      return std::span(reinterpret_cast<float*>(values), count);
    };
    const size_t states = extents.size() - (pieces[i].masters ? 1 : 0);
    StageOptimizer::ParameterState& state = optimizer.state(parameter);
    if (states > 0) state.first = at(0);
    if (states > 1) state.second = at(1);
    if (pieces[i].masters) state.masters = at(states);
  }
}

std::vector<uint64_t> Streams::DigestsOf(StageId stage) const {
  std::vector<uint64_t> digests;
  const StoreGroup& group = layout_.groups[layout_.group_of.at(stage)];
  const std::byte* const mapped = files_.at(stage).complete->mapped();
  const std::vector<StatePiece>& pieces = layout_.pieces.at(stage);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const StatePiece& piece = pieces[i];
    const std::vector<Extent>& extents = group.pieces[i].extents;
    uint64_t& digest = digests.emplace_back(0);
    for (int64_t at = piece.begin; at < piece.end; at += kUpdateBlockValues) {
      const int64_t end = std::min(at + kUpdateBlockValues, piece.end);
      for (const Extent& extent : extents) {
        const auto* values = reinterpret_cast<const float*>(mapped + extent.offset);
        digest = AddToDigest(digest, {values + at - piece.begin, values + end - piece.begin});
      }
    }
  }
  return digests;
}

void Streams::Adopt(StageId stage) {
  if (!IsMapped(stage)) return;
  store_->Adopt(layout_.group_of.at(stage), DigestsOf(stage));
  (void)msync(files_.at(stage).complete->mapped(), static_cast<size_t>(layout_.bytes), MS_SYNC);
  Forget(stage);
}

absl::Status Streams::Check(StageId stage) const {
  if (!IsMapped(stage)) return absl::OkStatus();
  return store_->Check(layout_.group_of.at(stage), DigestsOf(stage));
}

void Streams::Forget(StageId stage) const {
  if (!IsMapped(stage)) return;
  const TierFile& file = *files_.at(stage).complete;
  for (const StorePiece& piece : layout_.groups[layout_.group_of.at(stage)].pieces) {
    for (const Extent& extent : piece.extents) {
      file.Forget({file.mapped() + extent.offset, static_cast<size_t>(extent.bytes)});
    }
  }
}

std::vector<StatePiece> Streams::PiecesOf(StageId stage) const {
  const auto found = layout_.pieces.find(stage);
  return found == layout_.pieces.end() ? std::vector<StatePiece>() : found->second;
}

bool StreamedUpdate::Ready(size_t block, StateStore::Done again) {
  const int piece = optimizer_.blocks()[block].piece;
  if (piece < 0) return true;
  const int group = streams_.layout_.group_of.at(stage_);
  input_.staged = reinterpret_cast<float*>(streams_.store_->Piece(group, piece, std::move(again)));
  return input_.staged != nullptr;
}

void StreamedUpdate::Do(size_t block) {
  const UpdateBlock& one = optimizer_.blocks()[block];
  if (one.piece < 0) return optimizer_.Block(one, input_, out_);
  released_.found = DigestOf(one, released_.found);
  optimizer_.Block(one, input_, out_);
  released_.left = DigestOf(one, released_.left);
  Release(block, optimizer_.contributes(one.parameter));
}

void StreamedUpdate::Skip(size_t block) {
  const UpdateBlock& one = optimizer_.blocks()[block];
  if (one.piece < 0) return;
  released_.left = released_.found = DigestOf(one, released_.found);
  Release(block, /*changed=*/false);
}

void StreamedUpdate::Release(size_t block, bool changed) {
  const std::vector<UpdateBlock>& blocks = optimizer_.blocks();
  const int piece = blocks[block].piece;
  if (block + 1 < blocks.size() && blocks[block + 1].piece == piece) return;
  released_.changed = changed;
  streams_.store_->Release(streams_.layout_.group_of.at(stage_), piece,
                           std::exchange(released_, {}));
}

uint64_t StreamedUpdate::DigestOf(const UpdateBlock& block, uint64_t digest) const {
  const StatePiece& piece = optimizer_.pieces()[block.piece];
  const float* state = input_.staged;
  for (int i = 0; i < piece.states; ++i) {
    digest =
        AddToDigest(digest, {state + block.begin - piece.begin, state + block.end - piece.begin});
    state += piece.StateBytes() / sizeof(float);
  }
  return digest;
}

}  // namespace ringzero
