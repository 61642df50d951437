// One line per transport.
#include "tests/p2p/implementations.h"

#include "p2p/ucx_transport.h"

namespace ringzero {

std::vector<Implementation> AllImplementations() {
  std::vector<Implementation> all = {
      {"local", LocalTransports()},
      {"shm", ShmTransports()},
      {"delayed_local", Delayed(LocalTransports(), 1, std::chrono::milliseconds(2))},
      {"checksummed_local", Checksummed(LocalTransports()), 8},
      {"checksummed_shm", Checksummed(ShmTransports()), 8},
  };
  if (UcxVersion().empty()) return all;
  constexpr auto kCopied = Implementation::SameMemory::kNo;
  all.push_back({"ucx", UcxTransports(), 0, kCopied, "/memory"});
  all.push_back({"ucx_tcp", UcxTcpTransports(), 0, kCopied, "ucx tcp/"});
  all.push_back({"checksummed_ucx", Checksummed(UcxTransports()), 8, kCopied, "/memory"});
  return all;
}

}  // namespace ringzero
