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

  // These three do nothing for stages that do not stream.
  // The optimizer's states are the mapped file from here on: for what reads them between updates
  // (collections, saves), and for what writes them before the first one.
  void Show(StageId stage, StageOptimizer& optimizer) const;
  // They were written: the file has them.
  void Adopt(StageId stage);
  // They were read: gives the memory back that it took. Any thread.
  void Forget(StageId stage) const;

  // Of a stage that streams; empty for others.
  std::vector<StatePiece> PiecesOf(StageId stage) const;
  // Without the lock, on the pool: StateStore's.
  std::byte* Piece(StageId stage, int piece, StateStore::Done again) {
    return store_->Piece(layout_.group_of.at(stage), piece, std::move(again));
  }
  void Release(StageId stage, int piece, const StateStore::Released& released) {
    store_->Release(layout_.group_of.at(stage), piece, released);
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
