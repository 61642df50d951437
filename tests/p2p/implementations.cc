// One line per transport.
#include "tests/p2p/implementations.h"

#include "tests/p2p/nccl_transports.h"

namespace ringzero {
namespace {

constexpr int kMostWorkers = 4;  // in any test of the suites

}  // namespace

std::vector<Implementation> AllImplementations() {
  return {
      {"local", LocalTransports()},
      {"shm", ShmTransports()},
      {"delayed_local", Delayed(LocalTransports(), 1, std::chrono::milliseconds(2))},
      {"checksummed_local", Checksummed(LocalTransports()), 8},
      {"checksummed_shm", Checksummed(ShmTransports()), 8},
      {"lanes", LaneTransports(), 0, Delivery::kCopy},
      {"lanes_shm", LaneTransports(ShmTransports()), 0, Delivery::kCopy},
      {"nccl", NcclTransports(), 0, Delivery::kCopy, [] { return NcclMissing(kMostWorkers); }},
  };
}

}  // namespace ringzero
