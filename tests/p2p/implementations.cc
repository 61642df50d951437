// One line per transport.
#include "tests/p2p/implementations.h"

#include "p2p/ucx_transport.h"

namespace ringzero {

std::vector<Implementation> AllImplementations() {
  std::vector<Implementation> all = {
      {"local", LocalTransports()},
      {"shm", ShmTransports()},
      {"polled_local", Polled(LocalTransports())},
      {"polled_shm", Polled(ShmTransports())},
      {"delayed_local", Delayed(LocalTransports(), 1, std::chrono::milliseconds(2))},
      {"checksummed_local", Checksummed(LocalTransports()), 8},
      {"checksummed_shm", Checksummed(ShmTransports()), 8},
      {"lanes", LaneTransports(), 0, Delivery::kCopy},
      {"lanes_shm", LaneTransports(ShmTransports()), 0, Delivery::kCopy},
  };
  if (UcxVersion().empty()) return all;
  all.push_back({"ucx", UcxTransports(), 0, Delivery::kCopy});
  all.push_back({"ucx_tcp", UcxTcpTransports(), 0, Delivery::kCopy});
  all.push_back({"checksummed_ucx", Checksummed(UcxTransports()), 8, Delivery::kCopy});
  return all;
}

}  // namespace ringzero
