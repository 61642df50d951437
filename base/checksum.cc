// Checksum, by xxHash: a file of its own, as it is compiled for speed.
#include "base/crypto.h"

#if defined(RINGZERO_HAVE_XXHASH_DISPATCH)
#include <xxh_x86dispatch.h>  // XXH3_64bits takes the widest vectors that the processor has
#else
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

namespace ringzero {

uint64_t Checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace ringzero
