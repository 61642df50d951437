// LaneWire: a Mailbox's words over another Transport, its payload over lanes.
//
//   auto wire = std::make_shared<LaneWire>(std::move(parts));
//   wire->Attach(mailbox, words, &driver);         // then words' answerer and failures come here
//
// docs/p2p.md (Transport nccl) has a payload's journey, and why both ends start together. In the
// lane of the long hops the receiver says go when the operation is the next in LongHopOrder.
//
// Words are questions of the inner transport, which brings hellos, signs of life, deaths and aborts
// as well. Its message thread runs the mailbox's callbacks. Thread-safe. Lock order: mailbox, wire,
// the inner transport's own.
#ifndef RINGZERO_P2P_NCCL_LANE_WIRE_H_
#define RINGZERO_P2P_NCCL_LANE_WIRE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "p2p/mailbox.h"
#include "p2p/nccl/lane_driver.h"
#include "p2p/nccl/lane_transport.h"
#include "p2p/nccl/lane_word.h"
#include "p2p/wire.h"

namespace ringzero {

class LaneWire final : public Wire, public std::enable_shared_from_this<LaneWire> {
 public:
  // `word_kinds`: LaneParts::word_kinds.
  LaneWire(WorkerId self, LaneRoutes routes, const std::vector<uint8_t>& word_kinds);

  // Until Detach, `words` and `driver` live. The error of words' Allocate.
  absl::Status Attach(std::shared_ptr<Mailbox> mailbox, Transport* words, LaneDriver* driver);
  void SayHello();
  // Ends the connection with both; from now on nothing is sent.
  void Detach();

  bool SendBlock(WorkerId to, const BlockMessage& message) override;
  bool Move(WorkerId from, const BlockMessage& message, std::span<std::byte> block) override;
  void SendAbort(WorkerId to, const absl::Status& why) override;
  void SendGoodbye(WorkerId to) override;
  void SendQuestion(WorkerId to, uint64_t number, const std::string& question) override;
  void SendAnswer(WorkerId, uint64_t, const std::string&) override {}  // `words` answers itself
  void Wake() override;

  // The inner message thread's side: the answer to a word.
  std::string OnWord(WorkerId from, const std::string& text);
  void OnWordsFailed(const absl::Status& why);  // also the lanes' failures

  // Waits until all that was sent and every goodbye is gone, at most `limit`.
  void Drain(std::chrono::milliseconds limit);
  bool SaidGoodbye(WorkerId to) const;

 private:
  struct Announced {  // by us: waits for its go
    LaneWord word;
    std::span<std::byte> block;
    bool may_go = false;
  };
  struct Arriving {
    LaneWord word;
    std::span<std::byte> into;
  };
  struct Peer {
    std::vector<LaneWord> unsaid;  // until it is greeted
    std::deque<Announced> announced;
    std::vector<LaneWord> offers;  // by it: their blocks are not posted yet
    std::deque<Arriving> waiting;  // in the lane of the long hops, for their turn
    uint64_t announcements = 0;
    int sending = 0;  // on a lane
    int receiving = 0;
    bool greeted = false;         // its hello has come
    bool goodbye_wanted = false;  // when all before it is gone
    bool goodbye_said = false;
    bool goodbye_came = false;  // to be told when all before it is here
  };

  // All with mutex_ held.
  void Say(WorkerId to, const LaneWord& word);
  void SayGoodbyeIfReady(WorkerId to);
  void StartSend(WorkerId to, const Announced& announced);
  void Announce(WorkerId to, const LaneWord& word, std::span<std::byte> block);
  // Later, when nobody holds the mailbox's lock.
  void FailLater(const absl::Status& why);
  void StartReceive(WorkerId from, const Arriving& arriving);
  absl::Status Accept(WorkerId from, Arriving arriving);
  absl::Status Go(WorkerId to, const LaneWord& word);
  void AdvanceLongHops();
  bool AdvanceLongHop(const LongHop& hop);
  bool IsLong(WorkerId from, WorkerId to) const;

  // Without it.
  void TakeHello(WorkerId from, const std::string& text);
  absl::Status TakeWord(WorkerId from, const LaneWord& word);
  absl::Status TakeOffer(WorkerId from, const LaneWord& word);
  void Sent(WorkerId to, const LaneWord& word);
  void Received(WorkerId from, const LaneWord& word);
  std::shared_ptr<Mailbox> HeldMailbox() const;
  // What was noted with the mailbox's lock held.
  void Settle();
  void RunTurn();  // and the callbacks
  void Fail(const absl::Status& why);

  const WorkerId self_;
  const LaneRoutes routes_;
  bool is_word_[kMaxMessageKinds] = {};

  mutable std::mutex mutex_;
  std::condition_variable drained_;
  std::shared_ptr<Mailbox> mailbox_;  // and it holds us, until Detach
  Transport* words_ = nullptr;
  LaneDriver* driver_ = nullptr;
  Buffer wake_from_, wake_into_;  // of words: a message to ourselves
  std::vector<Peer> peers_;
  int64_t next_long_hop_ = 0;
  std::optional<LongHop> long_hop_;  // whose turn it is
  bool ended_ = false;
  bool wake_underway_ = false;
  uint64_t wakes_ = 0;
  absl::Status failure_;  // found with the mailbox's lock held, not yet told
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_NCCL_LANE_WIRE_H_
