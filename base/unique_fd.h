// UniqueFd: a file descriptor with one owner, closed at its end.
//
//   UniqueFd file(memfd_create(...));
//   if (file.get() < 0) return ...;
//
// Move-only value; empty (-1) after a move. SystemError says why a system call has made none.
#ifndef RINGZERO_BASE_UNIQUE_FD_H_
#define RINGZERO_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ringzero {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int descriptor) : descriptor_(descriptor) {}
  UniqueFd(UniqueFd&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  // Whoever calls it closes it.
  int Release() { return std::exchange(descriptor_, -1); }
  void Reset() {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = -1;
  }

 private:
  int descriptor_ = -1;
};

// ResourceExhausted "WHAT: Too many open files", from errno.
inline absl::Status SystemError(absl::string_view what) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace ringzero

#endif  // RINGZERO_BASE_UNIQUE_FD_H_
