// A mailbox and a port for all peers; or a port for this host's and one for the others, with a wire
// that chooses between the two.
#include "p2p/ucx/ucx_transport.h"

#include <span>

#include "base/status.h"
#include "p2p/mailbox.h"
#include "p2p/shm/shm_transport.h"
#include "p2p/shm/shm_wire.h"
#include "p2p/ucx/ucx_port.h"

namespace ringzero {
namespace {

// Workers of this host, this worker among them: over `here`; all others over `there`.
class MixedWire final : public Wire {
 public:
  MixedWire(int workers, Wire& there, std::unique_ptr<ShmWire> here)
      : there_(there), here_(std::move(here)), is_here_(static_cast<size_t>(workers), false) {
    for (const WorkerId member : here_->members()) is_here_[member.value] = true;
  }

  bool IsHere(WorkerId worker) const { return is_here_[worker.value]; }
  ShmWire& here() { return *here_; }

  bool SendBlock(WorkerId to, const BlockMessage& message) override {
    return To(to).SendBlock(to, message);
  }
  bool Move(WorkerId from, const BlockMessage& message, std::span<std::byte> block) override {
    return To(from).Move(from, message, block);
  }
  bool HasWords(WorkerId peer) const override { return IsHere(peer); }
  void SendWord(WorkerId to, MessageKey key) override { here_->SendWord(to, key); }
  void SendNote(WorkerId to, Note note) override { To(to).SendNote(to, std::move(note)); }
  // One of the two threads runs the callbacks: the one that has messages.
  void Wake() override { here_->members().size() > 1 ? here_->Wake() : there_.Wake(); }

 private:
  Wire& To(WorkerId worker) const { return IsHere(worker) ? *here_ : there_; }

  Wire& there_;
  const std::unique_ptr<ShmWire> here_;
  std::vector<bool> is_here_;  // by worker
};

class UcxTransport final : public Mailbox {
 public:
  UcxTransport(Parts parts, std::unique_ptr<UcxPort> there,
               std::unique_ptr<MixedWire> mixed = nullptr)
      : Mailbox(std::move(parts)), there_(std::move(there)), mixed_(std::move(mixed)) {}

  ~UcxTransport() override {
    ShutDown();
    there_->Stop();
    if (here_ != nullptr) here_->Stop();
  }

  // With a MixedWire, before Meet.
  absl::Status OpenHere(ShmEndpoint endpoint, const ShmArenas& memory,
                        const TransportOptions& options) {
    RZ_ASSIGN_OR_RETURN(
        here_, ShmPort::Create(std::move(endpoint), {*this, mixed_->here(), memory, options}));
    return absl::OkStatus();
  }
  absl::Status Meet() {
    there_->Start(*this);
    return there_->Meet();
  }

  std::string name() const override { return mixed_ == nullptr ? "ucx" : "shm+ucx"; }
  std::string LinkTo(WorkerId to) const override {
    if (to == self()) return "self";
    return mixed_ != nullptr && mixed_->IsHere(to) ? "shm" : there_->LinkTo(to);
  }
  MappedMemory MemoryOf(WorkerId owner, MemoryUse use) override {
    return here_ == nullptr ? MappedMemory() : here_->MemoryOf(owner, use);
  }
  bool Poll() override {
    const bool here = here_ != nullptr && here_->Poll();
    return there_->Poll() || here;
  }

 private:
  // Also what a worker of this host has lent, to another host.
  bool MaySend(WorkerId to, std::span<const std::byte> block) const override {
    if (Mailbox::MaySend(to, block)) return true;
    return mixed_ != nullptr && !mixed_->IsHere(to) && here_->Maps(block);
  }

  const std::unique_ptr<UcxPort> there_;
  const std::unique_ptr<MixedWire> mixed_;  // null: all peers are reached over `there_`
  std::unique_ptr<ShmPort> here_;           // likewise
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const JobSeat& seat,
                                                              const TransportOptions& options,
                                                              UcxOptions ucx) {
  RZ_RETURN_IF_ERROR(CheckPeerTimeout(options));
  const PayloadMemory memory = ucx.memory.map == nullptr ? HostMemory() : ucx.memory;
  UcxPortOptions port_options = {.seat = seat, .transport = options, .ucx = std::move(ucx)};
  for (int w = 0; w < seat.workers; ++w) port_options.peers.push_back(WorkerId(w));
  Arenas arenas;  // outlive the port: UCX lets go of them at its end
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<UcxPort> port, UcxPort::Open(std::move(port_options)));
  if (memory.kind != options.memory) {
    return absl::InvalidArgumentError("ucx: the memory given is of another kind than asked for");
  }
  RZ_ASSIGN_OR_RETURN(arenas, MakeArenas(seat.self, memory, options));
  RZ_RETURN_IF_ERROR(port->Join(arenas));
  Mailbox::Parts parts = {seat.self, seat.workers, options, arenas, *port};
  auto transport = std::make_unique<UcxTransport>(std::move(parts), std::move(port));
  RZ_RETURN_IF_ERROR(transport->Meet());
  return transport;
}

absl::StatusOr<std::unique_ptr<Transport>> CreateMixedTransport(const JobSeat& seat,
                                                                ShmEndpoint endpoint,
                                                                const TransportOptions& options,
                                                                const UcxOptions& ucx) {
  RZ_RETURN_IF_ERROR(CheckPeerTimeout(options));
  if (options.memory != MemoryKind::kHost) {
    return absl::InvalidArgumentError(
        "shared memory with ucx carries memory of the hosts, not of a GPU");
  }
  if (endpoint.self != seat.self || endpoint.sockets.size() != static_cast<size_t>(seat.workers)) {
    return InvalidArgument("an endpoint of worker ", endpoint.self.value, " of ",
                           endpoint.sockets.size(), " for the seat of worker ", seat.self.value,
                           " of ", seat.workers);
  }
  UcxPortOptions port_options = {.seat = seat,
                                 .transport = options,
                                 .ucx = {.interfaces = ucx.interfaces, .settings = ucx.settings}};
  for (int w = 0; w < seat.workers; ++w) {
    if (w != seat.self.value && !endpoint.sockets[w]) port_options.peers.push_back(WorkerId(w));
  }
  port_options.ucx.elsewhere = port_options.peers;
  Arenas arenas;  // outlive the port, as above
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<UcxPort> there, UcxPort::Open(std::move(port_options)));
  RZ_ASSIGN_OR_RETURN(const ShmArenas memory, MakeShmArenas(seat.self, options));
  arenas = {memory[0].arena, memory[1].arena};
  RZ_RETURN_IF_ERROR(there->Join(arenas));
  auto mixed = std::make_unique<MixedWire>(
      seat.workers, *there,
      std::make_unique<ShmWire>(seat.self, endpoint.Members(), endpoint.rings, arenas));
  Mailbox::Parts parts = {seat.self, seat.workers, options, arenas, *mixed};
  auto transport =
      std::make_unique<UcxTransport>(std::move(parts), std::move(there), std::move(mixed));
  RZ_RETURN_IF_ERROR(transport->OpenHere(std::move(endpoint), memory, options));
  RZ_RETURN_IF_ERROR(transport->Meet());
  return transport;
}

}  // namespace ringzero
