// A mailbox, two arenas in memory files, and one port for all peers.
#include "p2p/shm/shm_transport.h"

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "p2p/mailbox_transport.h"
#include "p2p/shm/shm_arena.h"
#include "p2p/shm/shm_port.h"
#include "p2p/shm/shm_wire.h"

namespace ringzero {
namespace {

class ShmTransport final : public MailboxTransport {
 public:
  ShmTransport(std::shared_ptr<Mailbox> mailbox, Arenas arenas, std::unique_ptr<ShmPort> port)
      : MailboxTransport(std::move(mailbox), std::move(arenas)), port_(std::move(port)) {}

  ~ShmTransport() override {
    port_->PollWhile([this] { return mailbox().waits_to_leave(); }, kDrainLimit);
    mailbox().Shutdown(kDrainLimit);
    port_->Stop();
  }

  std::string name() const override { return "shm"; }
  bool Poll() override { return port_->Poll(); }
  MappedMemory MemoryOf(WorkerId owner, MemoryUse use) override {
    return owner == self() ? MyArena(use).Mapped() : port_->MemoryOf(owner, use);
  }

 private:
  const std::unique_ptr<ShmPort> port_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> CreateShmTransport(ShmEndpoint endpoint,
                                                              const TransportOptions& options) {
  const WorkerId self = endpoint.self;
  const int workers = static_cast<int>(endpoint.sockets.size());
  RZ_RETURN_IF_ERROR(CheckPeerTimeout(options));
  if (options.memory != MemoryKind::kHost) {
    return absl::InvalidArgumentError("shm carries memory of the host, not of a GPU");
  }
  RZ_ASSIGN_OR_RETURN(ShmArena parameters,
                      MakeShmArena(self, MemoryUse::kParameters, options.parameter_bytes));
  RZ_ASSIGN_OR_RETURN(ShmArena sums, MakeShmArena(self, MemoryUse::kSums, options.sum_bytes));
  auto wire = std::make_shared<ShmWire>(self, endpoint.Members(), endpoint.rings);
  auto mailbox = std::make_shared<Mailbox>(self, workers, options.on_failure, wire);
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<ShmPort> port,
                      ShmPort::Create(std::move(endpoint), {.mailbox = mailbox,
                                                            .wire = wire,
                                                            .arenas = {&parameters, &sums},
                                                            .peer_timeout = options.peer_timeout,
                                                            .progress = options.progress}));
  return std::make_unique<ShmTransport>(std::move(mailbox),
                                        Arenas{std::move(parameters.arena), std::move(sums.arena)},
                                        std::move(port));
}

}  // namespace ringzero
