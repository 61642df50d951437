// One maker per transport, and one around them.
#include "tests/p2p/transports.h"

#include <utility>

#include "base/status.h"
#include "p2p/faulty_transport.h"
#include "p2p/local_transport.h"
#include "p2p/shm_transport.h"

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

}  // namespace

MakeTransports LocalTransports() { return CreateLocalTransports; }

MakeTransports ShmTransports() { return MakeShm; }

MakeTransports Delayed(MakeTransports transports, uint64_t seed,
                       std::chrono::microseconds max_delay) {
  return [transports = std::move(transports), seed,
          max_delay](const std::vector<TransportOptions>& options)
             -> absl::StatusOr<std::vector<std::unique_ptr<Transport>>> {
    RZ_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Transport>> made, transports(options));
    for (std::unique_ptr<Transport>& transport : made) {
      transport = MakeFaulty(std::move(transport), {.seed = seed, .max_delay = max_delay});
    }
    return made;
  };
}

}  // namespace ringzero
