// A folder as a store: a file for each key.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/digest.h"
#include "base/status.h"
#include "p2p/random_bytes.h"
#include "p2p/rendezvous/rendezvous_store.h"
#include "p2p/unique_fd.h"

namespace ringzero {
namespace {

constexpr absl::string_view kFilePrefix = "rz.";
constexpr absl::string_view kDraftPrefix = "draft.";
constexpr time_t kDraftSeconds = 3600;  // older ones were left by somebody who was killed
constexpr int kTries =
    100;  // at a folder that others remove: each does so twice in a start at most

// A file's name that no two keys share and every file system takes.
std::string Escaped(const std::string& text) {
  constexpr size_t kLongest = 150;
  constexpr size_t kKept = 60;  // what keys are cleared by stays readable
  std::string name;
  for (const char c : text) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.';
    if (plain) {
      name += c;
    } else {
      absl::StrAppendFormat(&name, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  if (name.size() <= kLongest) return name;
  return absl::StrCat(name.substr(0, kKept), "%long-", Sha256Hex(text));
}

std::string Words(int error) { return std::strerror(error); }

// The code that says whose fault `error` is; most are the store's.
absl::Status StoreError(const std::string& what, int error) {
  const std::string text = absl::StrCat(what, ": ", Words(error));
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(text);
  }
  return absl::UnavailableError(text);
}

class FileStore final : public RendezvousStore {
 public:
  static absl::StatusOr<std::unique_ptr<RendezvousStore>> Create(const FileStoreOptions& options);

  std::string name() const override { return name_; }
  absl::Status Write(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> WriteOnce(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::optional<std::string>> Read(const std::string& key) override;
  void Clear(const std::string& prefix) override;

 private:
  explicit FileStore(std::string name) : name_(std::move(name)) {}

  absl::Status OpenFolder(const FileStoreOptions& options);
  absl::Status OpenJob();
  absl::StatusOr<std::string> WriteDraft(const std::string& value);
  absl::Status Error(absl::string_view what, int error) const {
    return StoreError(absl::StrCat("rendezvous ", name_, ": ", what), error);
  }
  static std::string FileOf(const std::string& key) {
    return absl::StrCat(kFilePrefix, Escaped(key));
  }

  const std::string name_;
  std::string job_folder_;
  UniqueFd folder_;
  UniqueFd job_;
};

// Another user's files, or a folder that others may enter, are nothing to meet in.
absl::Status CheckPrivate(int folder, const std::string& name) {
  struct stat about = {};
  if (fstat(folder, &about) != 0) {
    return StoreError(absl::StrCat("rendezvous ", name), errno);
  }
  if (about.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("rendezvous ", name,
                                                    ": the folder belongs to user ", about.st_uid,
                                                    ", and we are user ", geteuid()));
  }
  if ((about.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "rendezvous %s: others may enter the folder (mode %03o); wanted 700 (chmod 700), or a path "
        "that is not there yet",
        name, about.st_mode & 0777));
  }
  return absl::OkStatus();
}

absl::Status FileStore::OpenFolder(const FileStoreOptions& options) {
  const std::string& path = options.folder;
  if (!absl::StartsWith(path, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous ", name_, ": wanted an absolute path, file:///folder"));
  }
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    const int error = errno;
    if (error != ENOENT) return Error("cannot make the folder", error);
    return absl::NotFoundError(
        absl::StrCat("rendezvous ", name_, ": the folder's parent is not there"));
  }
  folder_ = UniqueFd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_ && errno == ENOTDIR) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous ", name_, ": this is no folder"));
  }
  if (!folder_) return Error("cannot open the folder", errno);
  return CheckPrivate(folder_.get(), name_);
}

absl::Status FileStore::OpenJob() {
  for (int tries = 0; tries < kTries; ++tries) {
    if (mkdirat(folder_.get(), job_folder_.c_str(), 0700) != 0 && errno != EEXIST) {
      return Error("cannot make the job's folder", errno);
    }
    constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    job_ = UniqueFd(openat(folder_.get(), job_folder_.c_str(), kFlags));
    // A worker that clears may have removed it in between.
    if (job_ || errno != ENOENT) break;
  }
  if (!job_) return Error(absl::StrCat("cannot open ", job_folder_), errno);
  return CheckPrivate(job_.get(), absl::StrCat(name_, "/", job_folder_));
}

absl::StatusOr<std::unique_ptr<RendezvousStore>> FileStore::Create(
    const FileStoreOptions& options) {
  std::unique_ptr<FileStore> store(new FileStore(absl::StrCat("file://", options.folder)));
  store->job_folder_ = absl::StrCat("ringzero-job-", Escaped(options.job));
  RZ_RETURN_IF_ERROR(store->OpenFolder(options));
  RZ_RETURN_IF_ERROR(store->OpenJob());
  return store;
}

// Under a name of its own, complete. Closing hands it to an NFS server; no disk needs to have it,
// and signs of life must not wait for one.
absl::StatusOr<std::string> FileStore::WriteDraft(const std::string& value) {
  RZ_ASSIGN_OR_RETURN(const std::string random, RandomHex(8));
  const std::string draft = absl::StrCat(kDraftPrefix, random);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  UniqueFd file(openat(job_.get(), draft.c_str(), kFlags, 0600));
  for (int tries = 1; !file && errno == ENOENT && tries < kTries; ++tries) {
    // The last worker of an earlier start, or the first of ours, has removed the folder under us.
    RZ_RETURN_IF_ERROR(OpenJob());
    file = UniqueFd(openat(job_.get(), draft.c_str(), kFlags, 0600));
  }
  if (!file) return Error("cannot make a file", errno);
  size_t done = 0;
  while (done < value.size()) {
    const ssize_t wrote = write(file.get(), value.data() + done, value.size() - done);
    if (wrote < 0 && errno != EINTR) break;
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  if (done == value.size() && close(file.Release()) == 0) return draft;
  const int error = errno;
  unlinkat(job_.get(), draft.c_str(), 0);
  return Error("cannot write a file", error);
}

absl::Status FileStore::Write(const std::string& key, const std::string& value) {
  RZ_ASSIGN_OR_RETURN(const std::string draft, WriteDraft(value));
  if (renameat(job_.get(), draft.c_str(), job_.get(), FileOf(key).c_str()) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  unlinkat(job_.get(), draft.c_str(), 0);
  return Error(absl::StrCat("cannot put '", key, "'"), error);
}

absl::StatusOr<std::string> FileStore::WriteOnce(const std::string& key, const std::string& value) {
  RZ_ASSIGN_OR_RETURN(const std::string draft, WriteDraft(value));
  const int failed = linkat(job_.get(), draft.c_str(), job_.get(), FileOf(key).c_str(), 0);
  const int error = errno;
  unlinkat(job_.get(), draft.c_str(), 0);
  if (failed == 0) return value;
  if (error != EEXIST) return Error(absl::StrCat("cannot put '", key, "'"), error);
  // Maybe by ourselves: a lost answer of an NFS server makes the second try fail.
  RZ_ASSIGN_OR_RETURN(std::optional<std::string> there, Read(key));
  if (there.has_value()) return *std::move(there);
  return absl::UnavailableError(
      absl::StrCat("rendezvous ", name_, ": '", key, "' came and went while we put it"));
}

absl::StatusOr<std::optional<std::string>> FileStore::Read(const std::string& key) {
  const std::string name = FileOf(key);
  // Opening the folder makes an NFS client ask again for what it remembers as absent.
  const UniqueFd fresh(openat(job_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd file(
      openat(job_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && (errno == ENOENT || errno == ESTALE)) return std::nullopt;
  if (!file && errno == ELOOP) return std::string();  // a link is no value
  if (!file) return Error(absl::StrCat("cannot open '", key, "'"), errno);
  struct stat about = {};
  if (fstat(file.get(), &about) != 0) {
    return Error(absl::StrCat("cannot look at '", key, "'"), errno);
  }
  if (!S_ISREG(about.st_mode)) return std::string();
  std::string value;
  while (value.size() <= kMaxStoredBytes) {
    char chunk[16384];
    const ssize_t got = read(file.get(), chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == ESTALE) return std::nullopt;
    if (got < 0) return Error(absl::StrCat("cannot read '", key, "'"), errno);
    if (got == 0) return value;
    value.append(chunk, static_cast<size_t>(got));
  }
  return std::string();  // larger than any of ours
}

void FileStore::Clear(const std::string& prefix) {
  const std::string files = FileOf(prefix);
  std::error_code gone;
  const std::filesystem::path folder = absl::StrCat("/proc/self/fd/", job_.get());
  for (std::filesystem::directory_iterator entry(folder, gone), end; !gone && entry != end;
       entry.increment(gone)) {
    const std::string name = entry->path().filename();
    bool ours = absl::StartsWith(name, files);
    if (absl::StartsWith(name, kDraftPrefix)) {
      struct stat about = {};
      ours = fstatat(job_.get(), name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 &&
             std::time(nullptr) - about.st_mtime > kDraftSeconds;
    }
    if (ours) unlinkat(job_.get(), name.c_str(), 0);
  }
  unlinkat(folder_.get(), job_folder_.c_str(), AT_REMOVEDIR);  // fails unless it is empty
}

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousStore>> OpenFileStore(const FileStoreOptions& options) {
  return FileStore::Create(options);
}

}  // namespace ringzero
