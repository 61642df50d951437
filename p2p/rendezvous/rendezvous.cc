// A map. Between processes the map has a log behind it: each process reads what others append.
#include "p2p/rendezvous/rendezvous.h"

#include <unistd.h>

#include <cerrno>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/texts.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"

namespace ringzero {
namespace {

// Excludes other processes while it lives. The kernel frees the lock of a process that ends; the
// launcher ends a process that is stopped. Does nothing if `file` is -1.
class FileLock {
 public:
  explicit FileLock(int file) : file_(file) {
    while (lockf(file_, F_LOCK, 0) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() { (void)lockf(file_, F_ULOCK, 0); }

 private:
  const int file_;
};

class MapRendezvous final : public Rendezvous {
 public:
  // `log`: a descriptor; -1: all who use it are threads of this process.
  MapRendezvous(std::string name, int log) : name_(std::move(name)), log_(log) {}

  std::string name() const override { return name_; }

  absl::Status Put(const std::string& key, const std::string& value) override {
    RZ_RETURN_IF_ERROR(CheckSize(key, value));
    const MutexLock lock(mutex_);
    const FileLock alone(log_);
    const std::optional<std::string> found = Find(key);
    if (!found.has_value()) return Append(key, value);
    if (*found == value) return absl::OkStatus();
    return absl::AlreadyExistsError(
        absl::StrCat("rendezvous ", name_, ": '", key, "' was put before"));
  }

  absl::StatusOr<std::string> Get(const std::string& key,
                                  std::chrono::milliseconds limit) override {
    return WaitFor(key, limit, [&] {
      const MutexLock lock(mutex_);
      const FileLock alone(log_);
      return Find(key);
    });
  }

 private:
  std::optional<std::string> Find(const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ReadOn();
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

  // Reads what other processes have appended.
  void ReadOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    char chunk[1 << 16];
    std::string news;
    ssize_t got = 0;
    while ((got = pread(log_, chunk, sizeof(chunk), read_)) > 0) {
      news.append(chunk, static_cast<size_t>(got));
      read_ += got;
    }
    absl::string_view rest = news;
    while (std::optional<std::string> key = TakeText(rest)) {
      values_[*std::move(key)] = TakeText(rest).value_or("");
    }
  }

  absl::Status Append(const std::string& key, const std::string& value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    values_[key] = value;
    const std::string entry = log_ < 0 ? "" : JoinTexts({key, value});
    for (size_t done = 0; done < entry.size();) {
      const ssize_t wrote = pwrite(log_, entry.data() + done, entry.size() - done, read_);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return SystemError(absl::StrCat("rendezvous ", name_));
      done += static_cast<size_t>(wrote);
      read_ += wrote;
    }
    return absl::OkStatus();
  }

  const std::string name_;
  const int log_;
  Mutex mutex_;
  off_t read_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of the log that were read
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status Rendezvous::CheckSize(const std::string& key, const std::string& value) const {
  if (value.size() <= kMaxRendezvousValueBytes) return absl::OkStatus();
  return InvalidArgument("rendezvous ", name(), ": '", key, "' has ", value.size(), " bytes; ",
                         kMaxRendezvousValueBytes, " are the most");
}

absl::StatusOr<std::string> Rendezvous::WaitFor(const std::string& key,
                                                std::chrono::milliseconds limit, const Look& look) {
  Patience patience(limit);
  while (true) {
    RZ_ASSIGN_OR_RETURN(std::optional<std::string> value, look());
    if (value.has_value()) return *std::move(value);
    RZ_RETURN_IF_ERROR(status());
    if (patience.over()) {
      return absl::DeadlineExceededError(absl::StrCat("rendezvous ", name(), ": nobody put '", key,
                                                      "' within ", limit.count(), " ms"));
    }
    patience.Wait();
  }
}

std::shared_ptr<Rendezvous> MakeLocalRendezvous() {
  return std::make_shared<MapRendezvous>("local", -1);
}

std::shared_ptr<Rendezvous> MakeLaunchRendezvous(const UniqueFd& log) {
  return std::make_shared<MapRendezvous>("launcher", log.get());
}

absl::StatusOr<std::vector<std::string>> TellAll(const JobSeat& seat, absl::string_view key,
                                                 const std::string& mine,
                                                 absl::string_view missing) {
  RZ_RETURN_IF_ERROR(seat.rendezvous->Put(absl::StrCat(key, "/", seat.self.value), mine));
  const Deadline deadline(seat.join_limit);
  std::vector<std::string> told;
  for (int w = 0; w < seat.workers; ++w) {
    absl::StatusOr<std::string> theirs =
        seat.rendezvous->Get(absl::StrCat(key, "/", w), deadline.Left());
    if (!theirs.ok()) {
      return WhileWaiting(theirs.status(), absl::StrCat("worker ", w, " ", missing));
    }
    told.push_back(*std::move(theirs));
  }
  return told;
}

}  // namespace ringzero
