// A map, with a log behind it between processes: each process reads what others append. Agreement:
// a text or an error is put in parts, "<code> <parts>" under the key "<what>/<worker>", the parts
// of the text under "<what>/<worker>/<part>".
#include "p2p/job/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
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

constexpr absl::string_view kStatement = "agreement";
constexpr absl::string_view kResult = "result";
constexpr size_t kShownBytes = 16 << 10;  // of one section
// A worker that failed has told its reason before it was found missing, or is about to.
constexpr std::chrono::seconds kReasonLimit(1);

using Told = absl::StatusOr<std::string>;

absl::Status Tell(const JobSeat& seat, absl::string_view what, const Told& mine) {
  const std::string key = absl::StrCat(what, "/", seat.self.value);
  const std::string text = mine.ok() ? *mine : std::string(mine.status().message());
  size_t parts = 0;
  for (size_t at = 0; at < text.size(); at += kMaxRendezvousValueBytes) {
    RZ_RETURN_IF_ERROR(seat.rendezvous->Put(absl::StrCat(key, "/", parts++),
                                            text.substr(at, kMaxRendezvousValueBytes)));
  }
  return seat.rendezvous->Put(key,
                              absl::StrCat(static_cast<int>(mine.status().code()), " ", parts));
}

absl::Status Garbled(absl::string_view what, int worker) {
  return InvalidArgument("worker ", worker, "'s statement (", what, ") cannot be read");
}

// The text or the error that a worker has told. If Hear itself fails: nothing could be heard.
absl::StatusOr<Told> Hear(const JobSeat& seat, absl::string_view what, int worker,
                          const Deadline& deadline) {
  const std::string key = absl::StrCat(what, "/", worker);
  RZ_ASSIGN_OR_RETURN(const std::string head, seat.rendezvous->Get(key, deadline.Left()));
  const std::vector<std::string> words = absl::StrSplit(head, ' ');
  int code = 0;
  size_t parts = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &code) ||
      !absl::SimpleAtoi(words[1], &parts) || code < 0 || code > 16) {
    return Garbled(what, worker);
  }
  std::string text;
  for (size_t part = 0; part < parts; ++part) {
    RZ_ASSIGN_OR_RETURN(const std::string next,
                        seat.rendezvous->Get(absl::StrCat(key, "/", part), deadline.Left()));
    text += next;
  }
  if (code == 0) return Told(std::move(text));
  return Told(absl::Status(static_cast<absl::StatusCode>(code), text));
}

using Sections = std::vector<AgreementSection>;

std::string Write(const Sections& sections) {
  std::string all;
  for (const auto& [name, text] : sections) absl::StrAppend(&all, JoinTexts({name, text}));
  return all;
}

std::optional<Sections> Read(absl::string_view all) {
  Sections sections;
  while (!all.empty()) {
    std::optional<std::string> name = TakeText(all), text = TakeText(all);
    if (!name.has_value() || !text.has_value()) return std::nullopt;
    sections.push_back({*std::move(name), *std::move(text)});
  }
  return sections;
}

// {"cyclic.slack", "0"} of the line "cyclic.slack = 0"; {"line 3", the line} of any other.
using Values = std::vector<std::pair<std::string, std::string>>;

Values ValuesOf(absl::string_view text) {
  Values values;
  for (const absl::string_view line :
       absl::StrSplit(text.substr(0, kShownBytes), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(" = ", 1));
    const bool named = parts.size() == 2;
    values.emplace_back(named ? parts[0] : absl::StrCat("line ", values.size() + 1), parts.back());
  }
  return values;
}

// What differs first, in words; `mine` is worker 0's.
std::string Difference(int worker, const Values& theirs, const Values& mine) {
  const auto find = [](const Values& values, const std::string& name) {
    return std::ranges::find(values, name, &Values::value_type::first);
  };
  const std::string who = absl::StrCat("worker ", worker);
  for (const auto& [name, value] : theirs) {
    const auto other = find(mine, name);
    if (other != mine.end() && other->second == value) continue;
    return absl::StrCat(who, " has ", name, " = ", value, ", worker 0 has ",
                        other == mine.end() ? "no such value" : other->second);
  }
  for (const auto& [name, value] : mine) {
    if (find(theirs, name) != theirs.end()) continue;
    return absl::StrCat(who, " has no ", name, ", worker 0 has ", name, " = ", value);
  }
  return absl::StrCat(who, "'s differs from worker 0's");
}

absl::Status Compare(int worker, const Sections& theirs, const Sections& mine) {
  constexpr auto kName = &AgreementSection::name;
  if (!std::ranges::equal(theirs, mine, {}, kName, kName)) {
    return InvalidArgument("worker ", worker,
                           " compares other things than worker 0: another version of ringzero?");
  }
  for (size_t i = 0; i < mine.size(); ++i) {
    if (theirs[i].text == mine[i].text) continue;
    return InvalidArgument(Difference(worker, ValuesOf(theirs[i].text), ValuesOf(mine[i].text)),
                           " (", mine[i].name, ")");
  }
  return absl::OkStatus();
}

absl::Status CompareAll(const JobSeat& seat, const Sections& sections) {
  RZ_RETURN_IF_ERROR(Tell(seat, kStatement, Write(sections)));
  const Deadline deadline(seat.join_limit);
  std::vector<Sections> all;
  for (int w = 0; w < seat.workers; ++w) {
    const absl::StatusOr<Told> theirs = Hear(seat, kStatement, w, deadline);
    if (!theirs.ok()) {
      return WhileWaiting(theirs.status(), absl::StrCat("worker ", w, " has stated nothing"));
    }
    if (!theirs->ok()) return ReportedBy(WorkerId(w), theirs->status());
    std::optional<Sections> read = Read(**theirs);
    if (!read.has_value()) return Garbled(kStatement, w);
    all.push_back(*std::move(read));
  }
  for (int w = 1; w < seat.workers; ++w) RZ_RETURN_IF_ERROR(Compare(w, all[w], all[0]));
  return absl::OkStatus();
}

// Whether `why` only says that a worker did not come or went away. Perhaps that worker said why.
bool MayBlameWrongly(const absl::Status& why) {
  return absl::IsDeadlineExceeded(why) ||
         (absl::IsUnavailable(why) && absl::StrContains(why.message(), "worker "));
}

// `found`; if it only tells of missing workers, the reason that one of them has left, if any.
absl::Status FirstCause(const JobSeat& seat, const absl::Status& found) {
  if (!MayBlameWrongly(found)) return found;
  const Deadline deadline(kReasonLimit);
  for (int w = 1; w < seat.workers; ++w) {
    const absl::StatusOr<Told> heard = Hear(seat, kResult, w, deadline);
    const absl::Status theirs = heard.ok() ? heard->status() : heard.status();
    if (theirs.ok() || IsEcho(theirs) || MayBlameWrongly(theirs)) continue;
    return ReportedBy(WorkerId(w), theirs);
  }
  return found;
}

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

absl::Status Agree(const JobSeat& seat, const Sections& sections) {
  if (seat.workers == 1) return absl::OkStatus();
  absl::Status agreed = CompareAll(seat, sections);
  if (!agreed.ok()) seat.rendezvous->Leave(agreed);  // tells workers that have not come to Agree
  return agreed;
}

void Disagree(const JobSeat& seat, const absl::Status& why) {
  if (seat.workers == 1 || why.ok()) return;
  // A worker that cannot be told finds out by waiting.
  Tell(seat, kStatement, why).IgnoreError();
  seat.rendezvous->Leave(why);
}

absl::StatusOr<std::vector<std::string>> ShareResults(const JobSeat& seat, const Told& mine,
                                                      std::chrono::milliseconds limit) {
  if (seat.self.value != 0) {
    const absl::Status told = Tell(seat, kResult, mine);
    if (!mine.ok()) return mine.status();
    RZ_RETURN_IF_ERROR(told);
    return std::vector<std::string>{*mine};
  }
  if (!mine.ok()) return FirstCause(seat, mine.status());
  const Deadline deadline(limit);
  std::vector<std::string> all = {*mine};
  for (int w = 1; w < seat.workers; ++w) {
    absl::StatusOr<Told> theirs = Hear(seat, kResult, w, deadline);
    absl::Status status = theirs.ok() ? theirs->status() : theirs.status();
    if (!theirs.ok() && absl::IsDeadlineExceeded(status)) {
      status =
          absl::UnavailableError(absl::StrFormat("worker %d has left no result within %g s", w,
                                                 std::chrono::duration<double>(limit).count()));
    }
    if (!status.ok()) return FirstCause(seat, ReportedBy(WorkerId(w), CauseOf(status)));
    all.push_back(**std::move(theirs));
  }
  return all;
}

}  // namespace ringzero
