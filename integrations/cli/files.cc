// Writing whole files or none.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "integrations/cli/summary.h"

namespace ringzero {
namespace {

absl::Status FileError(const std::string& path, const char* doing, int error) {
  return absl::PermissionDeniedError(
      absl::StrCat(path, ": cannot ", doing, " it: ", std::strerror(error)));
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path, const std::string& contents) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  std::FILE* file = std::fopen(temporary.c_str(), "wbe");
  if (file == nullptr) return FileError(path, "write", errno);
  const bool written = std::fwrite(contents.data(), 1, contents.size(), file) == contents.size();
  const int write_error = errno;
  if (std::fclose(file) != 0 || !written) {
    const int error = written ? errno : write_error;
    std::remove(temporary.c_str());
    return FileError(path, "write", error);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(temporary.c_str());
    return FileError(path, "replace", error);
  }
  return absl::OkStatus();
}

absl::Status CheckWritable(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return FileError(path, "write", EISDIR);
  }
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (access(folder.c_str(), W_OK | X_OK) != 0) return FileError(path, "write", errno);
  return absl::OkStatus();
}

}  // namespace ringzero
