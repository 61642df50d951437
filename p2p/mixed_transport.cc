// A wire that chooses between two, two arenas in memory files, and a port for each wire.
#include "p2p/mixed_transport.h"

#include <array>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "p2p/mailbox_transport.h"
#include "p2p/shm/shm_arena.h"
#include "p2p/shm/shm_port.h"
#include "p2p/shm/shm_wire.h"
#include "p2p/ucx/ucx_port.h"

namespace ringzero {
namespace {

// Members of the host, this worker among them: over `here`; all others over `there`.
class MixedWire final : public Wire {
 public:
  MixedWire(int workers, std::shared_ptr<ShmWire> here, std::shared_ptr<UcxPort> there)
      : here_(std::move(here)), there_(std::move(there)), is_here_(workers, false) {
    for (const WorkerId member : here_->members()) is_here_[member.value] = true;
  }

  bool IsHere(WorkerId worker) const { return is_here_[worker.value]; }

  bool SendBlock(WorkerId to, const BlockMessage& message) override {
    return To(to).SendBlock(to, message);
  }
  bool Move(WorkerId from, const BlockMessage& message, std::span<std::byte> block) override {
    return To(from).Move(from, message, block);
  }
  void SendAbort(WorkerId to, const absl::Status& why) override { To(to).SendAbort(to, why); }
  void SendGoodbye(WorkerId to) override { To(to).SendGoodbye(to); }
  void SendQuestion(WorkerId to, uint64_t number, const std::string& question) override {
    To(to).SendQuestion(to, number, question);
  }
  void SendAnswer(WorkerId to, uint64_t number, const std::string& answer) override {
    To(to).SendAnswer(to, number, answer);
  }
  // One of the two threads runs the callbacks: the one that has messages.
  void Wake() override { here_->members().size() > 1 ? here_->Wake() : there_->Wake(); }

 private:
  Wire& To(WorkerId worker) const {
    return IsHere(worker) ? static_cast<Wire&>(*here_) : static_cast<Wire&>(*there_);
  }

  const std::shared_ptr<ShmWire> here_;
  const std::shared_ptr<UcxPort> there_;
  std::vector<bool> is_here_;  // by worker
};

struct MixedParts {
  ProgressMode progress = ProgressMode::kThread;
  Arenas arenas;  // before the ports, which let go of them at their end
  std::shared_ptr<UcxPort> there;
  std::shared_ptr<MixedWire> wire;
  std::shared_ptr<Mailbox> mailbox;
  std::unique_ptr<ShmPort> here;
};

class MixedTransport final : public MailboxTransport {
 public:
  explicit MixedTransport(MixedParts parts)
      : MailboxTransport(std::move(parts.mailbox), parts.arenas), parts_(std::move(parts)) {
    parts_.there->Start(mailbox());
  }

  ~MixedTransport() override {
    ShutDown(mailbox(), parts_.progress, [this] { return Poll(); });
    parts_.there->Stop();
    parts_.here->Stop();
  }

  absl::Status Meet() {
    // Whom we wait for may wait for us in shared memory.
    while (parts_.progress == ProgressMode::kCaller && !parts_.there->met()) {
      if (!Poll()) std::this_thread::yield();
    }
    return parts_.there->Meet();
  }

  std::string name() const override { return "shm+ucx"; }
  std::string LinkTo(WorkerId to) const override {
    if (to == self()) return "self";
    return parts_.wire->IsHere(to) ? "shm" : parts_.there->LinkTo(to);
  }
  bool Poll() override {
    const bool here = parts_.here->Poll();
    return parts_.there->Poll() || here;
  }

 private:
  const MixedParts parts_;  // without the mailbox, which the base has
};

UcxPortOptions PortOptions(const JobSeat& seat, const std::vector<WorkerId>& here,
                           const TransportOptions& options) {
  std::vector<bool> is_here(static_cast<size_t>(seat.workers), false);
  for (const WorkerId member : here) is_here[static_cast<size_t>(member.value)] = true;
  UcxPortOptions port = {.seat = seat,
                         .peer_timeout = options.peer_timeout,
                         .progress = options.progress,
                         .memory = options.memory};
  for (int w = 0; w < seat.workers; ++w) {
    if (!is_here[static_cast<size_t>(w)]) port.peers.push_back(WorkerId(w));
  }
  port.elsewhere = port.peers;
  return port;
}

}  // namespace

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
  UcxPortOptions port_options = PortOptions(seat, endpoint.Members(), options);
  port_options.interfaces = ucx.interfaces;
  port_options.settings = ucx.settings;
  std::array<ShmArena, kMemoryUses> memory;  // before the port, as in MixedParts
  MixedParts parts = {.progress = options.progress};
  RZ_ASSIGN_OR_RETURN(parts.there, UcxPort::Open(std::move(port_options)));

  const std::array<size_t, kMemoryUses> bytes = {options.parameter_bytes, options.sum_bytes};
  for (int i = 0; i < kMemoryUses; ++i) {
    RZ_ASSIGN_OR_RETURN(memory[i], MakeShmArena(seat.self, static_cast<MemoryUse>(i), bytes[i]));
    RZ_RETURN_IF_ERROR(parts.there->Register(memory[i].arena->memory()));
  }
  RZ_RETURN_IF_ERROR(parts.there->Join());

  auto here = std::make_shared<ShmWire>(seat.self, endpoint.Members(), endpoint.rings);
  parts.wire = std::make_shared<MixedWire>(seat.workers, here, parts.there);
  parts.mailbox =
      std::make_shared<Mailbox>(seat.self, seat.workers, options.on_failure, parts.wire);
  RZ_ASSIGN_OR_RETURN(parts.here,
                      ShmPort::Create(std::move(endpoint), {.mailbox = parts.mailbox,
                                                            .wire = here,
                                                            .arenas = {&memory[0], &memory[1]},
                                                            .peer_timeout = options.peer_timeout,
                                                            .progress = options.progress}));
  for (int i = 0; i < kMemoryUses; ++i) parts.arenas[i] = std::move(memory[i].arena);
  auto transport = std::make_unique<MixedTransport>(std::move(parts));
  RZ_RETURN_IF_ERROR(transport->Meet());
  return transport;
}

}  // namespace ringzero
