// Messages: sends and receives of the program, over the transport; and where copies of parameters
// are. With the executor's lock held.
#ifndef RINGZERO_ZERO_ENGINE_MESSAGES_H_
#define RINGZERO_ZERO_ENGINE_MESSAGES_H_

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "zero/block_memory.h"
#include "zero/engine/executor.h"
#include "zero/engine/norms.h"
#include "zero/version_files.h"

namespace ringzero {

class Messages {
 public:
  // All must outlive this.
  Messages(Executor& executor, BlockMemory& blocks, LentMemory& lent, VersionFiles& files,
           Norms& norms)
      : executor_(executor), blocks_(blocks), lent_(lent), files_(files), norms_(norms) {}

  // Begins a message. True: it is done; else its end completes the operation.
  absl::StatusOr<bool> Send(int64_t op);
  absl::StatusOr<bool> Receive(int64_t op);
  // Asks for a word, ahead of its Receive.
  absl::Status Expect(int64_t op);

  // The parameters that an operation of the computing side is shown.
  std::vector<StageCopy> CopiesOf(const LinkedOp& linked) const;
  // That what an operation of the computing side is shown is still what it asked for: before it
  // computes, and after.
  absl::Status CheckReads(const LinkedOp& linked) const;
  // Payload that words have lent, by kind of message: it counts as sent.
  const std::array<uint64_t, kMaxMessageKinds>& lent_bytes() const { return lent_bytes_; }

 private:
  // The payload of a receive is in its block.
  void Arrive(int64_t op, uint32_t count);
  // The stamp of a lent block into which a message from another host has come, or from which one
  // goes there.
  void StampArrived(const Instruction& receive);
  void StampSent(const Instruction& send);
  // The part of its block that a message fills.
  std::span<std::byte> PayloadOf(const Instruction& op) const;

  Executor& executor_;
  BlockMemory& blocks_;
  LentMemory& lent_;
  VersionFiles& files_;
  Norms& norms_;
  std::map<std::pair<WorkerId, Channel>, uint32_t> sent_, received_;  // messages
  std::array<uint64_t, kMaxMessageKinds> lent_bytes_{};
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_MESSAGES_H_
