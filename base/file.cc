// In pieces, so that files whose size nobody knows beforehand are read, too.
#include "base/file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

absl::Status ReadError(const std::string& path) {
  const bool missing = errno == ENOENT || errno == ENOTDIR;
  const std::string message = absl::StrCat(path, ": cannot read it: ", std::strerror(errno));
  return missing ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
}

}  // namespace

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t most) {
  std::error_code missing;  // fopen says so
  if (std::filesystem::is_fifo(path, missing)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": wanted a file, found a FIFO"));
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (file == nullptr) return ReadError(path);
  std::string text;
  char piece[1 << 16];
  while (const size_t got =
             std::fread(piece, 1, std::min(sizeof(piece), most - text.size()), file.get())) {
    text.append(piece, got);
  }
  if (std::ferror(file.get()) != 0) return ReadError(path);
  return text;
}

std::string FieldOfFile(const std::string& path, absl::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const absl::string_view text = line;
    if (absl::StripAsciiWhitespace(text.substr(0, colon)) != name) continue;
    return std::string(absl::StripAsciiWhitespace(text.substr(colon + 1)));
  }
  return "";
}

}  // namespace ringzero
