// SharedArea: memory that all workers of this host map: for the plain peers of --compare.
//
//   RZ_ASSIGN_OR_RETURN(auto area, SharedArea::Create({.workers = 4, .bytes_each = bytes}));
//   ... fork ...
//   area->BytesOf(worker);    // that worker's part
//
// Made before the processes are forked; unmapped with the last of them. Thread-safe.
#ifndef RINGZERO_BENCH_RING_SHARED_AREA_H_
#define RINGZERO_BENCH_RING_SHARED_AREA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace ringzero {

struct SharedAreaOptions {
  int workers = 1;
  size_t bytes_each = 0;
};

class SharedArea {
 public:
  // ResourceExhausted without memory.
  static absl::StatusOr<std::shared_ptr<SharedArea>> Create(const SharedAreaOptions& options);
  ~SharedArea();
  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(const SharedArea&) = delete;

  std::span<std::byte> BytesOf(WorkerId worker) const;
  // A word that `worker` is woken by, on a cache line of its own; 0 at the start.
  std::atomic<uint32_t>& WordOf(WorkerId worker) const;

 private:
  SharedArea(const SharedAreaOptions& options, std::byte* memory, size_t bytes)
      : options_(options), memory_(memory), bytes_(bytes) {}

  const SharedAreaOptions options_;
  std::byte* const memory_;
  const size_t bytes_;
};

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_SHARED_AREA_H_
