// UcxLinks: a UcxPort's side of the message thread: what is under way to and from each peer.
// Messages come in through UcxListener. Used by one thread at a time: the message thread, or
// whoever polls.
#ifndef RINGZERO_P2P_UCX_UCX_LINKS_H_
#define RINGZERO_P2P_UCX_UCX_LINKS_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "p2p/deadline.h"
#include "p2p/mailbox.h"
#include "p2p/ucx/ucx_packet.h"
#include "p2p/ucx/ucx_worker.h"

namespace ringzero {

class UcxLinks final : public UcxListener {
 public:
  explicit UcxLinks(const UcxPortOptions& options);  // which outlive it

  // Before all that follows. Both outlive this, or Shut comes first. `nonces`: as told
  // at the rendezvous, by worker.
  void Begin(Mailbox* mailbox, UcxWorker* worker, std::vector<std::string> nonces);
  void SayHello();

  // As Wire has them; Fetch is its Move.
  bool SendBlock(WorkerId to, const BlockMessage& message);
  bool Fetch(WorkerId from, const BlockMessage& message, std::span<std::byte> block);
  void SendNote(WorkerId to, Note note);

  // Tells the mailbox of the blocks that have been filled, or have left: without its lock.
  void TellDone();
  bool HasDone() const { return !ended_.empty(); }
  // A sign of life to everybody whom `needs_one` names, and who has read the last one.
  template <typename NeedsOne>
  void SendHeartbeats(const NeedsOne& needs_one) {
    for (Peer& peer : peers_) {
      const bool hears = peer.here && !peer.gone && !peer.heartbeat_under_way;
      if (hears && needs_one(peer.worker)) SendControl(peer, UcxType::kHeartbeat);
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

  // After Progress: what cannot be done inside it, or while a message is sent (endpoints that broke
  // are told and closed).
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
  // Declines all offers. This must live until after the UcxWorker's end.
  void Shut();
  // Something is being fetched still.
  bool Fetching() const { return fetches_under_way_ > 0; }

  void ReadLanes();
  // What it read last. Any thread.
  std::string Lanes(WorkerId peer) const {
    const std::lock_guard<std::mutex> lock(lanes_mutex_);
    return peers_[peer.value].lanes;
  }

  bool OnMessage(const Message& message) override;
  void OnDone(UcxOperation& operation, const absl::Status& status, size_t bytes) override;
  void OnBroken(int peer, const absl::Status& why) override;

 private:
  // A send with what it needs until it is over, or a fetch.
  struct Operation final : UcxOperation {
    WorkerId peer;
    bool is_fetch = false;
    UcxHeader header;             // of a fetch: kind, number and bytes alone
    UcxShortHeader short_header;  // what is sent of it, perhaps
    std::string text;
  };
  // A message from block to block that has left (`peer` receives it), or has come.
  struct Ended {
    WorkerId peer;
    uint8_t kind = 0;
    uint32_t number = 0;
    bool has_left = false;
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
    int sends_under_way = 0;
    int offered = 0;            // by it, and not fetched yet
    std::vector<void*> offers;  // of those, the ones that are not being fetched yet
    uint64_t pass_out = 0, pass_in = 0, nonce = 0;
    std::array<uint32_t, kMaxMessageKinds> next{};  // by kind: behind the last message from it
    std::string lanes;                              // lanes_mutex_ held, to be written
    bool lanes_settled = false;                     // the same at two looks
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
  // With a header to that peer.
  Operation& TakeOperation(const Peer& peer, UcxType type);
  void FreeOperation(Operation& operation);
  void SendOperation(Peer& peer, Operation& operation);  // with its text
  void SendControl(Peer& peer, UcxType type, int32_t code = 0);
  void SayDueGoodbye(Peer& peer);

  absl::Status Take(Peer& peer, const UcxHeader& header, std::span<const std::byte> data);
  void TakeHello(const Message& message);
  absl::Status CheckHello(const UcxHello& hello) const;
  void TakeRefusal(const Message& message, const UcxHeader& header);
  absl::StatusOr<bool> TakeBlock(Peer& peer, const UcxHeader& header, const Message& message);
  void OnFetched(Operation& fetch, const absl::Status& status, size_t bytes);
  void TakeLastWords(Peer& peer);

  const UcxPortOptions& options_;
  const WorkerId self_;
  Mailbox* mailbox_ = nullptr;
  UcxWorker* worker_ = nullptr;
  std::vector<std::string> nonces_;  // by worker
  std::vector<Peer> peers_;          // by worker
  mutable std::mutex lanes_mutex_;
  std::deque<Operation> operations_;
  std::vector<Operation*> free_operations_;
  std::vector<Ended> ended_;  // the mailbox is to be told of
  bool clean_up_due_ = false;
  absl::Status failed_;  // for CleanUp
  int hellos_under_way_ = 0;
  int fetches_under_way_ = 0;
  std::vector<WorkerId> broken_;  // in the order in which they broke; CleanUp tells the mailbox
  AwakeClock awake_;              // ticked by CheckSuspicion
  std::optional<Suspicion> suspicion_;  // the first
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_UCX_UCX_LINKS_H_
