// One maker per transport, and those around them.
#include "tests/p2p/transports.h"

#include <thread>
#include <utility>

#include "base/status.h"
#include "p2p/checksummed_transport.h"
#include "p2p/faulty_transport.h"
#include "p2p/local_transport.h"
#include "p2p/shm_transport.h"
#include "p2p/ucx_transport.h"

namespace ringzero {
namespace {

absl::StatusOr<std::vector<std::unique_ptr<Transport>>> MakeShm(
    const std::vector<TransportOptions>& options) {
  RZ_ASSIGN_OR_RETURN(std::vector<ShmEndpoint> endpoints,
                      MakeShmEndpoints(static_cast<int>(options.size())));
  std::vector<std::unique_ptr<Transport>> transports;
  for (size_t w = 0; w < options.size(); ++w) {
    RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                        CreateShmTransport(std::move(endpoints[w]), options[w]));
    transports.push_back(std::move(transport));
  }
  return transports;
}

absl::StatusOr<std::vector<std::unique_ptr<Transport>>> MakeUcx(
    const std::vector<TransportOptions>& options, const UcxOptions& ucx) {
  const auto workers = static_cast<int>(options.size());
  JobSeat seat = {
      .workers = workers, .secret = "of this test", .rendezvous = MakeLocalRendezvous()};
  std::vector<absl::StatusOr<std::unique_ptr<Transport>>> made(options.size());
  std::vector<std::thread> threads;  // each waits for the others
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, seat, w]() mutable {
      seat.self = WorkerId(w);
      made[w] = CreateUcxTransport(seat, options[w], ucx);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::unique_ptr<Transport>> transports;
  for (auto& each : made) {
    RZ_RETURN_IF_ERROR(each.status());
    transports.push_back(*std::move(each));
  }
  return transports;
}

// What `transports` makes, each wrapped.
using Wrap = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>;
MakeTransports Each(MakeTransports transports, Wrap wrap) {
  return [transports = std::move(transports),
          wrap = std::move(wrap)](const std::vector<TransportOptions>& options)
             -> absl::StatusOr<std::vector<std::unique_ptr<Transport>>> {
    RZ_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Transport>> made, transports(options));
    for (std::unique_ptr<Transport>& transport : made) transport = wrap(std::move(transport));
    return made;
  };
}

}  // namespace

MakeTransports LocalTransports() { return CreateLocalTransports; }

MakeTransports ShmTransports() { return MakeShm; }

MakeTransports UcxTransports() {
  return [](const std::vector<TransportOptions>& options)
             -> absl::StatusOr<std::vector<std::unique_ptr<Transport>>> {
    UcxOptions ucx;
    RZ_ASSIGN_OR_RETURN(ucx.board, PulseBoard::Create(static_cast<int>(options.size())));
    return MakeUcx(options, ucx);
  };
}

MakeTransports UcxTcpTransports() {
  return [](const std::vector<TransportOptions>& options) {
    return MakeUcx(options, {.settings = {{"TLS", "tcp,self"}}});
  };
}

MakeTransports Delayed(MakeTransports transports, uint64_t seed,
                       std::chrono::microseconds max_delay) {
  return Each(std::move(transports), [seed, max_delay](std::unique_ptr<Transport> transport) {
    return MakeFaulty(std::move(transport), {.seed = seed, .max_delay = max_delay});
  });
}

MakeTransports Checksummed(MakeTransports transports) {
  const auto with_room = [transports =
                              std::move(transports)](std::vector<TransportOptions> options) {
    for (TransportOptions& each : options) each = WithChecksumRoom(std::move(each));
    return transports(options);
  };
  return Each(with_room, [](std::unique_ptr<Transport> transport) {
    return MakeChecksummed(std::move(transport), {});
  });
}

MakeTransports Damaged(MakeTransports transports, const Damage& damage) {
  return Each(std::move(transports), [damage](std::unique_ptr<Transport> transport) {
    if (transport->self() != damage.worker) return transport;
    return MakeFaulty(std::move(transport), {.seed = damage.seed, .flip_message = damage.message});
  });
}

}  // namespace ringzero
