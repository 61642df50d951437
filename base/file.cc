// In pieces, so that files whose size nobody knows beforehand are read, too.
#include "base/file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ringzero {

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot read it"));
  }
  std::string text;
  char piece[1 << 16];
  while (const size_t got = std::fread(piece, 1, sizeof(piece), file.get())) {
    text.append(piece, got);
  }
  if (std::ferror(file.get()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot read it"));
  }
  return text;
}

}  // namespace ringzero
