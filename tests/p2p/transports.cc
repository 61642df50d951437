// One maker per transport, and those around them.
#include "tests/p2p/transports.h"

#include <atomic>
#include <thread>
#include <utility>

#include "base/status.h"
#include "p2p/checksummed_transport.h"
#include "p2p/faulty_transport.h"
#include "p2p/local_transport.h"
#include "p2p/shm_transport.h"
#include "p2p/transport_decorator.h"

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

// Somebody who calls Poll, as a program with ProgressMode::kCaller does.
class PolledTransport final : public TransportDecorator {
 public:
  explicit PolledTransport(std::unique_ptr<Transport> inner)
      : TransportDecorator(std::move(inner)), poller_([this] { Run(); }) {}
  ~PolledTransport() override {
    stopping_ = true;
    poller_.join();
    DestroyInner();
  }
  bool Poll() override { return false; }

 private:
  void Run() {
    while (!stopping_) {
      // Workers outnumber cores: whoever has nothing to do lets the others run.
      if (!inner().Poll()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  std::atomic<bool> stopping_{false};
  std::thread poller_;
};

}  // namespace

MakeTransports LocalTransports() { return CreateLocalTransports; }

MakeTransports ShmTransports() { return MakeShm; }

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

MakeTransports Polled(MakeTransports transports) {
  const auto by_caller = [transports =
                              std::move(transports)](std::vector<TransportOptions> options) {
    for (TransportOptions& each : options) each.progress = ProgressMode::kCaller;
    return transports(options);
  };
  return Each(by_caller, [](std::unique_ptr<Transport> transport) {
    return std::make_unique<PolledTransport>(std::move(transport));
  });
}

MakeTransports Damaged(MakeTransports transports, const Damage& damage) {
  return Each(std::move(transports), [damage](std::unique_ptr<Transport> transport) {
    if (transport->self() != damage.worker) return transport;
    return MakeFaulty(std::move(transport), {.seed = damage.seed, .flip_message = damage.message});
  });
}

}  // namespace ringzero
