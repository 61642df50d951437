// Wire: how a Mailbox's words reach the other workers; each transport brings one.
//
// Every method may be called from any thread and with a mailbox's lock held: it must not block,
// call its Mailbox, or fail (a broken wire is noticed by its message thread). Between two workers the
// order of a kind's parcels is kept, and goodbyes and aborts come after all that was sent before
// them. `to` may be this worker itself.
#ifndef RINGZERO_P2P_WIRE_H_
#define RINGZERO_P2P_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "base/buffer.h"
#include "base/ids.h"
#include "p2p/transport.h"

namespace ringzero {

enum class Ownership { kShared, kOwned, kWord };

// A message on its way. `buffer` is a holder of the payload's root cell; when kShared it is not the
// only one and must not be written; a kWord has none.
struct Parcel {
  MessageKey key;
  Ownership ownership = Ownership::kShared;
  Buffer buffer;
};

// A message that is expected.
struct Awaited {
  MessageKey key;
  Ownership ownership = Ownership::kShared;
  size_t bytes = 0;
};

// A message whose payload goes from a block of the sender into one of the receiver. `number` counts
// the messages of its channel, from 0.
struct BlockMessage {
  MessageKey key;
  uint32_t number = 0;
  size_t bytes = 0;
  // Where the payload lies. At the receiver until it is in its block; null: the wire knows it by
  // `handle`.
  const std::byte* data = nullptr;
  void* handle = nullptr;
  bool passes = false;  // `data` is there for the call alone, the mailbox may have to copy it
  std::shared_ptr<const std::byte[]> copy = nullptr;  // keeps `data`, if it is one
};

class Wire {
 public:
  virtual ~Wire() = default;
  // True: it has left, and `message.data` may be written again. Else Mailbox::OnSent says so.
  virtual bool SendBlock(WorkerId to, const BlockMessage& message) = 0;
  // Brings what came into the block that was posted for it. True: it is there. Else
  // Mailbox::OnMoved says so. Called without a lock.
  virtual bool Move(WorkerId from, const BlockMessage& message, std::span<std::byte> block) = 0;
  virtual void SendParcel(WorkerId to, Parcel parcel) = 0;
  // This worker waits for a message, in the channel's order. For wires that need memory before it
  // comes; they may take it while the channel has free slots (SendCredit tells of each).
  virtual void AwaitParcel(WorkerId from, const Awaited& awaited) {
    (void)from;
    (void)awaited;
  }
  // One slot of the channel (to -> this worker, kind) is free again.
  virtual void SendCredit(WorkerId to, uint8_t kind) = 0;
  // From now on parcels wait for credit of the channel (this worker -> to, kind), or none does any
  // more. While some do, whatever credit has been sent, or is, must reach the mailbox soon; at
  // other times it may wait until this worker wakes. For wires that would wake somebody for it.
  virtual void AwaitCredit(WorkerId to, uint8_t kind) {
    (void)to;
    (void)kind;
  }
  virtual void StopAwaitingCredit(WorkerId to, uint8_t kind) {
    (void)to;
    (void)kind;
  }
  virtual void SendAbort(WorkerId to, const absl::Status& why) = 0;
  virtual void SendGoodbye(WorkerId to) = 0;
  // `number` names the question at its asker.
  virtual void SendQuestion(WorkerId to, uint64_t number, const std::string& question) = 0;
  virtual void SendAnswer(WorkerId to, uint64_t number, const std::string& answer) = 0;
  // Makes this worker's message thread call Mailbox::RunCallbacks.
  virtual void Wake() = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_WIRE_H_
