// ShmWire: a mailbox's words to the workers of its host, written into their rings.
//
//   ShmWire wire(self, members, rings, arenas);          // members: this host's workers, in order
//   wire.SendWord(to, key);                              // any thread
//   wire.Sleep(limit, [&] { return …; });                // the message thread, as all below it
//
// A full ring never blocks: the rest waits in a queue here, in order, until Flush writes it. All
// methods are thread-safe.
#ifndef RINGZERO_P2P_SHM_SHM_WIRE_H_
#define RINGZERO_P2P_SHM_SHM_WIRE_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "p2p/arena.h"
#include "p2p/mailbox.h"
#include "p2p/ring_queue.h"
#include "p2p/shm/shm_packet.h"
#include "p2p/shm/shm_rings.h"

namespace ringzero {

class ShmWire final : public Wire {
 public:
  // `arenas`: what blocks are sent from.
  ShmWire(WorkerId self, std::vector<WorkerId> members, std::shared_ptr<ShmRings> rings,
          Arenas arenas);

  bool SendBlock(WorkerId to, const BlockMessage& message) override;
  bool Move(WorkerId from, const BlockMessage& message, std::span<std::byte> block) override;
  bool HasWords(WorkerId) const override { return true; }
  void SendWord(WorkerId to, MessageKey key) override;
  void SendNote(WorkerId to, Note note) override;
  void Wake() override;

  // This host's workers, this one among them; a worker's place in it is its member number.
  const std::vector<WorkerId>& members() const { return members_; }
  RingReader ReaderFrom(WorkerId from);
  // After it has read: makes room known to whoever waits for it.
  void Publish(RingReader& reader, WorkerId from);

  // Whether Wake was called since the last call.
  bool TakeWoken() {
    return woken_.load(std::memory_order_relaxed) &&
           woken_.exchange(false, std::memory_order_seq_cst);
  }
  // Blocks until a peer writes, or somebody Wakes, at most `limit`; not if has_news(), nor if what
  // waits has room.
  template <typename HasNews>
  void Sleep(std::chrono::nanoseconds limit, const HasNews& has_news) {
    bell_.Sleep(limit, [&] {
      return woken_.load(std::memory_order_seq_cst) || (HasWaiting() && HasRoom()) || has_news();
    });
  }
  Doorbell& bell() { return bell_; }

  bool HasWaiting() const { return full_.load(std::memory_order_relaxed) != 0; }
  // Writes what waits and has room. True if that was anything.
  bool Flush();
  // From now on everything to `peer` is dropped.
  void ClosePeer(WorkerId peer) { Close(*PeerOf(peer)); }
  // It does not read any more: what does not fit into its ring is dropped, not waited for.
  void GiveUp(WorkerId peer);
  // From now on everything is dropped.
  void Disconnect();

 private:
  struct Peer {
    Peer(WorkerId which, Doorbell* bell, RingWriter writer)
        : worker(which), doorbell(bell), ring(writer) {}
    const WorkerId worker;
    Doorbell* const doorbell;
    std::mutex mutex;  // a leaf: nothing is called with it held. Of all below.
    RingWriter ring;
    NumberedQueue<RingWord> waiting;
    bool open = true;
    bool given_up = false;
  };

  void Send(WorkerId to, const ShmToken& token, std::string_view text = "");
  void Put(Peer& peer, const RingWord& word);  // peer.mutex held, as the next two
  bool Flush(Peer& peer);
  void Drop(Peer& peer);
  void Close(Peer& peer);
  bool HasRoom();
  Peer* PeerOf(WorkerId worker);
  int MemberOf(WorkerId worker) const;

  const Arenas arenas_;
  const std::vector<WorkerId> members_;
  const int member_;                       // this worker
  const std::shared_ptr<ShmRings> rings_;  // shared by all transports of a process, in tests
  Doorbell& bell_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by member
  std::atomic<int> full_{0};                  // peers for which something waits
  std::atomic<bool> woken_{false};
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_WIRE_H_
