// ReleasedRange: addresses that nobody may touch; a parameter points there while its stage is
// released.
//
//   RZ_ASSIGN_OR_RETURN(ReleasedRange range,
//                       ReleasedRange::Reserve("stage 3 (block2)", bytes, names));
//   range.data();   // address space without memory behind it; touching it ends the process with
//   // "ringzero: access to a released parameter of stage 3 (block2): block2.weight"
#ifndef RINGZERO_INTEGRATIONS_TORCH_RELEASED_RANGE_H_
#define RINGZERO_INTEGRATIONS_TORCH_RELEASED_RANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace ringzero {

// Reserving installs, once per process, a SIGSEGV handler that names the range that was touched and
// then lets the signal take its course; a fault anywhere else goes to the handler that was there
// before. Up to 4096 ranges at once; more are reserved all the same and only not named.
// Thread-safe.
class ReleasedRange {
 public:
  // `parts`: (offset, text) ascending: what lies at an offset and after it. ResourceExhausted when
  // there is no address space left.
  static absl::StatusOr<ReleasedRange> Reserve(const std::string& what, size_t bytes,
                                               std::vector<std::pair<size_t, std::string>> parts);
  ReleasedRange(ReleasedRange&&) noexcept;
  ReleasedRange& operator=(ReleasedRange&&) noexcept;
  ~ReleasedRange();

  std::byte* data() const;

 private:
  struct Entry;
  explicit ReleasedRange(std::unique_ptr<Entry> entry);
  std::unique_ptr<Entry> entry_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_RELEASED_RANGE_H_
