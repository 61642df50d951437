// Wire: how a Mailbox's words reach the other workers; each transport brings one.
//
// Every method may be called from any thread and with a mailbox's lock held: it must not block,
// call its Mailbox, or fail (a broken wire is noticed by its message thread). Between two workers
// goodbyes and aborts come after all that was sent before them. `to` may be this worker itself.
#ifndef RINGZERO_P2P_WIRE_H_
#define RINGZERO_P2P_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "base/ids.h"
#include "p2p/transport.h"

namespace ringzero {

// A message whose payload goes from a block of the sender into one of the receiver; or a word, which
// has none. `number` counts the messages of its channel, from 0.
struct BlockMessage {
  MessageKey key;
  bool is_word = false;
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
  // Only wires of shared memory have words: in the order of their channel, as SendBlock would.
  virtual bool HasWords() const { return false; }
  virtual void SendWord(WorkerId to, MessageKey key) {
    (void)to;
    (void)key;
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
