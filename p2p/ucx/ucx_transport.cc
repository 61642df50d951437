// Two arenas, a mailbox and one port for all peers; what all transports with such a port need.
#include "p2p/ucx/ucx_transport.h"

#include <array>
#include <thread>

#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/mailbox_transport.h"
#include "p2p/nccl/nccl_memory.h"
#include "p2p/ucx/ucx_port.h"

namespace ringzero {
namespace {

struct UcxParts {
  ProgressMode progress;
  Arenas arenas;                  // before the port: UCX lets go of memory only at its end
  std::shared_ptr<UcxPort> port;  // shared with the mailbox
  std::shared_ptr<Mailbox> mailbox;
};

class UcxTransport final : public MailboxTransport {
 public:
  explicit UcxTransport(UcxParts parts)
      : MailboxTransport(std::move(parts.mailbox), parts.arenas), parts_(std::move(parts)) {
    parts_.port->Start(mailbox());
  }

  absl::Status Meet() { return parts_.port->Meet(); }

  ~UcxTransport() override {
    ShutDown(mailbox(), parts_.progress, [this] { return Poll(); });
    parts_.port->Stop();
  }

  std::string name() const override { return "ucx"; }
  std::string LinkTo(WorkerId to) const override { return parts_.port->LinkTo(to); }
  bool Poll() override { return parts_.port->Poll(); }

 private:
  const UcxParts parts_;  // without the mailbox, which the base has
};

absl::StatusOr<PayloadMemory> MemoryFor(MemoryKind kind, PayloadMemory given) {
  if (given.map == nullptr) {
    if (kind == MemoryKind::kHost) return HostMemory();
    absl::StatusOr<PayloadMemory> made = MakeCudaMemory(0, CudaPlace::kDevice);
    if (!made.ok()) return Annotate(made.status(), "memory 'cuda' over ucx");
    return made;
  }
  if (given.kind == kind) return given;
  return absl::InvalidArgumentError("ucx: the memory given is of another kind than asked for");
}

}  // namespace

absl::Status CheckSeat(const JobSeat& seat) {
  if (seat.workers >= 1 && seat.self.value >= 0 && seat.self.value < seat.workers &&
      seat.workers <= 65535 && seat.rendezvous != nullptr) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "ucx: worker ", seat.self.value, " of ", seat.workers,
      seat.rendezvous == nullptr ? " has no rendezvous" : " is no seat in a job");
}

void ShutDown(Mailbox& mailbox, ProgressMode progress, const std::function<bool()>& poll) {
  if (progress == ProgressMode::kThread) return mailbox.Shutdown(kDrainLimit);
  const Deadline until(kDrainLimit);
  while (mailbox.waits_to_leave() && !until.over()) {
    if (!poll()) std::this_thread::yield();
  }
  mailbox.Shutdown(std::chrono::milliseconds(0));
}

absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const JobSeat& seat,
                                                              const TransportOptions& options,
                                                              UcxOptions ucx) {
  RZ_RETURN_IF_ERROR(CheckPeerTimeout(options));
  UcxPortOptions port_options = {.seat = seat,
                                 .elsewhere = std::move(ucx.elsewhere),
                                 .interfaces = std::move(ucx.interfaces),
                                 .peer_timeout = options.peer_timeout,
                                 .progress = options.progress,
                                 .memory = options.memory,
                                 .board = std::move(ucx.board),
                                 .sockets = std::move(ucx.sockets),
                                 .settings = std::move(ucx.settings)};
  for (int w = 0; w < seat.workers; ++w) port_options.peers.push_back(WorkerId(w));
  UcxParts parts = {.progress = options.progress};
  RZ_ASSIGN_OR_RETURN(parts.port, UcxPort::Open(std::move(port_options)));
  RZ_ASSIGN_OR_RETURN(const PayloadMemory memory, MemoryFor(options.memory, std::move(ucx.memory)));
  RZ_ASSIGN_OR_RETURN(parts.arenas, MakeArenas(seat.self, memory, options));
  for (const std::shared_ptr<Arena>& arena : parts.arenas) {
    RZ_RETURN_IF_ERROR(parts.port->Register(arena->memory()));
  }
  RZ_RETURN_IF_ERROR(parts.port->Join());
  parts.mailbox =
      std::make_shared<Mailbox>(seat.self, seat.workers, options.on_failure, parts.port);
  auto transport = std::make_unique<UcxTransport>(std::move(parts));
  RZ_RETURN_IF_ERROR(transport->Meet());
  return transport;
}

absl::Status UcxAvailable() { return UcxWorker::Available(); }
std::string UcxVersion() { return UcxWorker::Version(); }

}  // namespace ringzero
