// Mailbox: what all transports have in common: memory, channels, matching, errors and callbacks.
//
//   class ShmTransport final : public Mailbox { … };      // brings a Wire and a message thread
//   transport->Send(to, key, block, sent);                // any thread
//   OnNextBlock(from, message);   RunCallbacks();         // the message thread
//
// The message thread turns what arrives into On… calls. It starts when the transport is made; the
// transport's destructor calls ShutDown, and then ends the thread. Thread-safe, as Transport says.
// Lock order: a Mailbox's lock, then a Wire's.
#ifndef RINGZERO_P2P_MAILBOX_H_
#define RINGZERO_P2P_MAILBOX_H_

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/arena.h"
#include "p2p/ring_queue.h"
#include "p2p/transport.h"

namespace ringzero {

// How long a transport that closes waits for what was sent before its goodbye.
inline constexpr std::chrono::seconds kDrainLimit(5);

// A message whose payload goes from a block of the sender into one of the receiver; or a word,
// which has none. `number` counts the messages of its channel, from 0.
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

// What workers tell each other besides messages.
struct Note {
  enum class Kind : uint8_t { kAbort, kGoodbye, kQuestion, kAnswer };
  Kind kind = Kind::kGoodbye;
  absl::StatusCode code = absl::StatusCode::kOk;  // kAbort
  uint64_t number = 0;                            // kQuestion, kAnswer: of the asker's questions
  std::string text = {};                          // at most kMaxTextBytes
};

// Wire: how a Mailbox's messages and notes reach the other workers; each transport brings one.
//
// Every method may be called from any thread and with a mailbox's lock held: it must not block,
// call its Mailbox, or fail (a broken wire is noticed by its message thread). Between two workers
// goodbyes and aborts come after all that was sent before them. `to` may be this worker itself.
class Wire {
 public:
  virtual ~Wire() = default;
  // True: it has left, and `message.data` may be written again. Else Mailbox::OnSent says so.
  virtual bool SendBlock(WorkerId to, const BlockMessage& message) = 0;
  // Brings what came into the block that was posted for it. True: it is there. Else
  // Mailbox::OnMoved says so. Called without a lock.
  virtual bool Move(WorkerId from, const BlockMessage& message, std::span<std::byte> block) = 0;
  // Only wires of shared memory have words: in the order of their channel, as SendBlock would.
  virtual bool HasWords(WorkerId) const { return false; }
  virtual void SendWord(WorkerId, MessageKey) {}
  virtual void SendNote(WorkerId to, Note note) = 0;
  // Makes this worker's message thread call Mailbox::RunCallbacks.
  virtual void Wake() = 0;
};

class Mailbox : public Transport {
 public:
  struct Parts {
    WorkerId self;
    int workers = 0;
    const TransportOptions& options;
    Arenas arenas;
    Wire& wire;  // lives as long as the threads that call this mailbox
  };

  WorkerId self() const override { return self_; }
  int workers() const override { return static_cast<int>(peers_.size()); }
  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryUse use) override {
    return arenas_[static_cast<size_t>(use)]->Allocate(bytes);
  }
  absl::Status Send(WorkerId to, MessageKey key, std::span<const std::byte> block,
                    Done sent) override;
  absl::Status Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                    Done arrived) override;
  absl::Status SendWord(WorkerId to, MessageKey key) override;
  absl::Status ExpectWord(WorkerId from, MessageKey key, Done arrived) override;
  void Abort(const absl::Status& why) override;
  absl::Status Close() override;
  absl::Status Ask(WorkerId to, const std::string& question, AnswerArrival arrival) override;
  void AnswerWith(Answerer answerer) override;
  std::vector<Undelivered> undelivered() const override;
  absl::Status status() const override;
  TransportStats stats() const override;

  // The message thread's side.
  using PostedBlock = std::optional<std::span<std::byte>>;
  // A message from block to block has come, or is announced. The block posted for it: the wire
  // moves the payload there and calls OnMoved. Nothing: Wire::Move comes later, or the transport
  // has ended; the wire keeps the payload until then, unless it passes. Internal: what cannot
  // be true.
  absl::StatusOr<PostedBlock> OnBlock(WorkerId from, BlockMessage message);
  // As OnBlock, for wires that keep a channel's order: numbers the message, and moves it. Or a
  // word.
  absl::Status OnNextBlock(WorkerId from, BlockMessage message);
  void OnMoved(WorkerId from, uint8_t kind, uint32_t number);
  // The payload of a message has left its block.
  void OnSent(WorkerId to, uint8_t kind, uint32_t number);
  void OnNote(WorkerId from, Note note);
  // The connection is gone: a death, unless goodbyes were said.
  void OnDisconnect(WorkerId from);
  // Its message thread gives no sign of life: likewise.
  void OnSilence(WorkerId from, std::chrono::milliseconds lasted);
  // Something else broke (a malformed message, no hello): ends the transport on every worker. OK:
  // nothing did.
  void Fail(const absl::Status& why);
  // Runs all that is ready, outside of the lock; one call at a time.
  void RunCallbacks();
  // What AnswerWith's answerer says.
  std::string Answer(WorkerId from, const std::string& question);

 protected:
  explicit Mailbox(Parts parts);

  // For destructors, before the message thread is stopped: sends what still waits, if closed; fails
  // every open call (Cancelled). With ProgressMode::kCaller it polls meanwhile.
  void ShutDown();

  // Whether the block is of memory that may be sent from.
  virtual bool MaySend(WorkerId to, std::span<const std::byte> block) const;

  ProgressMode progress() const { return progress_; }

 private:
  struct Sending {
    MessageKey key;
    Done done;
    bool ended = false;
  };
  struct Receiving {
    bool is_posted = false;
    bool has_come = false;
    bool ended = false;
    bool is_word = false;  // if posted, as the next three
    MessageKey key;
    std::span<std::byte> block;
    Done done;
    BlockMessage message;  // if it has come
  };
  struct Channel {                 // one per peer and kind, both directions
    NumberedQueue<Sending> sends;  // to the peer, from block to block
    NumberedQueue<Receiving> receives;
    uint32_t posted = 0;  // the number of the next message to be expected
    uint32_t came = 0;    // so many messages have come
  };
  struct Peer {
    std::array<Channel, kMaxMessageKinds> channels;
    bool said_goodbye = false;  // it, to us
    bool told_goodbye = false;  // we, to it
  };
  struct Ready {
    Done done;
    absl::Status end;
  };
  struct Moving {
    WorkerId from;
    BlockMessage message;
    std::span<std::byte> block;
  };
  struct Runnable {  // what one round of RunCallbacks runs
    std::vector<Ready> ready;
    std::vector<Moving> moving;
    std::vector<std::pair<AnswerArrival, absl::StatusOr<std::string>>> answers;
    std::vector<std::pair<WorkerId, Note>> questions;  // and who asks
  };
  enum class Tell { kNobody, kPeers };

  // With the lock held, but for Move.
  absl::Status CheckCall(WorkerId peer, MessageKey key, const char* what) const;
  absl::Status CheckSend(WorkerId to, MessageKey key) const;
  absl::Status Expect(WorkerId from, Receiving wanted);
  // The block for it, if that is posted.
  absl::StatusOr<PostedBlock> Meet(WorkerId from, Channel& channel, BlockMessage message);
  bool Fits(WorkerId from, const Receiving& receiving);
  void Move(const Moving& moving);
  void EndCalls(Channel& channel, const absl::Status& why);
  // Of `queue`: it ended well.
  template <typename Call>
  void EndCall(NumberedQueue<Call>& queue, uint32_t number);
  void TakeGoodbye(WorkerId from);
  void TakeAnswer(WorkerId from, Note note);
  void EndUnmet(WorkerId from, bool awaited, MessageKey key);
  void SayGoodbyes();
  bool SaidGoodbyes() const;
  // Does it matter to us that this peer is gone?
  bool Needs(const Peer& peer) const { return !peer.said_goodbye && !peer.told_goodbye; }
  void FailQuestions(const absl::Status& why, std::optional<WorkerId> to);
  void End(const absl::Status& why, Tell tell = Tell::kPeers);
  // To be added to.
  Runnable& Next() {
    has_next_.store(true, std::memory_order_release);
    return next_;
  }

  const WorkerId self_;
  const ProgressMode progress_;
  const Arenas arenas_;
  Wire& wire_;

  std::mutex callbacks_mutex_;  // held while callbacks run, and taken before mutex_
  Runnable running_;            // callbacks_mutex_ held; kept, so that its memory is used again
  mutable std::mutex mutex_;
  std::condition_variable drained_;
  std::function<void(const absl::Status&)> on_failure_;  // emptied by its one call
  bool report_failure_ = false;
  bool closing_ = false;
  absl::Status status_;
  std::vector<Peer> peers_;
  std::map<uint64_t, std::pair<WorkerId, AnswerArrival>> asked_;  // whom, by question's number
  uint64_t questions_asked_ = 0;
  Runnable next_;                      // what RunCallbacks is to run; its questions are the others'
  std::atomic<bool> has_next_{false};  // changed with mutex_ held
  Answerer answerer_;
  TransportStats stats_;
};

// InvalidArgument unless peer_timeout is at least 1 ms.
absl::Status CheckPeerTimeout(const TransportOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_P2P_MAILBOX_H_
