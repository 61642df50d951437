// A folder as a store: a file for each key. CheckedStore: a digest in front of each value.
#include "p2p/rendezvous/rendezvous_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/digest.h"
#include "base/status.h"
#include "p2p/random_bytes.h"
#include "p2p/unique_fd.h"

namespace ringzero {
namespace {

constexpr absl::string_view kFilePrefix = "rz.";
constexpr absl::string_view kDraftPrefix = "draft.";
constexpr time_t kDraftSeconds = 3600;  // older drafts were left by somebody who was killed
// Tries in a folder that others remove: each worker removes it twice in a start at most.
constexpr int kTries = 100;

// A file's name that no two keys share and every file system takes.
std::string Escaped(const std::string& text) {
  constexpr size_t kLongest = 150;
  constexpr size_t kKept = 60;  // the prefixes by which keys are cleared stay readable
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

// The code that says whose fault `error` is; most are the store's.
absl::Status StoreError(const std::string& name, absl::string_view what, int error) {
  const bool refused = error == EACCES || error == EPERM || error == EROFS;
  return absl::Status(
      refused ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable,
      absl::StrCat("rendezvous ", name, ": ", what, ": ", std::strerror(error)));
}

class FileStore final : public RendezvousStore {
 public:
  FileStore(const std::string& folder, const std::string& job)
      : name_(absl::StrCat("file://", folder)),
        job_folder_(absl::StrCat("ringzero-job-", Escaped(job))) {}
  // Called before anything else.
  absl::Status Open(const std::string& folder);

  std::string name() const override { return name_; }
  absl::Status Write(const std::string& key, const std::string& value) override {
    return Put(key, value, /*replace=*/true).status();
  }
  absl::StatusOr<std::string> WriteOnce(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::optional<std::string>> Read(const std::string& key) override;
  void Clear(const std::string& prefix) override;

 private:
  absl::Status OpenJob();
  absl::StatusOr<std::string> WriteDraft(const std::string& value);
  // False: the key has a value, which is not to be replaced.
  absl::StatusOr<bool> Put(const std::string& key, const std::string& value, bool replace);
  absl::Status Error(absl::string_view what, int error) const {
    return StoreError(name_, what, error);
  }
  static std::string FileOf(const std::string& key) {
    return absl::StrCat(kFilePrefix, Escaped(key));
  }

  const std::string name_;
  const std::string job_folder_;
  UniqueFd folder_;
  UniqueFd job_;
};

// Workers do not meet in another user's folder, nor in a folder that others may enter.
absl::Status CheckPrivate(int folder, const std::string& name) {
  struct stat about = {};
  if (fstat(folder, &about) != 0) return StoreError(name, "cannot look at the folder", errno);
  std::string why;
  if (about.st_uid != geteuid()) {
    why =
        absl::StrCat("the folder belongs to user ", about.st_uid, ", and we are user ", geteuid());
  } else if ((about.st_mode & 077) != 0) {
    why = absl::StrFormat(
        "others may enter the folder (mode %03o); wanted 700 (chmod 700), or a path that is not "
        "there yet",
        about.st_mode & 0777);
  } else {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat("rendezvous ", name, ": ", why));
}

absl::Status FileStore::Open(const std::string& folder) {
  if (!absl::StartsWith(folder, "/")) {
    return InvalidArgument("rendezvous ", name_, ": wanted an absolute path, file:///folder");
  }
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    if (errno != ENOENT) return Error("cannot make the folder", errno);
    return absl::NotFoundError(
        absl::StrCat("rendezvous ", name_, ": the folder's parent is not there"));
  }
  folder_ = UniqueFd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_ && errno == ENOTDIR) {
    return InvalidArgument("rendezvous ", name_, ": this is no folder");
  }
  if (!folder_) return Error("cannot open the folder", errno);
  RZ_RETURN_IF_ERROR(CheckPrivate(folder_.get(), name_));
  return OpenJob();
}

absl::Status FileStore::OpenJob() {
  for (int tries = 0; tries < kTries; ++tries) {
    if (mkdirat(folder_.get(), job_folder_.c_str(), 0700) != 0 && errno != EEXIST) {
      return Error("cannot make the job's folder", errno);
    }
    constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    job_ = UniqueFd(openat(folder_.get(), job_folder_.c_str(), kFlags));
    // A worker that clears may have removed the folder in between.
    if (job_ || errno != ENOENT) break;
  }
  if (!job_) return Error(absl::StrCat("cannot open ", job_folder_), errno);
  return CheckPrivate(job_.get(), absl::StrCat(name_, "/", job_folder_));
}

// Writes the value completely, under a name of its own. Closing the file hands it to an NFS server.
// No disk needs to have the file, and signs of life must not wait for a disk.
absl::StatusOr<std::string> FileStore::WriteDraft(const std::string& value) {
  RZ_ASSIGN_OR_RETURN(const std::string random, RandomHex(8));
  const std::string draft = absl::StrCat(kDraftPrefix, random);
  UniqueFd file;
  for (int tries = 0; !file && tries < kTries; ++tries) {
    // The last worker of an earlier start, or the first of ours, has removed the folder under us.
    if (tries > 0) RZ_RETURN_IF_ERROR(OpenJob());
    file =
        UniqueFd(openat(job_.get(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file && errno != ENOENT) break;
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

absl::StatusOr<bool> FileStore::Put(const std::string& key, const std::string& value,
                                    bool replace) {
  RZ_ASSIGN_OR_RETURN(const std::string draft, WriteDraft(value));
  const std::string name = FileOf(key);
  const int job = job_.get();
  const bool put = replace ? renameat(job, draft.c_str(), job, name.c_str()) == 0
                           : linkat(job, draft.c_str(), job, name.c_str(), 0) == 0;
  const int error = errno;
  if (!put || !replace) unlinkat(job, draft.c_str(), 0);
  if (put || (!replace && error == EEXIST)) return put;
  return Error(absl::StrCat("cannot put '", key, "'"), error);
}

absl::StatusOr<std::string> FileStore::WriteOnce(const std::string& key, const std::string& value) {
  RZ_ASSIGN_OR_RETURN(const bool put, Put(key, value, /*replace=*/false));
  if (put) return value;
  // Maybe we put it ourselves: if an NFS server's answer is lost, the second try fails.
  RZ_ASSIGN_OR_RETURN(std::optional<std::string> there, Read(key));
  if (there.has_value()) return *std::move(there);
  return Unavailable("rendezvous ", name_, ": '", key, "' came and went while we put it");
}

absl::StatusOr<std::optional<std::string>> FileStore::Read(const std::string& key) {
  const std::string name = FileOf(key);
  const auto error = [&] { return Error(absl::StrCat("cannot read '", key, "'"), errno); };
  // Opening the folder makes an NFS client ask again for what it remembers as absent.
  const UniqueFd fresh(openat(job_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd file(
      openat(job_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && (errno == ENOENT || errno == ESTALE)) return std::nullopt;
  if (!file && errno == ELOOP) return std::string();  // a link is no value
  struct stat about = {};
  if (!file || fstat(file.get(), &about) != 0) return error();
  if (!S_ISREG(about.st_mode)) return std::string();
  std::string value;
  while (value.size() <= kMaxStoredBytes) {
    char chunk[16384];
    const ssize_t got = read(file.get(), chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == ESTALE) return std::nullopt;
    if (got < 0) return error();
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

constexpr absl::string_view kMagic = "ringzero 1 ";

std::string WithDigest(absl::string_view key, absl::string_view value) {
  const std::string digest = Sha256Hex(absl::StrCat(key.size(), ":", key, value));
  return absl::StrCat(kMagic, digest, "\n", value);
}

// Nothing for what no worker of ours has written.
std::optional<std::string> WithoutDigest(absl::string_view key, absl::string_view stored) {
  constexpr size_t kStart = kMagic.size() + 64 + 1;
  if (stored.size() < kStart) return std::nullopt;
  const absl::string_view value = stored.substr(kStart);
  return stored == WithDigest(key, value) ? std::optional<std::string>(value) : std::nullopt;
}

absl::Status Foreign(const RendezvousStore& store, const std::string& key, size_t bytes) {
  // The start's name in front of a key means nothing to a reader.
  const std::string shown = key.substr(key.find('/') + 1);
  return InvalidArgument("rendezvous ", store.name(), ": '", shown, "' holds ", bytes,
                         " bytes that no worker of this version has written");
}

}  // namespace

absl::Status CheckedStore::Write(const std::string& key, const std::string& value) {
  const MutexLock lock(mutex_);
  return store_->Write(key, WithDigest(key, value));
}

absl::Status CheckedStore::WriteOnce(const std::string& key, const std::string& value) {
  const MutexLock lock(mutex_);
  const std::string mine = WithDigest(key, value);
  RZ_ASSIGN_OR_RETURN(const std::string there, store_->WriteOnce(key, mine));
  if (there == mine) return absl::OkStatus();
  if (!WithoutDigest(key, there).has_value()) return Foreign(*store_, key, there.size());
  return absl::AlreadyExistsError(absl::StrCat("rendezvous ", name(), ": '",
                                               key.substr(key.find('/') + 1), "' was put before"));
}

absl::StatusOr<std::optional<std::string>> CheckedStore::Read(const std::string& key) {
  const MutexLock lock(mutex_);
  RZ_ASSIGN_OR_RETURN(const std::optional<std::string> stored, store_->Read(key));
  if (!stored.has_value()) return std::nullopt;
  std::optional<std::string> value = WithoutDigest(key, *stored);
  if (!value.has_value()) return Foreign(*store_, key, stored->size());
  return value;
}

absl::StatusOr<std::string> CheckedStore::ReadOrEmpty(const std::string& key) {
  const absl::StatusOr<std::optional<std::string>> value = Read(key);
  if (absl::IsInvalidArgument(value.status())) return std::string();
  RZ_RETURN_IF_ERROR(value.status());
  return value->value_or("");
}

absl::StatusOr<std::unique_ptr<RendezvousStore>> OpenFileStore(const std::string& folder,
                                                               const std::string& job) {
  auto store = std::make_unique<FileStore>(folder, job);
  RZ_RETURN_IF_ERROR(store->Open(folder));
  return store;
}

}  // namespace ringzero
