// Mapping: a range of mapped memory, unmapped at its end.
//
//   RZ_ASSIGN_OR_RETURN(Mapping memory, Mapping::Anonymous(bytes));
//   memory.data();   // zeroed, page-aligned
//
// Pages cost nothing until they are touched. A mapping of 2 MiB or more begins at a multiple of
// 2 MiB, so that huge pages can back it: streams over payload are up to a third faster there
// (docs/decisions/0009). Move-only value; not thread-safe itself.
#ifndef RINGZERO_P2P_MAPPING_H_
#define RINGZERO_P2P_MAPPING_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"

namespace ringzero {

class Mapping {
 public:
  enum class Access { kRead, kReadWrite };

  // Memory of this process alone. ResourceExhausted when the system refuses.
  static absl::StatusOr<Mapping> Anonymous(size_t bytes);
  // Memory that the processes forked later share with this one.
  static absl::StatusOr<Mapping> SharedWithChildren(size_t bytes);
  // The first `bytes` of `descriptor`'s file, shared with whoever else maps it. The descriptor may
  // be closed afterwards.
  static absl::StatusOr<Mapping> OfFile(int descriptor, size_t bytes, Access access);

  // Memory that something else has made (a device), which `release` gives back at the end. It may
  // not be touched by the processor: whoever makes it says so.
  using Release = void (*)(std::byte* data, size_t bytes);
  static Mapping Foreign(std::byte* data, size_t bytes, Release release);

  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        release_(std::exchange(other.release_, nullptr)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Mapping();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // Backs the units of 2 MiB that [begin, end) touches by huge pages, now (they become resident),
  // for everybody who maps the file. Where the kernel cannot (before 6.1, none free, the last
  // incomplete unit) nothing changes. Any thread.
  void BackByHugePages(size_t begin, size_t end) const;

 private:
  Mapping(void* data, size_t bytes) : data_(static_cast<std::byte*>(data)), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Release release_ = nullptr;  // none: it is unmapped
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_MAPPING_H_
