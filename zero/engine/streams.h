// Streams: states that come from a tier file for an update, and go back.
// With the executor's lock held.
#ifndef RINGZERO_ZERO_ENGINE_STREAMS_H_
#define RINGZERO_ZERO_ENGINE_STREAMS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "base/ids.h"
#include "offload/state_store.h"
#include "zero/block_memory.h"
#include "zero/engine/executor.h"
#include "zero/state_tier.h"

namespace ringzero {

class Streams {
 public:
  // Both must outlive this.
  Streams(Executor& executor, BlockMemory& blocks) : executor_(executor), blocks_(blocks) {}

  // Where the plan streams stages of this worker; once. The errors of StateStore::Create.
  absl::Status Begin(TierOptions tier);
  void StartFetch(int64_t op);
  void StartStore(int64_t op);
  // Without the lock: nothing is under way any more, and nothing is called.
  void Stop() {
    if (store_ != nullptr) store_->Stop();
  }

  // Of a stage that streams, from here on: its states can be looked at between updates, and until
  // the first one be written.
  void Show(StageId stage, StageOptimizer& optimizer) const;
  // They were written.
  void Adopt(StageId stage);
  // They were looked at: the memory that this took is free. Any thread.
  void Forget(StageId stage) const;

  // Of a stage that streams; empty for others.
  std::vector<StatePiece> PiecesOf(StageId stage) const;
  // Without the lock, on the pool: StateStore's.
  std::byte* Piece(StageId stage, int piece, StateStore::Done again) {
    return store_->Piece(layout_.group_of.at(stage), piece, std::move(again));
  }
  void Release(StageId stage, int piece, bool changed) {
    store_->Release(layout_.group_of.at(stage), piece, changed);
  }

 private:
  Executor& executor_;
  BlockMemory& blocks_;
  TierLayout layout_;
  int file_ = -1;
  std::byte* mapped_ = nullptr;
  std::unique_ptr<StateStore> store_;  // null: nothing is streamed here
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_STREAMS_H_
