// StreamCopy: a copy to memory that nobody reads soon: it does not pull the target into the caches.
//
//   StreamCopy(sum, gradient, bytes);
//
// An ordinary store reads the line that it writes; this saves a third of a copy's traffic. Other
// threads see it after any synchronisation with the caller. Falls back to memcpy where the
// processor has nothing of the kind or `to` is not aligned to 16 bytes.
#ifndef RINGZERO_ZERO_STREAM_COPY_H_
#define RINGZERO_ZERO_STREAM_COPY_H_

#include <cstddef>

namespace ringzero {

// The ranges must not overlap.
void StreamCopy(void* to, const void* from, size_t bytes);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_STREAM_COPY_H_
