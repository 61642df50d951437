// xxHash's own header, compiled in here: nothing is linked.
#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ringzero {

uint64_t Checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace ringzero
