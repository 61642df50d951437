// Messages: sends and receives of the program, over the transport; and where copies of parameters
// are.
//
//   RZ_RETURN_IF_ERROR(messages.Post(receive));     // completes the operation when it arrives
//   RZ_RETURN_IF_ERROR(messages.Send(send));
//   std::vector<StageCopy> copies = messages.CopiesOf(linked);
//
// With the executor's lock held.
#ifndef RINGZERO_ZERO_ENGINE_MESSAGES_H_
#define RINGZERO_ZERO_ENGINE_MESSAGES_H_

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "zero/block_memory.h"
#include "zero/engine/executor.h"
#include "zero/engine/norms.h"
#include "zero/engine/statistics.h"
#include "zero/lent_memory.h"

namespace ringzero {

class Messages {
 public:
  // All must outlive this.
  struct Parts {
    Executor& executor;
    BlockMemory& blocks;
    LentMemory& lent;
    Norms& norms;
    Statistics& statistics;
  };
  explicit Messages(const Parts& parts);

  absl::Status Post(int64_t op);
  // Once the name of a received loan is free: from now on it is a name for what was lent.
  absl::Status Take(int64_t op);
  absl::Status Send(int64_t op);
  // Lets go of a held copy.
  void Release(const Op& op) { held_copies_.erase({op.stage.value, op.version.value}); }

  // The parameters that an operation of the computing side is shown.
  std::vector<StageCopy> CopiesOf(const LinkedOp& linked) const;
  // That what an operation of the computing side is shown is still what it asked for: before it
  // computes, and after.
  absl::Status CheckReads(const LinkedOp& linked) const;
  void Clear() { held_copies_.clear(); }
  // Payload that words have lent, by kind of message: it counts as sent.
  const std::array<uint64_t, kMaxMessageKinds>& lent_bytes() const { return lent_bytes_; }

 private:
  SharedBuffer CopyOf(const Read& read) const;
  absl::Status SendNow(int64_t op);
  // Frees the slots of messages that are not waited for in their channel's order.
  absl::Status KeepArrival(OpState& state);
  // Whether a received copy stays until its kRelease.
  bool IsHeld(const Op& message) const;
  // The number of the message of `op` on its channel, by what has been counted so far.
  static uint32_t NextMessage(std::vector<uint32_t>& counts, const Op& op);
  template <typename Handle>
  void Arrive(int64_t op, uint32_t count, absl::StatusOr<Handle> message);
  void ArriveWord(int64_t op, uint32_t count, const absl::Status& word);
  // A message is here, and what it brings is kept.
  void End(int64_t op, uint32_t count);

  Executor& executor_;
  BlockMemory& blocks_;
  LentMemory& lent_;
  Norms& norms_;
  Statistics& statistics_;
  std::map<std::pair<int, int>, SharedBuffer> held_copies_;  // (stage, version)
  std::vector<uint32_t> sent_, received_;                    // by peer and channel
  std::array<uint64_t, kMaxMessageKinds> lent_bytes_{};
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_MESSAGES_H_
