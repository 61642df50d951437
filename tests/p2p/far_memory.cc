// Addresses without memory, and behind them as many with it.
#include "tests/p2p/far_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

namespace ringzero {
namespace {

struct Regions {
  std::mutex mutex;
  std::map<const std::byte*, size_t> sizes;  // by begin
};
Regions& TheRegions() {
  static auto* const regions = new Regions();
  return *regions;
}

// The memory behind a far address; any other address is itself.
template <typename Byte>
Byte* Near(Byte* address) {
  Regions& regions = TheRegions();
  const std::lock_guard<std::mutex> lock(regions.mutex);
  auto region = regions.sizes.upper_bound(address);
  if (region == regions.sizes.begin()) return address;
  --region;
  const bool inside = address < region->first + region->second;
  return inside ? address + region->second : address;
}

size_t Pages(size_t bytes) {
  const auto page = static_cast<size_t>(getpagesize());
  return (std::max<size_t>(bytes, 1) + page - 1) / page * page;
}

void Release(std::byte* data, size_t bytes) {
  Regions& regions = TheRegions();
  const std::lock_guard<std::mutex> lock(regions.mutex);
  regions.sizes.erase(data);
  munmap(data, 2 * Pages(bytes));
}

absl::StatusOr<Mapping> Map(size_t bytes) {
  const size_t size = Pages(bytes);
  void* const begin =
      mmap(nullptr, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) return absl::ResourceExhaustedError("no far memory");
  auto* const data = static_cast<std::byte*>(begin);
  if (mprotect(data + size, size, PROT_READ | PROT_WRITE) != 0) {
    munmap(data, 2 * size);
    return absl::ResourceExhaustedError("no far memory");
  }
  Regions& regions = TheRegions();
  const std::lock_guard<std::mutex> lock(regions.mutex);
  regions.sizes[data] = size;
  return Mapping::Foreign(data, bytes, Release);
}

absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(Near(to), Near(from), bytes);
  return absl::OkStatus();
}

}  // namespace

PayloadMemory FarMemory() { return {.kind = MemoryKind::kCuda, .map = Map, .copy = Copy}; }

}  // namespace ringzero
