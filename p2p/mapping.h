// Mapping: a range of mapped memory, unmapped at its end. Memory files: what processes share.
//
//   RZ_ASSIGN_OR_RETURN(Mapping memory, Mapping::Anonymous(bytes));
//   memory.data();   // zeroed, page-aligned
//
//   RZ_ASSIGN_OR_RETURN(UniqueFd file, MakeMemoryFile("ringzero-pulses", bytes));
//   ... its descriptor travels over a Unix socket; there:
//   RZ_ASSIGN_OR_RETURN(Mapping same, Mapping::OfFile(file, bytes, Mapping::Access::kRead));
//
// Pages cost nothing until they are touched. A mapping of 2 MiB or more begins at a multiple of
// 2 MiB, so that huge pages can back it: streams over payload are up to a third faster there
// (docs/decisions/0009). Move-only value; not thread-safe itself.
// A memory file has no name: it vanishes with the last process that holds or maps it, however that
// process ends.
#ifndef RINGZERO_P2P_MAPPING_H_
#define RINGZERO_P2P_MAPPING_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace ringzero {

class Mapping {
 public:
  enum class Access { kRead, kReadWrite };

  // Memory of this process alone. ResourceExhausted when the system refuses.
  static absl::StatusOr<Mapping> Anonymous(size_t bytes);
  // Memory that is shared with whatever process maps `file`, too; without a file, with the
  // processes that this one forks later.
  static absl::StatusOr<Mapping> Shared(size_t bytes, const UniqueFd& file = UniqueFd());
  // The first `bytes` of a memory file, shared with whatever process maps it, too. The file may be
  // closed afterwards. Internal unless it has so many and can't lose them: a process that reads
  // behind the end of a shrunken file is killed.
  static absl::StatusOr<Mapping> OfFile(const UniqueFd& file, size_t bytes, Access access);

  // Memory that something else has made (a device), which `release` gives back at the end. It may
  // not be touched by the processor: whoever makes it says so.
  using Release = void (*)(std::byte* data, size_t bytes);
  static Mapping Foreign(std::byte* data, size_t bytes, Release release) {
    return Mapping(data, bytes, release);
  }

  Mapping() = default;

  std::byte* data() const { return data_.get(); }
  size_t bytes() const { return data_.get_deleter().bytes; }

  // Backs the units of 2 MiB that [begin, end) touches by huge pages, now (they become resident),
  // for everybody who maps the file. Where the kernel cannot (before 6.1, none free, the last
  // incomplete unit) nothing changes. Any thread.
  void BackByHugePages(size_t begin, size_t end) const;

 private:
  struct End {
    size_t bytes = 0;
    Release release = nullptr;
    void operator()(std::byte* data) const { release(data, bytes); }
  };
  Mapping(std::byte* data, size_t bytes, Release release) : data_(data, {bytes, release}) {}
  static absl::StatusOr<Mapping> Map(size_t bytes, int protection, int flags, int descriptor);

  std::unique_ptr<std::byte, End> data_;
};

// Zeroed, of a size that no process can change; `name` is for /proc alone. ResourceExhausted when
// the system refuses.
absl::StatusOr<UniqueFd> MakeMemoryFile(const std::string& name, size_t bytes);

}  // namespace ringzero

#endif  // RINGZERO_P2P_MAPPING_H_
