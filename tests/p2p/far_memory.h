// FarMemory: memory as a GPU's is to the processor: it has addresses and cannot be touched there.
//
//   Payload payload(self, FarMemory());      // whatever reads past PayloadMemory::copy crashes
//
// Thread-safe.
#ifndef RINGZERO_TESTS_P2P_FAR_MEMORY_H_
#define RINGZERO_TESTS_P2P_FAR_MEMORY_H_

#include "p2p/arena.h"

namespace ringzero {

PayloadMemory FarMemory();  // of kind kCuda

}  // namespace ringzero

#endif  // RINGZERO_TESTS_P2P_FAR_MEMORY_H_
