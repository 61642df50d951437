// One line per transport.
#include "tests/p2p/implementations.h"

namespace ringzero {

std::vector<Implementation> AllImplementations() {
  return {
      {"local", LocalTransports()},
      {"shm", ShmTransports()},
      {"delayed_local", Delayed(LocalTransports(), 1, std::chrono::milliseconds(2))},
  };
}

}  // namespace ringzero
