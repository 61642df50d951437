// One line per transport.
#include "tests/p2p/implementations.h"

namespace ringzero {

std::vector<Implementation> AllImplementations() {
  return {
      {"local", MakeLocal},
      {"shm", MakeShm},
      {"delayed_local", MakeDelayedLocal},
  };
}

}  // namespace ringzero
