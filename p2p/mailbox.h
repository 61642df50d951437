// Mailbox: what all transports have in common: channels, matching, errors and callbacks.
//
//   auto mailbox = std::make_shared<Mailbox>(self, workers, on_failure, wire);
//   mailbox->Send(to, key, block, sent);                                   // any thread
//   mailbox->OnWord(from, key);  mailbox->RunCallbacks();                  // the message thread
//
// A transport adds memory, a Wire, and a message thread that turns what arrives into On… calls.
// Thread-safe. Lock order: a Mailbox's lock, then a Wire's.
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
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/ring_queue.h"
#include "p2p/transport.h"
#include "p2p/wire.h"

namespace ringzero {

// How long a transport that closes waits for what was sent before its goodbye.
inline constexpr std::chrono::seconds kDrainLimit(5);

// InvalidArgument unless peer_timeout is at least 1 ms.
absl::Status CheckPeerTimeout(const TransportOptions& options);

class Mailbox {
 public:
  Mailbox(WorkerId self, int workers, std::function<void(const absl::Status&)> on_failure,
          std::shared_ptr<Wire> wire);

  // The caller's side, as Transport has it.
  absl::Status Send(WorkerId to, MessageKey key, std::span<const std::byte> block, Done sent);
  absl::Status Post(WorkerId from, MessageKey key, std::span<std::byte> block, Done arrived);
  absl::Status SendWord(WorkerId to, MessageKey key);
  absl::Status ExpectWord(WorkerId from, MessageKey key, Done arrived);
  void Abort(const absl::Status& why);
  absl::Status Close();
  absl::Status Ask(WorkerId to, const std::string& question, AnswerArrival arrival);
  void AnswerWith(Answerer answerer);
  std::vector<Undelivered> undelivered() const;
  absl::Status status() const;
  TransportStats stats() const;

  // The message thread's side.
  // A message from block to block has come, or is announced. The block posted for it: the wire moves
  // the payload there and calls OnMoved. Nothing: Wire::Move comes later, or the transport has
  // ended; the wire keeps the payload until then, unless it passes. Internal: what cannot be true.
  absl::StatusOr<std::optional<std::span<std::byte>>> OnBlock(WorkerId from, BlockMessage message);
  // As OnBlock, for wires that keep a channel's order: numbers the message, and moves it.
  absl::Status OnNextBlock(WorkerId from, BlockMessage message);
  void OnWord(WorkerId from, MessageKey key);
  void OnMoved(WorkerId from, uint8_t kind, uint32_t number);
  // The payload of a message has left its block.
  void OnSent(WorkerId to, uint8_t kind, uint32_t number);
  void OnAbort(WorkerId from, const absl::Status& why);
  void OnGoodbye(WorkerId from);
  // The connection is gone: a death, unless goodbyes were said.
  void OnDisconnect(WorkerId from);
  // Its message thread gives no sign of life: likewise.
  void OnSilence(WorkerId from, std::chrono::milliseconds lasted);
  void OnQuestion(WorkerId from, uint64_t number, std::string question);
  void OnAnswer(WorkerId from, uint64_t number, std::string answer);
  // Something else broke (a malformed message, no hello): ends the transport on every worker.
  void Fail(const absl::Status& why);
  // Runs all that is ready, outside of the lock; one call at a time.
  void RunCallbacks();

  // For destructors, before the message thread is stopped: sends what still waits, if closed; fails
  // every open call (Cancelled).
  void Shutdown(std::chrono::milliseconds limit);

  // Has been closed, and something still waits for its receiver: Shutdown would wait for that.
  bool waits_to_leave() const;

  WorkerId self() const { return self_; }
  int workers() const { return static_cast<int>(peers_.size()); }
  Wire& wire() { return *wire_; }

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
  struct Asked {
    WorkerId to;
    AnswerArrival arrival;
  };
  struct Question {
    WorkerId from;
    uint64_t number;
    std::string text;
  };
  struct ReadyAnswer {
    AnswerArrival arrival;
    absl::StatusOr<std::string> result;
  };
  struct Runnable {  // what one round of RunCallbacks runs
    std::vector<Ready> ready;
    std::vector<Moving> moving;
    std::vector<ReadyAnswer> answers;
    std::vector<Question> questions;
  };
  enum class Tell { kNobody, kPeers };

  absl::Status CheckCall(WorkerId peer, MessageKey key,
                         const char* what) const;  // lock held, as below
  absl::Status CheckSend(WorkerId to, MessageKey key) const;
  absl::Status Expect(WorkerId from, Receiving wanted);
  // The block for it, if that is posted.
  absl::StatusOr<std::optional<std::span<std::byte>>> Meet(WorkerId from, Channel& channel,
                                                           BlockMessage message);
  bool Fits(WorkerId from, const Receiving& receiving);
  void Move(const Moving& moving);  // without the lock
  void EndOutOfStep(WorkerId from, const std::string& sent, const std::string& awaited);
  void EndCalls(Channel& channel, const absl::Status& why);
  // Of `queue`: it ended well.
  template <typename Call>
  void EndCall(NumberedQueue<Call>& queue, Call& call);
  void EndUnmet(WorkerId from, bool awaited, MessageKey key);
  void SayGoodbyes();
  // Does it matter to us that this peer is gone?
  bool Needs(const Peer& peer) const { return !peer.said_goodbye && !peer.told_goodbye; }
  void FailQuestions(const absl::Status& why, std::optional<WorkerId> to);
  void End(const absl::Status& why, Tell tell);
  // To be added to.
  Runnable& Next() {
    has_next_.store(true, std::memory_order_release);
    return next_;
  }
  bool SaidGoodbyes() const;

  const WorkerId self_;
  const std::shared_ptr<Wire> wire_;

  std::mutex callbacks_mutex_;  // held while callbacks run, and taken before mutex_
  Runnable running_;            // callbacks_mutex_ held; kept, so that its memory is used again
  mutable std::mutex mutex_;
  std::condition_variable drained_;
  std::function<void(const absl::Status&)> on_failure_;  // emptied by its one call
  bool report_failure_ = false;
  bool closing_ = false;
  absl::Status status_;
  std::vector<Peer> peers_;
  std::map<uint64_t, Asked> asked_;  // by number
  uint64_t questions_asked_ = 0;
  Runnable next_;                      // what RunCallbacks is to run; its questions are the others'
  std::atomic<bool> has_next_{false};  // changed with mutex_ held
  Answerer answerer_;
  TransportStats stats_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_MAILBOX_H_
