// UcxLinks: a UcxPort's side of the message thread: what is under way to and from each peer.
//
//   UcxLinks links(options);   links.Begin(mailbox, worker, arenas, nonces);
//   links.SayHello();   links.SendParcel(to, std::move(parcel));   links.Await(from, awaited);
//   while (worker.Progress()) {}        // messages come in through UcxListener
//   links.GrantCredits();
//   links.SendCredits(++step);          // what no other message has taken along
//
// Used by one thread at a time: the message thread, or whoever polls.
#ifndef RINGZERO_P2P_UCX_UCX_LINKS_H_
#define RINGZERO_P2P_UCX_UCX_LINKS_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "p2p/arena.h"
#include "p2p/awake_clock.h"
#include "p2p/mailbox.h"
#include "p2p/ring_queue.h"
#include "p2p/ucx/ucx_packet.h"
#include "p2p/ucx/ucx_port.h"
#include "p2p/ucx/ucx_worker.h"

namespace ringzero {

class UcxLinks final : public UcxListener {
 public:
  explicit UcxLinks(const UcxPortOptions& options);  // which outlive it

  // Before all that follows. Both outlive this, or Shut comes first. `nonces`: as told
  // at the rendezvous, by worker.
  void Begin(Mailbox* mailbox, UcxWorker* worker, std::array<Arena*, kUcxMemoryUses> arenas,
             std::vector<std::string> nonces);
  void SayHello();

  // Wire's words; Fetch is its Move.
  bool SendBlock(WorkerId to, const BlockMessage& message);
  bool Fetch(WorkerId from, const BlockMessage& message, std::span<std::byte> block);
  void SendParcel(WorkerId to, Parcel parcel);
  void Await(WorkerId from, const Awaited& awaited);
  void SendCredit(WorkerId to, uint8_t kind);
  struct Text {
    UcxType type = UcxType::kAbort;
    uint64_t number = 0;
    int32_t code = 0;
    std::string text;
  };
  void SendText(WorkerId to, Text text);
  void SendGoodbye(WorkerId to);

  // Tells the mailbox of the blocks that have been filled, or have left: without its lock.
  void TellDone();
  bool HasDone() const { return !ended_.empty(); }
  // Tells the mailbox of the credit that came with messages while there was other credit left:
  // after the messages have been handed on, which should not wait for that.
  void GrantCredits();
  // What no other message has taken along for a while; at once if the last message was large, or
  // when more than half of a kind's slots are in it. `step` only grows.
  void SendCredits(uint64_t step);
  void SendAllCredits();
  // A sign of life to everybody whom `needs_one` names.
  template <typename NeedsOne>
  void SendHeartbeats(const NeedsOne& needs_one) {
    for (Peer& peer : peers_) {
      if (peer.here && !peer.gone && needs_one(peer.worker)) SendHeartbeat(peer);
    }
  }
  // Calls `heard` for everybody who has sent anything since the last call.
  template <typename Heard>
  void TakeHeard(const Heard& heard) {
    for (Peer& peer : peers_) {
      if (peer.heard) heard(peer.worker);
      peer.heard = false;
    }
  }

  // After Progress: what cannot be done inside it, or while a parcel is sent (endpoints that broke
  // are told and closed, the receives posted for them cancelled).
  void CleanUp();
  // It gives no sign of life: nothing is waited for any more.
  void GiveUp(WorkerId peer);
  // An operation that failed is the end of its peer, as a rule, and named as that when it is found:
  // within peer_timeout. Of one that is alive after twice that time it is an error of its own.
  // To be called at least every peer_timeout / 5.
  void CheckSuspicion(std::chrono::steady_clock::time_point now);
  // The first peer whose hello has not come.
  std::optional<WorkerId> Ungreeted() const;
  // All hellos have come, and ours have left.
  bool Met() const { return hellos_under_way_ == 0 && !Ungreeted().has_value(); }

  // The end: nothing is under way any more to those who listen; then farewells, and their answers.
  bool Quiet() const;
  void SayFarewell();
  bool FarewellSeen() const;
  // Cancels all receives. Blocks that UCX may still write to are kept until this is destroyed,
  // which must come after the UcxWorker's end.
  void Shut();
  // Something is being received still: a cancelled receive that had begun goes on.
  bool Receiving() const { return receives_under_way_ > 0; }

  const std::string& Lanes(WorkerId peer) const { return peers_[peer.value].lanes; }
  void ReadLanes();

  bool OnMessage(const Message& message) override;
  void OnDone(UcxOperation& operation, const absl::Status& status, size_t bytes) override;
  void OnBroken(int peer, const absl::Status& why) override;

 private:
  // A send with what it needs until it is over, or a posted receive.
  struct Operation final : UcxOperation {
    enum class Kind { kMessage, kPayload, kReceive, kHeartbeat, kBlock, kFetch };
    Kind kind = Kind::kMessage;
    WorkerId peer;
    UcxHeader header;             // kReceive: kind and number alone
    UcxShortHeader short_header;  // what is sent of it, perhaps
    UcxBlockHeader block_header;  // or this
    Buffer buffer;
    std::string text;
  };
  // One message of a channel from its announcement or its wait until its delivery.
  struct Arriving {
    bool announced = false;
    bool awaited = false;
    bool filled = false;
    UcxHeader header;  // if announced
    Awaited wanted;    // if awaited
    Buffer buffer;
    Operation* posted = nullptr;
    absl::Status failed;  // of the receive

    void Clear() {  // for the next message; its receive may still be posted
      announced = awaited = filled = false;
      failed = absl::OkStatus();
    }
  };
  struct Incoming {                  // a channel from a peer; numbers wrap around
    std::vector<Arriving> arriving;  // by number modulo their count, a power of two
    uint32_t slots = 0;              // not more than there are of them
    RingQueue<Awaited> waiting;      // awaited beyond the slots
    uint32_t awaited = 0;            // number of the next message that gets its Awaited
    uint32_t delivered = 0;          // number of the next one that the mailbox gets
    uint32_t freed = 0;              // slots that were given back
    bool large = false;              // the last message
    uint32_t next_block = 0;         // behind the last message from block to block
  };
  // A message from block to block that has left (`peer` receives it), or has come.
  struct Ended {
    WorkerId peer;
    uint8_t kind = 0;
    uint32_t number = 0;
    bool has_left = false;
  };
  struct Outgoing {
    uint32_t slots = 0;  // the peer's
    uint32_t sent = 0;
    uint32_t credited = 0;  // slots that came back
    int granted = 0;        // of these, not yet told to the mailbox
  };
  struct Peer {
    WorkerId worker;
    bool here = false;  // this port reaches it
    bool greeted = false;
    bool gone = false;    // broken, or it has said farewell: nothing is sent any more
    bool silent = false;  // given up: words may still reach it, but nothing is waited for
    bool closed = false;
    bool heard = false;
    bool goodbye_due = false, goodbye_said = false, goodbye_came = false, goodbye_told = false;
    bool farewell_said = false, farewell_seen = false, farewell_came = false;
    bool heartbeat_under_way = false;
    bool has_credits = false;
    bool credits_press = false;
    uint64_t credits_since = 0;  // the step of the first of them
    int sends_under_way = 0;
    int announced = 0;          // messages that were announced and are not delivered
    std::vector<void*> offers;  // of those, the ones that are not being fetched yet
    uint64_t pass_out = 0, pass_in = 0, nonce = 0;
    std::array<uint8_t, kMaxMessageKinds> credits{};  // to be sent
    std::array<Outgoing, kMaxMessageKinds> out;
    std::array<Incoming, kMaxMessageKinds> in;
    std::string lanes;
    bool lanes_settled = false;  // the same at two looks
  };

  struct Suspicion {
    WorkerId worker;
    absl::Status why;
    AwakeClock::Clock::time_point since;  // awake time
  };

  UcxPair PairOf(WorkerId from, WorkerId to) const {
    return {.secret = options_.seat.secret,
            .from = from.value,
            .to = to.value,
            .nonce_of_from = nonces_[static_cast<size_t>(from.value)],
            .nonce_of_to = nonces_[static_cast<size_t>(to.value)]};
  }
  void Suspect(const Peer& peer, const absl::Status& why);
  void AddOperation();
  Operation& TakeOperation(Operation::Kind kind, WorkerId peer);
  void FreeOperation(Operation& operation);
  UcxHeader HeaderTo(Peer& peer, UcxType type);
  void SendOperation(Peer& peer, Operation& operation, std::span<const std::byte> data);
  void SendControl(Peer& peer, UcxType type);
  void SendCreditsOlderThan(uint64_t steps);
  void SendHeartbeat(Peer& peer);
  void SayDueGoodbye(Peer& peer);

  absl::Status Take(Peer& peer, const UcxHeader& header, std::span<const std::byte> data);
  void TakeHello(const Message& message, const UcxHeader& header);
  absl::Status CheckHello(const UcxHello& hello) const;
  void TakeRefusal(const Message& message, const UcxHeader& header);
  absl::Status TakeCredits(Peer& peer, const UcxHeader& header);
  absl::StatusOr<bool> TakeBlock(Peer& peer, const UcxHeader& header, const Message& message);
  void OnFetched(Operation& fetch, const absl::Status& status, size_t bytes);
  absl::Status TakeAnnouncement(Peer& peer, const UcxHeader& header,
                                std::span<const std::byte> data);
  void Advance(Peer& peer, uint8_t kind);
  void Post(Peer& peer, uint8_t kind, uint32_t number);
  void Deliver(Peer& peer, uint8_t kind);
  void TakeLastWords(Peer& peer);
  void CancelReceives(Peer& peer);
  absl::StatusOr<Buffer> BlockFor(uint8_t ownership, size_t bytes);

  const UcxPortOptions& options_;
  const WorkerId self_;
  Mailbox* mailbox_ = nullptr;
  UcxWorker* worker_ = nullptr;
  std::array<Arena*, kUcxMemoryUses> arenas_{};
  std::vector<std::string> nonces_;  // by worker
  std::vector<Peer> peers_;          // by worker
  std::deque<Operation> operations_;
  std::vector<Operation*> free_operations_;
  std::vector<Buffer> kept_;  // of receives that failed: UCX may write to them until its end
  std::vector<Ended> ended_;  // the mailbox is to be told of
  std::vector<std::pair<WorkerId, uint8_t>> granted_;  // whose Outgoing::granted is not 0
  bool credits_due_ = false;
  uint64_t step_ = 0;
  bool clean_up_due_ = false;
  absl::Status failed_;  // for CleanUp
  int hellos_under_way_ = 0;
  int receives_under_way_ = 0;
  std::vector<WorkerId> broken_;  // in the order in which they broke; CleanUp tells the mailbox
  AwakeClock awake_;              // ticked by CheckSuspicion
  std::optional<Suspicion> suspicion_;  // the first
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_UCX_UCX_LINKS_H_
