// A folder as a store, a digest in front of each value, the gathering, and the thread of a
// Presence.
#include "p2p/job/store_rendezvous.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/crypto.h"
#include "base/status.h"
#include "base/system_names.h"
#include "base/unique_fd.h"
#include "p2p/failure.h"

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

class FileStore final : public RendezvousStore {
 public:
  FileStore(const std::string& folder, const std::string& job)
      : name_(absl::StrCat("file://", folder)),
        job_folder_(absl::StrCat("ringzero-job-", Escaped(job))) {}

  // Called before anything else.
  absl::Status Open(const std::string& folder) {
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

  std::string name() const override { return name_; }

  absl::Status Write(const std::string& key, const std::string& value) override {
    return Put(key, value, /*replace=*/true).status();
  }

  absl::StatusOr<std::string> WriteOnce(const std::string& key, const std::string& value) override {
    RZ_ASSIGN_OR_RETURN(const bool put, Put(key, value, /*replace=*/false));
    if (put) return value;
    // Maybe we put it ourselves: if an NFS server's answer is lost, the second try fails.
    RZ_ASSIGN_OR_RETURN(std::optional<std::string> there, Read(key));
    if (there.has_value()) return *std::move(there);
    return Unavailable("rendezvous ", name_, ": '", key, "' came and went while we put it");
  }

  absl::StatusOr<std::optional<std::string>> Read(const std::string& key) override {
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

  void Clear(const std::string& prefix) override {
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

 private:
  absl::Status Error(absl::string_view what, int error) const {
    return StoreError(name_, what, error);
  }
  static std::string FileOf(const std::string& key) {
    return absl::StrCat(kFilePrefix, Escaped(key));
  }

  absl::Status OpenJob() {
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

  // Writes the value completely, under a name of its own. Closing the file hands it to an NFS
  // server. No disk needs to have the file, and signs of life must not wait for a disk.
  absl::StatusOr<std::string> WriteDraft(const std::string& value) {
    const std::string draft = absl::StrCat(kDraftPrefix, RandomHex(8));
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    UniqueFd file;
    for (int tries = 0; !file && tries < kTries; ++tries) {
      // The last worker of an earlier start, or the first of ours, has removed the folder under us.
      if (tries > 0) RZ_RETURN_IF_ERROR(OpenJob());
      file = UniqueFd(openat(job_.get(), draft.c_str(), kFlags, 0600));
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

  // False: the key has a value, which is not to be replaced.
  absl::StatusOr<bool> Put(const std::string& key, const std::string& value, bool replace) {
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

  const std::string name_;
  const std::string job_folder_;
  UniqueFd folder_;
  UniqueFd job_;
};

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

// A sign of life is "<number> <count>", "<number> left", or "<number> failed <code> <words>".
constexpr int kBeatsInTimeout = 10;
constexpr std::chrono::milliseconds kLongestInterval(500);  // between two beats
constexpr size_t kLastWordsBytes = 16 << 10;
constexpr absl::string_view kLeft = " left";
constexpr absl::string_view kFailed = " failed ";

// Signals are for the program's own threads.
std::thread ThreadWithoutSignals(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread = NamedThread("rz-presence", std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

// What "<code> <words>" says.
absl::Status ReadLastWords(absl::string_view text) {
  const size_t space = text.find(' ');
  int code = 0;
  if (space == absl::string_view::npos || !absl::SimpleAtoi(text.substr(0, space), &code) ||
      code < 1 || code > 16) {
    return absl::UnknownError("it ended with words that cannot be read");
  }
  return absl::Status(static_cast<absl::StatusCode>(code), text.substr(space + 1));
}

constexpr char kJoin[] = "join.";
constexpr char kAccepted[] = "accepted.";
constexpr char kStartKey[] = "start";

class StoreRendezvous final : public Rendezvous {
 public:
  StoreRendezvous(std::unique_ptr<RendezvousStore> store, const Gathering& gathering)
      : store_(std::move(store)),
        gathering_(gathering),
        self_(gathering.self.value),
        numbers_(gathering.workers) {}
  ~StoreRendezvous() override {
    if (gathered_) End();
  }

  // Called before anything else.
  absl::Status Gather() {
    number_ = RandomHex(16);
    if (self_ == 0) store_.Clear("");  // whatever earlier starts have left
    presence_.emplace(store_, gathering_, number_);
    absl::Status met = Meet();
    gathered_ = met.ok();
    if (gathered_) {
      presence_->Know(numbers_);
      store_.Gathered();
    } else if (!absl::IsAlreadyExists(met)) {  // otherwise another process is this worker
      Leave(met);
      presence_->AwaitOthers(gathering_.leave_limit);
    }
    return met;
  }

  std::string name() const override { return store_.name(); }
  std::string start() const override { return start_; }

  absl::Status Put(const std::string& key, const std::string& value) override {
    RZ_RETURN_IF_ERROR(CheckSize(key, value));
    return store_.WriteOnce(Full(key), value);
  }

  absl::StatusOr<std::string> Get(const std::string& key,
                                  std::chrono::milliseconds limit) override {
    return WaitFor(key, limit, [&] { return store_.Read(Full(key)); });
  }

  absl::Status status() override { return presence_->status(); }
  void Leave(const absl::Status& why) override { presence_->Leave(why); }

 private:
  std::string Full(const std::string& key) const { return absl::StrCat(start_, "/", key); }
  std::string LeftKey(int worker) const { return Full(absl::StrCat("left.", worker)); }

  // A value that no worker wrote counts as nothing: it may be gone as soon as worker 0 comes.
  absl::StatusOr<std::string> Look(const char* key, int worker) {
    return store_.ReadOrEmpty(absl::StrCat(key, worker));
  }

  absl::Status Meet() {
    if (self_ == 0) start_ = absl::StrCat("r", gathering_.restart, "-", RandomHex(8));
    RZ_RETURN_IF_ERROR(store_.Write(absl::StrCat(kJoin, self_), number_));
    Patience patience(gathering_.limit);
    while (true) {
      RZ_RETURN_IF_ERROR(StayJoined());
      RZ_ASSIGN_OR_RETURN(const bool done, self_ == 0 ? Lead() : Follow());
      if (done) return absl::OkStatus();
      RZ_RETURN_IF_ERROR(status());
      if (patience.over()) return Missing();
      patience.Wait();
    }
  }

  // Writes our number again if it is gone: worker 0 clears the store when it comes, maybe after us.
  absl::Status StayJoined() {
    RZ_ASSIGN_OR_RETURN(const std::string there, Look(kJoin, self_));
    if (there == number_) return absl::OkStatus();
    if (there.empty()) return store_.Write(absl::StrCat(kJoin, self_), number_);
    return absl::AlreadyExistsError(absl::StrCat(
        "rendezvous ", name(), ": another process is worker ", self_,
        " there, too: another job needs another place, or a job id of its own (RINGZERO_JOB_ID)"));
  }

  absl::StatusOr<bool> Lead() {
    for (int w = 0; w < gathering_.workers; ++w) {
      RZ_ASSIGN_OR_RETURN(numbers_[w], Look(kJoin, w));
      if (numbers_[w].empty()) return false;
    }
    const std::string answer = absl::StrCat(start_, " ", absl::StrJoin(numbers_, " "));
    RZ_ASSIGN_OR_RETURN(const std::string there, store_.ReadOrEmpty(kStartKey));
    if (there != answer) RZ_RETURN_IF_ERROR(store_.Write(kStartKey, answer));
    for (int w = 1; w < gathering_.workers; ++w) {
      // In this order: a worker accepts before it ends.
      const absl::Status words = presence_->LastWords(WorkerId(w), numbers_[w]);
      RZ_ASSIGN_OR_RETURN(const std::string accepted, Look(kAccepted, w));
      if (accepted == start_) continue;
      RZ_RETURN_IF_ERROR(words);
      return false;
    }
    return true;
  }

  absl::StatusOr<bool> Follow() {
    RZ_ASSIGN_OR_RETURN(const std::string answer, store_.ReadOrEmpty(kStartKey));
    const std::vector<std::string> words = absl::StrSplit(answer, ' ');
    const size_t mine = static_cast<size_t>(self_) + 1;
    if (words.size() <= mine || words[mine] != number_) return false;
    if (const size_t theirs = words.size() - 1; theirs != numbers_.size()) {
      return InvalidArgument("rendezvous ", name(), ": worker ", self_, " was told of ",
                             numbers_.size(), " workers, worker 0 of ", theirs);
    }
    start_ = words[0];
    numbers_.assign(words.begin() + 1, words.end());
    RZ_RETURN_IF_ERROR(store_.Write(absl::StrCat(kAccepted, self_), start_));
    return true;
  }

  absl::Status Missing() {
    std::vector<int> missing;
    std::vector<int> silent;  // left a number, maybe long ago, and did not take the answer
    for (int w = 0; w < gathering_.workers; ++w) {
      RZ_ASSIGN_OR_RETURN(const std::string number, Look(kJoin, w));
      RZ_ASSIGN_OR_RETURN(const std::string accepted, Look(kAccepted, w));
      if (number.empty()) missing.push_back(w);
      if (self_ == 0 && w != 0 && accepted != start_) silent.push_back(w);
    }
    if (missing.empty()) missing = silent;
    // All have left their numbers; then it is worker 0 who did not answer.
    if (missing.empty()) missing.push_back(0);
    const double seconds = std::chrono::duration<double>(gathering_.limit).count();
    return absl::DeadlineExceededError(
        absl::StrCat("rendezvous ", name(), ": ", missing.size() == 1 ? "worker " : "workers ",
                     absl::StrJoin(missing, ", "), " of ", gathering_.workers,
                     " did not come within ", seconds, " s"));
  }

  // Whether all have left. `but_for_silent`: silent workers, who never will, count as gone.
  bool AllHaveLeft(bool but_for_silent) {
    for (int w = 0; w < gathering_.workers; ++w) {
      const auto left = store_.Read(LeftKey(w));
      if (left.ok() && left->has_value()) continue;
      if (!but_for_silent || !presence_->IsSilent(WorkerId(w))) return false;
    }
    return true;
  }

  void End() {
    Leave(absl::UnavailableError("it ended before it was connected"));
    if (!store_.Write(LeftKey(self_), "").ok()) return;
    Patience patience(gathering_.leave_limit);
    while (!AllHaveLeft(/*but_for_silent=*/true) && !patience.over()) patience.Wait();
    if (!AllHaveLeft(/*but_for_silent=*/false)) return;
    store_.Clear(Full(""));
    // The rest as well, unless the job has started again meanwhile.
    const absl::StatusOr<std::string> start = store_.ReadOrEmpty(kStartKey);
    if (!start.ok() || !absl::StartsWith(*start, start_)) return;
    for (const char* prefix : {kJoin, kAccepted, kStartKey, kAliveKeys}) store_.Clear(prefix);
  }

  CheckedStore store_;
  const Gathering gathering_;
  const int self_;
  std::string number_;                // this worker's
  std::vector<std::string> numbers_;  // of all workers, as worker 0 has them
  std::string start_;
  std::optional<Presence> presence_;
  bool gathered_ = false;
};

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

absl::StatusOr<std::shared_ptr<Rendezvous>> GatherAt(std::unique_ptr<RendezvousStore> store,
                                                     const Gathering& gathering) {
  if (gathering.self.value < 0 || gathering.self.value >= gathering.workers) {
    return InvalidArgument("there is no worker ", gathering.self.value, " among ",
                           gathering.workers);
  }
  const auto rendezvous = std::make_shared<StoreRendezvous>(std::move(store), gathering);
  RZ_RETURN_IF_ERROR(rendezvous->Gather());
  return rendezvous;
}

Presence::Presence(CheckedStore& store, const Gathering& gathering, std::string number)
    : store_(store),
      gathering_(gathering),
      number_(std::move(number)),
      // A look may take a while. Twice this interval is too short a silence (p2p/heartbeat.h).
      clock_(Clock::now(), gathering.peer_timeout / 5),
      peers_(static_cast<size_t>(gathering.workers)),
      thread_(ThreadWithoutSignals([this] { Run(); })) {}

void Presence::Stop() {
  if (!thread_.joinable()) return;
  stop_.release();
  thread_.join();
}

void Presence::Run() {
  const Clock::duration interval =
      std::min<Clock::duration>(gathering_.peer_timeout / kBeatsInTimeout, kLongestInterval);
  for (uint64_t beats = 0;; ++beats) {
    absl::Status status = store_.Write(absl::StrCat(kAliveKeys, gathering_.self.value),
                                       absl::StrCat(number_, " ", beats));
    if (status.ok()) status = Look();
    {
      const MutexLock lock(mutex_);
      lost_.Update(status);
    }
    if (stop_.try_acquire_for(interval)) return;
  }
}

absl::Status Presence::Look() {
  absl::Status found;
  {
    const MutexLock lock(mutex_);
    now_ = clock_.Tick(Clock::now());
  }
  for (int w = 0; w < gathering_.workers; ++w) {
    if (w == gathering_.self.value) continue;
    RZ_ASSIGN_OR_RETURN(const std::string sign, store_.ReadOrEmpty(absl::StrCat(kAliveKeys, w)));
    const MutexLock lock(mutex_);
    found.Update(Take(w, sign));
  }
  const MutexLock lock(mutex_);
  looked_ = true;
  return found;
}

absl::Status Presence::Take(int worker, const std::string& sign) {
  Peer& peer = peers_[static_cast<size_t>(worker)];
  if (sign == std::exchange(peer.sign, sign) || sign.empty()) {
    const Clock::duration silence = now_ - peer.heard;
    if (peer.state != Peer::State::kAlive || silence < gathering_.peer_timeout) {
      return absl::OkStatus();
    }
    peer.state = Peer::State::kSilent;
    return WorkerSilent(WorkerId(worker),
                        std::chrono::duration_cast<std::chrono::milliseconds>(silence));
  }
  // At the first look the sign may be what an earlier start has left.
  if (!looked_) return absl::OkStatus();
  const absl::string_view text = sign;
  const size_t number = text.find(' ');
  if (!numbers_.empty() && text.substr(0, number) != numbers_[static_cast<size_t>(worker)]) {
    return absl::OkStatus();
  }
  absl::string_view rest = text.substr(std::min(number, text.size()));
  peer.state = Peer::State::kLeft;
  if (rest == kLeft) return absl::OkStatus();
  if (absl::ConsumePrefix(&rest, kFailed)) return ReportedBy(WorkerId(worker), ReadLastWords(rest));
  peer.state = Peer::State::kAlive;
  peer.heard = now_;
  return absl::OkStatus();
}

void Presence::Know(std::vector<std::string> numbers) {
  const MutexLock lock(mutex_);
  numbers_ = std::move(numbers);
  // From now on each worker is missed. The next look takes its sign as new, though it may be dead.
  looked_ = true;
  now_ = clock_.Tick(Clock::now());
  std::fill(peers_.begin(), peers_.end(), Peer{.state = Peer::State::kAlive, .heard = now_});
}

absl::Status Presence::LastWords(WorkerId worker, const std::string& number) const {
  const MutexLock lock(mutex_);
  absl::string_view words = peers_[static_cast<size_t>(worker.value)].sign;
  if (!absl::ConsumePrefix(&words, number) || !absl::ConsumePrefix(&words, kFailed)) {
    return absl::OkStatus();
  }
  return ReportedBy(worker, ReadLastWords(words));
}

absl::Status Presence::status() const {
  const MutexLock lock(mutex_);
  return left_ ? absl::OkStatus() : lost_;
}

bool Presence::IsSilent(WorkerId worker) const {
  const MutexLock lock(mutex_);
  return peers_[static_cast<size_t>(worker.value)].state == Peer::State::kSilent;
}

void Presence::Leave(const absl::Status& why) {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(left_, true)) return;
  }
  Stop();
  const std::string last = why.ok() ? std::string(kLeft)
                                    : absl::StrCat(kFailed, static_cast<int>(why.code()), " ",
                                                   why.message().substr(0, kLastWordsBytes));
  // A worker that cannot be told finds out by our silence.
  store_.Write(absl::StrCat(kAliveKeys, gathering_.self.value), number_ + last).IgnoreError();
}

void Presence::AwaitOthers(std::chrono::milliseconds limit) {
  Patience patience(limit);
  while (AnyAlive() && !patience.over()) {
    patience.Wait();
    Look().IgnoreError();
  }
}

bool Presence::AnyAlive() const {
  const MutexLock lock(mutex_);
  return std::ranges::count(peers_, Peer::State::kAlive, &Peer::state) > 0;
}

}  // namespace ringzero
