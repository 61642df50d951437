// ShmWire: a worker's sockets to the others, what could not yet be written, and the wait for news.
//
//   RZ_ASSIGN_OR_RETURN(auto wire, ShmWire::Create(self, std::move(sockets)));
//   wire->SendParcel(to, std::move(parcel));                   // any thread
//   ShmWire::News news = wire->Wait(limit);                    // the message thread, as all below
//   it ReceiveResult got = wire->Receive(news.readable[0], buffer);
//
// A full socket never blocks: the rest waits in a queue here, in order, and Wait writes it.
#ifndef RINGZERO_P2P_SHM_WIRE_H_
#define RINGZERO_P2P_SHM_WIRE_H_

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/packet_socket.h"
#include "p2p/shm_packet.h"
#include "p2p/unique_fd.h"
#include "p2p/wire.h"

namespace ringzero {

class ShmWire final : public Wire {
 public:
  struct News {
    std::vector<WorkerId> readable;  // or closed
    std::vector<ShmToken> from_myself;
  };

  // sockets: by worker; empty to this one, and to those that are no peers of this wire.
  static absl::StatusOr<std::shared_ptr<ShmWire>> Create(WorkerId self,
                                                         std::vector<UniqueFd> sockets);

  void SendParcel(WorkerId to, Parcel parcel) override;
  void SendCredit(WorkerId to, uint8_t kind) override;
  void SendAbort(WorkerId to, const absl::Status& why) override;
  void SendGoodbye(WorkerId to) override;
  void SendQuestion(WorkerId to, uint64_t number, const std::string& question) override;
  void SendAnswer(WorkerId to, uint64_t number, const std::string& answer) override;
  void Wake() override;

  // Whom it has a socket to.
  const std::vector<WorkerId>& peers() const { return connected_; }

  // Before all else on a connection. Unavailable when it cannot be written.
  absl::Status SendHello(WorkerId to, const ShmHello& hello, std::span<const int> descriptors);

  // Blocks until something arrives, Wake, or the limit.
  News Wait(std::chrono::milliseconds limit);
  ReceiveResult Receive(WorkerId from, std::span<std::byte> buffer);
  void ClosePeer(WorkerId peer);
  // It does not read any more: what does not fit into its socket is dropped, not waited for.
  void GiveUp(WorkerId peer);
  // Is everything written that can be?
  bool Flushed() const;
  // From now on everything is dropped.
  void Disconnect();

 private:
  using Packet = std::string;  // bytes
  struct Peer {
    UniqueFd socket;
    std::deque<Packet> waiting;
    bool given_up = false;
  };

  ShmWire(WorkerId self, UniqueFd epoll, UniqueFd wake, std::vector<UniqueFd> sockets);
  absl::Status Watch();
  // False when it is dropped because the peer is gone.
  bool Send(WorkerId to, const ShmToken& token, const std::string& text = "");
  void Flush(Peer& peer, int worker);             // mutex_ held
  void WatchWritable(int worker, bool writable);  // mutex_ held

  const WorkerId self_;
  std::vector<WorkerId> connected_;  // at the start
  const UniqueFd epoll_;
  const UniqueFd wake_;
  mutable std::mutex mutex_;  // a leaf: nothing is called with it held
  std::vector<Peer> peers_;
  std::vector<ShmToken> from_myself_;
  bool open_ = true;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_WIRE_H_
