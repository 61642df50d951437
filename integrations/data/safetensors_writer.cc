// Writes tensors one after the other, and names the file when it is whole.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/data/safetensors.h"
#include "integrations/data/safetensors_header.h"

namespace ringzero {
namespace {

// So that the rename itself survives a power failure.
absl::Status SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || fsync(fd) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return absl::InternalError(absl::StrCat(folder, ": cannot be synced: ", std::strerror(error)));
  }
  close(fd);
  return absl::OkStatus();
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<TensorSpec> tensors, int fd)
    : path_(std::move(path)), tensors_(std::move(tensors)), fd_(fd) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  close(fd_);
  unlink((path_ + ".tmp").c_str());
}

absl::Status SafetensorsWriter::Error(const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<TensorSpec> tensors,
    const std::map<std::string, std::string>& metadata) {
  const absl::StatusOr<std::string> header = safetensors_internal::MakeHeader(tensors, metadata);
  if (!header.ok()) return Annotate(header.status(), path);
  const int fd = open((path + ".tmp").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".tmp: cannot be created: ", std::strerror(errno)));
  }
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(path, std::move(tensors), fd));
  RZ_RETURN_IF_ERROR(writer->WriteBytes(std::as_bytes(std::span(*header))));
  return writer;
}

absl::Status SafetensorsWriter::WriteBytes(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error(absl::StrCat("cannot be written: ", std::strerror(errno)));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::WriteNext(const std::string& name, TensorType type,
                                          std::span<const std::byte> bytes) {
  if (fd_ < 0 || next_ == tensors_.size() || tensors_[next_].name != name) {
    return Error(absl::StrCat("tensor '", name, "' is written where ",
                              fd_ < 0 || next_ == tensors_.size()
                                  ? "no tensor is left"
                                  : absl::StrCat("'", tensors_[next_].name, "' is next")));
  }
  const TensorSpec& spec = tensors_[next_];
  const std::string type_name = safetensors_internal::TypeName(spec.type);
  RZ_ASSIGN_OR_RETURN(const uint64_t wanted, safetensors_internal::ByteSize(spec, type_name));
  if (type != spec.type || bytes.size() != wanted) {
    return Error(absl::StrCat("tensor '", name, "': ", bytes.size(), " bytes of ",
                              safetensors_internal::TypeName(type), " given, but ", type_name, " ",
                              safetensors_internal::ShapeText(spec.shape), " wants ", wanted));
  }
  ++next_;
  return WriteBytes(bytes);
}

absl::Status SafetensorsWriter::Write(const std::string& name, std::span<const float> values) {
  return WriteNext(name, TensorType::kF32, std::as_bytes(values));
}

absl::Status SafetensorsWriter::Write(const std::string& name, std::span<const int64_t> values) {
  return WriteNext(name, TensorType::kI64, std::as_bytes(values));
}

absl::Status SafetensorsWriter::Finish() {
  if (fd_ < 0) return Error("is finished already");
  if (next_ < tensors_.size()) {
    return Error(absl::StrCat("tensor '", tensors_[next_].name, "' was not written"));
  }
  if (fsync(fd_) != 0) return Error(absl::StrCat("cannot be synced: ", std::strerror(errno)));
  if (std::rename((path_ + ".tmp").c_str(), path_.c_str()) != 0) {
    return Error(absl::StrCat("cannot be renamed from ", path_, ".tmp: ", std::strerror(errno)));
  }
  close(fd_);
  fd_ = -1;
  return SyncFolderOf(path_);
}

}  // namespace ringzero
