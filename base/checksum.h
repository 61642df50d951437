// Checksum: 64 bits that change with any damage to a run of bytes.
//
//   if (Checksum(piece) != before) return absl::DataLossError(…);
#ifndef RINGZERO_BASE_CHECKSUM_H_
#define RINGZERO_BASE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringzero {

// XXH3, as fast as memory is read. Not against intent. Equal on all machines. Thread-safe.
uint64_t Checksum(std::span<const std::byte> bytes);

}  // namespace ringzero

#endif  // RINGZERO_BASE_CHECKSUM_H_
