// One line per transport.
#include "tests/p2p/implementations.h"

#include "p2p/ucx/ucx_transport.h"
#include "tests/p2p/transports.h"

namespace ringzero {
namespace {

std::string UcxMissing() { return UcxVersion().empty() ? "built without UCX" : ""; }

constexpr int kMostWorkers = 4;  // in any test of the suites

}  // namespace

std::vector<Implementation> AllImplementations() {
  return {
      {"local", LocalTransports()},
      {"shm", ShmTransports()},
      {"polled_local", Polled(LocalTransports())},
      {"polled_shm", Polled(ShmTransports())},
      {"delayed_local", Delayed(LocalTransports(), 1, std::chrono::milliseconds(2))},
      {"checksummed_local", Checksummed(LocalTransports()), 8},
      {"checksummed_shm", Checksummed(ShmTransports()), 8},
      {"lanes", LaneTransports()},
      {"lanes_shm", LaneTransports(ShmTransports())},
      {"ucx", UcxTransports(), 0, UcxMissing, "/memory"},
      {"ucx_tcp", UcxTcpTransports(), 0, UcxMissing, "ucx tcp/"},
      {"polled_ucx", Polled(UcxTransports()), 0, UcxMissing, "/memory"},
      {"checksummed_ucx", Checksummed(UcxTransports()), 8, UcxMissing, "/memory"},
      // With two hosts every message to a neighbour goes over UCX, and every second one stays here.
      {"mixed", MixedTransports(2), 0, UcxMissing},
      {"nccl", NcclTransports(), 0, [] { return NcclMissing(kMostWorkers); }},
  };
}

}  // namespace ringzero
