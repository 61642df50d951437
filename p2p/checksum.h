// Checksum: 64 bits that change with any damage to a payload, as fast as memory is read (XXH3).
//
//   uint64_t sum = Checksum({buffer.data(), buffer.size()});
//
// Not against intent. A pure function; equal on all machines.
#ifndef RINGZERO_P2P_CHECKSUM_H_
#define RINGZERO_P2P_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringzero {

uint64_t Checksum(std::span<const std::byte> bytes);

}  // namespace ringzero

#endif  // RINGZERO_P2P_CHECKSUM_H_
