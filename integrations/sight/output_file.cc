// Files and folders, with their names in errors.
#include "integrations/sight/output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

absl::Status FileError(const std::string& path, const std::string& why) {
  return absl::PermissionDeniedError(absl::StrCat(path, ": cannot write it: ", why));
}

}  // namespace

absl::StatusOr<OutputFile> OutputFile::Open(const std::string& path, const char* mode) {
  std::FILE* const file = std::fopen(path.c_str(), mode);
  if (file == nullptr) return FileError(path, std::strerror(errno));
  return OutputFile(path, file);
}

absl::Status OutputFile::Write(absl::string_view bytes) {
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size();
  if (written && std::fflush(file_.get()) == 0) return absl::OkStatus();
  return FileError(path_, std::strerror(errno));
}

absl::Status MakeFolders(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return FileError(folder, error.message());
}

absl::StatusOr<std::string> MakeMonitorFolder(const MonitorConfig& monitor) {
  const std::string folder =
      absl::StrCat(monitor.output_path.empty() ? "." : monitor.output_path, "/", monitor.job_name);
  RZ_RETURN_IF_ERROR(MakeFolders(folder));
  return folder;
}

}  // namespace ringzero
