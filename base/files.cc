// Files are written by descriptors: each write goes to the kernel at once, so that an error is met
// where it happens.
#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr std::chrono::seconds kReaderLimit(10);  // for the reader of a FIFO to come
constexpr std::chrono::milliseconds kPause(10);
constexpr size_t kTrialBytes = 1 << 16;
constexpr size_t kCopyBytes = 1 << 20;  // at a time
constexpr int kMostLinks = 40;          // symlinks; the kernel follows as many

absl::Status WriteError(const std::string& path, int error) {
  const char* const why = error == ENXIO ? "nobody reads it" : std::strerror(error);
  return absl::PermissionDeniedError(absl::StrCat(path, ": cannot write it: ", why));
}

// What a path names; "-" is standard output. False: nothing is there.
bool Look(const std::string& path, struct stat& info) {
  return (path == "-" ? fstat(STDOUT_FILENO, &info) : stat(path.c_str(), &info)) == 0;
}

// The standard stream of this process that `info` is; -1: none. Opening it again would restart it.
int StandardStream(const struct stat& info) {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat of {};
    const bool open = fstat(stream, &of) == 0;
    if (open && of.st_dev == info.st_dev && of.st_ino == info.st_ino) return stream;
  }
  return -1;
}

// Where the symlinks at `path` lead, whether something is there or not.
absl::StatusOr<std::string> FollowLinks(const std::string& path) {
  std::filesystem::path at = path;
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code none;
    const std::filesystem::path next = std::filesystem::read_symlink(at, none);
    if (none) return at.string();
    at = at.parent_path() / next;
  }
  return WriteError(path, ELOOP);
}

// -1: no reader came in time (ENXIO), or errno says why.
int OpenFifo(const std::string& path) {
  const auto limit = std::chrono::steady_clock::now() + kReaderLimit;
  while (true) {
    const int fd = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) fcntl(fd, F_SETFL, O_WRONLY);
    if (fd >= 0 || errno != ENXIO || std::chrono::steady_clock::now() > limit) return fd;
    std::this_thread::sleep_for(kPause);
  }
}

int OpenInPlace(const std::string& path, const struct stat& info) {
  const int stream = StandardStream(info);
  if (stream >= 0) return fcntl(stream, F_DUPFD_CLOEXEC, 0);
  if (S_ISFIFO(info.st_mode)) return OpenFifo(path);
  return open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
}

// Lets the new name itself survive a power failure. A folder that may be written, but not read,
// cannot be synced.
absl::Status SyncFolderOf(const std::string& path, const std::string& target) {
  std::filesystem::path folder = std::filesystem::path(target).parent_path();
  if (folder.empty()) folder = ".";
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::OkStatus();
  const int error = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  close(fd);
  return error == 0 ? absl::OkStatus() : WriteError(path, error);
}

// Equal for all names of one file, also of a file that is not there yet. Empty for a device: any
// number of outputs may write to it.
std::string FileKey(const std::string& path) {
  if (path == "-") return path;
  struct stat info {};
  if (Look(path, info)) {
    if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) return "";
    return absl::StrCat(info.st_dev, ":", info.st_ino);
  }
  const std::filesystem::path target = FollowLinks(path).value_or(path);
  std::error_code unknown;
  return std::filesystem::weakly_canonical(std::filesystem::absolute(target, unknown), unknown)
      .string();
}

absl::Status CheckAgainst(const NamedPath& output, const NamedPath& input) {
  const std::string key = FileKey(output.path);
  if (!key.empty() && key == FileKey(input.path)) {
    return InvalidArgument(output.by, " and ", input.by, " name one file: ", output.path);
  }
  std::error_code missing;
  const std::filesystem::path target = FollowLinks(output.path).value_or(output.path);
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  if (std::filesystem::is_regular_file(target, missing) && FileKey(folder) == FileKey(input.path)) {
    return InvalidArgument(output.by, ": ", output.path, " would replace a file of ", input.by,
                           " (", input.path, ")");
  }
  return absl::OkStatus();
}

absl::Status ReadError(const std::string& path) {
  const bool missing = errno == ENOENT || errno == ENOTDIR;
  const std::string message = absl::StrCat(path, ": cannot read it: ", std::strerror(errno));
  return missing ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Open(const std::string& path, As as) {
  struct stat info {};
  const bool there = Look(path, info);
  std::unique_ptr<OutputFile> file(new OutputFile(path));
  if (WrittenInPlace(path)) {
    file->fd_ = OpenInPlace(path, info);
  } else if (as != As::kWhole) {
    const int how = as == As::kGrowing ? O_TRUNC : O_APPEND;
    file->fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
    file->grows_ = true;
  } else {
    RZ_ASSIGN_OR_RETURN(file->target_, FollowLinks(path));
    if (there && access(path.c_str(), W_OK) != 0) return WriteError(path, errno);
    std::random_device random;  // the kernel's: nobody guesses the name
    const std::string temporary =
        absl::StrFormat("%s.%08x%08x.tmp", file->target_, random(), random());
    file->fd_ = open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->fd_ >= 0) file->temporary_ = temporary;
    if (there && file->fd_ >= 0 && fchmod(file->fd_, info.st_mode & 0777) != 0) {
      return WriteError(path, errno);
    }
  }
  if (file->fd_ < 0) return WriteError(path, errno);
  return file;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status OutputFile::Write(absl::string_view bytes) {
  struct stat info {};
  // The kernel would take the bytes of a deleted file, and no name leads to them.
  if (grows_ && fstat(fd_, &info) == 0 && info.st_nlink == 0) return WriteError(path_, ENOENT);
  do {  // also for no bytes: a device may say that it takes none
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return WriteError(path_, errno);
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  } while (!bytes.empty());
  return absl::OkStatus();
}

absl::Status OutputFile::Rewind() {
  return lseek(fd_, 0, SEEK_SET) == 0 ? absl::OkStatus() : WriteError(path_, errno);
}

absl::Status OutputFile::Finish(Sync sync) {
  const bool durable = sync == Sync::kYes && !temporary_.empty();
  if (durable && fsync(fd_) != 0) return WriteError(path_, errno);
  // Some file systems report an error only at a close; fd_ itself stays open for CopyTo.
  if (close(dup(fd_)) != 0) return WriteError(path_, errno);
  if (!temporary_.empty()) {
    if (std::rename(temporary_.c_str(), target_.c_str()) != 0) return WriteError(path_, errno);
    temporary_.clear();
    if (durable) RZ_RETURN_IF_ERROR(SyncFolderOf(path_, target_));
  }
  close(std::exchange(fd_, -1));
  return absl::OkStatus();
}

absl::Status OutputFile::CheckRoom(uint64_t bytes) const {
  if (ftruncate(fd_, static_cast<off_t>(std::max<uint64_t>(bytes, kTrialBytes))) != 0) {
    return WriteError(path_, errno);  // larger than a file may be
  }
  struct statvfs disk {};
  if (fstatvfs(fd_, &disk) != 0 || disk.f_blocks == 0) return absl::OkStatus();  // it does not tell
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (bytes <= free) return absl::OkStatus();
  constexpr double kMib = 1 << 20;
  return absl::PermissionDeniedError(
      absl::StrFormat("%s: cannot write it: wanted space for %.1f MiB, found %.1f MiB", path_,
                      static_cast<double>(bytes) / kMib, static_cast<double>(free) / kMib));
}

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::CopyTo(const std::string& path,
                                                               uint64_t bytes) const {
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> copy, Open(path, As::kWhole));
  std::string piece;
  for (uint64_t at = 0; at < bytes; at += piece.size()) {
    piece.resize(std::min<uint64_t>(kCopyBytes, bytes - at));
    const ssize_t got = pread(fd_, piece.data(), piece.size(), static_cast<off_t>(at));
    if (got <= 0) {
      return absl::PermissionDeniedError(absl::StrCat(
          path_, ": cannot be read again: ", got < 0 ? std::strerror(errno) : "it is cut"));
    }
    piece.resize(static_cast<size_t>(got));
    RZ_RETURN_IF_ERROR(copy->Write(piece));
  }
  return copy;
}

absl::Status WriteWholeFile(const std::string& path, absl::string_view contents,
                            OutputFile::Sync sync) {
  RZ_ASSIGN_OR_RETURN(const auto file, OutputFile::Open(path, OutputFile::As::kWhole));
  RZ_RETURN_IF_ERROR(file->Write(contents));
  return file->Finish(sync);
}

absl::Status CheckWritable(const std::string& path, uint64_t bytes) {
  struct stat info {};
  if (Look(path, info) && S_ISFIFO(info.st_mode)) {
    // If we opened and closed the FIFO, its reader would be at the end.
    return path == "-" || access(path.c_str(), W_OK) == 0 ? absl::OkStatus()
                                                          : WriteError(path, errno);
  }
  RZ_ASSIGN_OR_RETURN(const auto file, OutputFile::Open(path, OutputFile::As::kWhole));
  if (WrittenInPlace(path)) return file->Write("");
  RZ_RETURN_IF_ERROR(file->Write(std::string(kTrialBytes, '\0')));
  return file->CheckRoom(bytes);
}

absl::StatusOr<std::string> MakeSparePath(const std::string& path) {
  const char* const wanted = std::getenv("TMPDIR");
  std::string folder;
  for (const std::string& in :
       {std::string(wanted == nullptr ? "" : wanted), std::string("/tmp")}) {
    if (in.empty()) continue;
    folder = absl::StrCat(in, "/ringzero-XXXXXX");
    if (mkdtemp(folder.data()) == nullptr) continue;
    const std::string name = std::filesystem::path(path).filename().string();
    return absl::StrCat(folder, "/", name == "-" ? "stdout" : name);
  }
  return WriteError(folder, errno);
}

void DropSparePath(const std::string& spare) {
  std::error_code is_used;
  std::filesystem::remove(std::filesystem::path(spare).parent_path(), is_used);
}

bool WrittenInPlace(const std::string& path) {
  struct stat info {};
  return Look(path, info) && (!S_ISREG(info.st_mode) || StandardStream(info) >= 0);
}

absl::Status CheckOutputFiles(const std::vector<NamedPath>& outputs,
                              const std::vector<NamedPath>& inputs) {
  std::vector<NamedPath> others = inputs;
  for (const NamedPath& output : outputs) {
    if (output.path.empty()) continue;
    for (const NamedPath& other : others) {
      if (!other.path.empty()) RZ_RETURN_IF_ERROR(CheckAgainst(output, other));
    }
    RZ_RETURN_IF_ERROR(Annotate(CheckWritable(output.path), output.by));
    others.push_back(output);
  }
  return absl::OkStatus();
}

absl::Status CheckFolder(const NamedPath& folder) {
  std::error_code missing;
  std::filesystem::path at = folder.path;
  while (at.has_relative_path() && !std::filesystem::exists(at, missing)) at = at.parent_path();
  if (at.empty() || std::filesystem::is_directory(at, missing)) return absl::OkStatus();
  return InvalidArgument(folder.by, ": ", at.string(), ": wanted a folder, found a file");
}

absl::Status MakeFolders(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(folder, ": cannot make the folder: ", error.message()));
}

absl::Status PrintToStdout(absl::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return absl::OkStatus();
  return WriteError("standard output", errno);
}

absl::Status CheckStandardStreams() {
  for (const int stream : {STDIN_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // open returns the lowest free number, here that of `stream`.
    if (open("/dev/null", O_RDWR) != stream) return WriteError("/dev/null", errno);
  }
  return write(STDOUT_FILENO, "", 0) == 0 ? absl::OkStatus() : WriteError("standard output", errno);
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t most) {
  std::error_code missing;  // fopen says so
  if (std::filesystem::is_fifo(path, missing)) {
    return InvalidArgument(path, ": wanted a file, found a FIFO");
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
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, name)) continue;
    absl::string_view value = absl::StripLeadingAsciiWhitespace(rest);
    const bool longer = value.size() == rest.size() && !absl::StartsWith(value, ":");
    if (longer) continue;  // another name, which begins with this one
    absl::ConsumePrefix(&value, ":");
    return std::string(absl::StripAsciiWhitespace(value));
  }
  return "";
}

}  // namespace ringzero
