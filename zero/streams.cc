// Pieces of states between a tier file and the updates.
#include "zero/streams.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/status.h"

namespace ringzero {

absl::Status Streams::Begin(StreamOptions options) {
  layout_ = std::move(options.layout);
  file_ = options.tier.file;
  mapped_ = options.tier.mapped;
  RZ_ASSIGN_OR_RETURN(store_, StateStore::Create({.groups = layout_.groups,
                                                  .ring = options.staging,
                                                  .keeper = std::move(options.keeper),
                                                  .file = options.tier.file,
                                                  .file_name = std::move(options.tier.file_name),
                                                  .engine = std::move(options.tier.io),
                                                  .wait_timeout = options.wait_timeout,
                                                  .failed = std::move(options.failed)}));
  return absl::OkStatus();
}

void Streams::Show(StageId stage, StageOptimizer& optimizer) const {
  const auto group = layout_.group_of.find(stage);
  if (group == layout_.group_of.end() || mapped_ == nullptr) return;
  const std::vector<StatePiece>& pieces = layout_.pieces.at(stage);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].begin > 0) continue;
    const int parameter = pieces[i].parameter;
    const auto count = static_cast<size_t>(layouts_[stage.value].parameters[parameter].numel);
    const std::vector<Extent>& extents = layout_.groups[group->second].pieces[i].extents;
    const auto at = [&](size_t state) {
      return std::span(reinterpret_cast<float*>(mapped_ + extents[state].offset), count);
    };
    const size_t states = extents.size() - (pieces[i].masters ? 1 : 0);
    StageOptimizer::ParameterState& state = optimizer.state(parameter);
    if (states > 0) state.first = at(0);
    if (states > 1) state.second = at(1);
    if (pieces[i].masters) state.masters = at(states);
  }
}

std::vector<uint64_t> Streams::DigestsOf(StageId stage, int group) const {
  std::vector<uint64_t> digests;
  const std::vector<StatePiece>& pieces = layout_.pieces.at(stage);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const StatePiece& piece = pieces[i];
    const std::vector<Extent>& extents = layout_.groups[group].pieces[i].extents;
    uint64_t& digest = digests.emplace_back(0);
    for (int64_t at = piece.begin; at < piece.end; at += kUpdateBlockValues) {
      const int64_t end = std::min(at + kUpdateBlockValues, piece.end);
      for (const Extent& extent : extents) {
        const auto* values = reinterpret_cast<const float*>(mapped_ + extent.offset);
        digest = AddToDigest(digest, {values + at - piece.begin, values + end - piece.begin});
      }
    }
  }
  return digests;
}

void Streams::Adopt(StageId stage) {
  const auto group = layout_.group_of.find(stage);
  if (group == layout_.group_of.end()) return;
  store_->Adopt(group->second, DigestsOf(stage, group->second));
  (void)msync(mapped_, static_cast<size_t>(layout_.bytes), MS_SYNC);
  Forget(stage);
}

absl::Status Streams::Check(StageId stage) const {
  const auto group = layout_.group_of.find(stage);
  if (group == layout_.group_of.end()) return absl::OkStatus();
  return store_->Check(group->second, DigestsOf(stage, group->second));
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
  released_.found = DigestOf(one, released_.found);
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
