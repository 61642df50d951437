// UcxPort: a mailbox's words over UCX to some of the workers, and the thread that moves them.
//
//   RZ_ASSIGN_OR_RETURN(std::shared_ptr<UcxPort> port, UcxPort::Open({.seat = seat, …}));
//   RZ_RETURN_IF_ERROR(port->Register(arena->memory()));   // sent from, received into
//   RZ_RETURN_IF_ERROR(port->Join());                      // blocks until the others are there
//   port->Start(*mailbox);                                 // which outlives Stop
//   RZ_RETURN_IF_ERROR(port->Meet());
//   port->Stop();
//
// docs/p2p.md (Transport ucx) has how a payload travels, and how a peer's death or silence is
// noticed.
//
// Thread-safe, as Wire says; the first four calls are made by one thread.
#ifndef RINGZERO_P2P_UCX_UCX_PORT_H_
#define RINGZERO_P2P_UCX_UCX_PORT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/heartbeat.h"
#include "p2p/mailbox.h"
#include "p2p/rendezvous/rendezvous.h"
#include "p2p/ucx/ucx_worker.h"
#include "p2p/unique_fd.h"
#include "p2p/wire.h"

namespace ringzero {

struct UcxPortOptions {
  JobSeat seat;
  std::vector<WorkerId> peers;          // whom this port reaches; itself is always reached
  std::vector<WorkerId> elsewhere;      // of these the ones on other hosts
  std::vector<std::string> interfaces;  // as UcxOptions::interfaces
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(5);
  ProgressMode progress = ProgressMode::kThread;
  MemoryKind memory = MemoryKind::kHost;
  std::shared_ptr<PulseBoard> board;  // of this host's workers; may be null
  std::vector<UniqueFd> sockets;      // as UcxOptions::sockets
  UcxSettings settings;
};

class UcxPort : public Wire {
 public:
  // Puts this worker's address into the rendezvous. Does not wait. InvalidArgument for a seat that
  // is none.
  static absl::StatusOr<std::shared_ptr<UcxPort>> Open(UcxPortOptions options);

  // As UcxWorker has them.
  virtual absl::Status Register(std::span<std::byte> memory) = 0;

  // Fetches the others' addresses. DeadlineExceeded, naming whom, after seat.join_limit; the error
  // of seat.rendezvous->status(), as from Meet.
  virtual absl::Status Join() = 0;
  // Says hello; a thread of the port's own moves messages from now on, or Poll.
  virtual void Start(Mailbox& mailbox) = 0;
  // Blocks until the others have said hello, too, or the error that ended the mailbox: a worker
  // that dies or stops from now on is missed. DeadlineExceeded, naming one, after seat.join_limit.
  virtual absl::Status Meet() = 0;
  virtual bool met() const = 0;  // Meet would not block
  // ProgressMode::kCaller, as Transport::Poll.
  virtual bool Poll() = 0;
  // After Mailbox::Shutdown: sends what is left, tells the others, ends. Later words are dropped.
  virtual void Stop() = 0;
  // As Transport::LinkTo: "ucx posix/memory cma/memory".
  virtual std::string LinkTo(WorkerId to) const = 0;
};

// InvalidArgument for a seat that is none.
absl::Status CheckSeat(const JobSeat& seat);

// Mailbox::Shutdown of a transport with such a port. With ProgressMode::kCaller nobody but `poll`
// moves what still waits for its receiver.
void ShutDown(Mailbox& mailbox, ProgressMode progress, const std::function<bool()>& poll);

}  // namespace ringzero

#endif  // RINGZERO_P2P_UCX_UCX_PORT_H_
