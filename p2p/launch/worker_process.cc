// fork, what a child sets up before its body runs, records as texts, and waitpid.
#include "p2p/launch/worker_process.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/files.h"
#include "base/status.h"
#include "base/texts.h"
#include "p2p/launch/limits.h"

namespace ringzero {
namespace {

constexpr int kFailedExitCode = 1;

// How many processes of a control group the kernel has ended for lack of memory: the line
// "oom_kill N" of `file`, -1 without one.
int64_t OomKillsIn(const std::string& file) {
  int64_t kills = 0;
  return absl::SimpleAtoi(FieldOfFile(file, "oom_kill"), &kills) ? kills : -1;
}

// The nearest counter there is: of this process' group in either version of cgroups, of the group
// that a container sees as the root, or of the whole machine.
std::string FindOomCounter() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/a/b", "0::/a/b"
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || (!parts[1].empty() && parts[1] != "memory")) continue;
    const bool v2 = parts[1].empty();
    for (const std::string& path : {parts[2] == "/" ? "" : parts[2], std::string()}) {
      std::string file = absl::StrCat("/sys/fs/cgroup", v2 ? "" : "/memory", path,
                                      v2 ? "/memory.events" : "/memory.oom_control");
      if (OomKillsIn(file) >= 0) return file;
    }
  }
  return "/proc/vmstat";
}

// If memory runs out, the process that holds it is to be ended, not the process that tells of it.
// A score of -1000 stays: somebody has said that this job is never ended so.
void OfferToOomKiller() {
  constexpr char kFile[] = "/proc/self/oom_score_adj";
  constexpr int kTenthOfTheMemory = 100;
  int score = 0;
  if (!(std::ifstream(kFile) >> score) || score == -1000) return;
  std::ofstream(kFile) << std::min(score + kTenthOfTheMemory, 1000);
}

pid_t launching_process = 0;

// Worker 0 says the last words of a launching process that was killed. SIGCONT wakes worker 0 for
// them even if it is stopped. An ordinary SIGCONT means nothing.
void OnContinued(int) {
  if (getppid() == launching_process) return;
  constexpr char kWords[] =
      "ringzero: error: the launching process died (SIGKILL, or a crash); its workers end\n";
  alarm(1);  // ends us if the words are not taken
  (void)!write(STDERR_FILENO, kWords, sizeof(kWords) - 1);
  kill(getpid(), SIGKILL);
}

// A terminal's Ctrl-C and hang-up go to the whole process group. The launching process alone
// decides what they do, and sends SIGTERM. If that process vanishes, so do its children.
void SetUpChild(WorkerId worker, pid_t parent, const sigset_t& mask) {
  launching_process = parent;
  struct sigaction continued = {};
  continued.sa_handler = worker.value == 0 ? &OnContinued : SIG_DFL;
  continued.sa_flags = SA_RESTART;
  sigaction(SIGCONT, &continued, nullptr);
  prctl(PR_SET_PDEATHSIG, worker.value == 0 ? SIGCONT : SIGKILL);
  if (getppid() != parent) _exit(kFailedExitCode);
  for (const int ignored : {SIGINT, SIGHUP, SIGPIPE}) signal(ignored, SIG_IGN);
  for (const int normal : {SIGTERM, SIGCHLD, SIGALRM}) signal(normal, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  OfferToOomKiller();
}

void FlushOutput() {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
}

absl::StatusOr<std::string> RunBody(const WorkerProcess::Body& body, RecordWriter& records) {
  try {
    return body(records);
  } catch (const std::system_error& error) {
    return FromSystemError(error);
  } catch (const std::bad_alloc& error) {
    return OutOfMemory(error.what());
  }
}

[[noreturn]] void RunChild(const WorkerProcess::Body& body, int socket) {
  RecordWriter records(socket);
  const absl::StatusOr<std::string> result = RunBody(body, records);
  FlushOutput();
  const bool told = records
                        .Finish(result.ok() ? Record{Record::Type::kResult, "", *result}
                                            : FailureRecord(result.status()))
                        .ok();
  // Not exit: the parent's handlers and static objects are not ours to run.
  _exit(told && result.ok() ? 0 : kFailedExitCode);
}

std::string ToText(const Record& record) {
  return JoinTexts({absl::StrCat(static_cast<int>(record.type)), record.kind, record.text});
}

// Takes the first record off the front of `bytes`. Nothing: no record has come completely.
std::optional<Record> TakeRecord(absl::string_view& bytes) {
  absl::string_view rest = bytes;
  std::array<std::string, 3> parts;
  for (std::string& part : parts) {
    std::optional<std::string> text = TakeText(rest);
    if (!text.has_value()) return std::nullopt;
    part = *std::move(text);
  }
  int type = 0;
  RZ_CHECK(absl::SimpleAtoi(parts[0], &type), parts[0]);
  bytes = rest;
  return Record{static_cast<Record::Type>(type), std::move(parts[1]), std::move(parts[2])};
}

}  // namespace

Record FailureRecord(const absl::Status& why) {
  return {Record::Type::kFailure, absl::StrCat(why.raw_code()), std::string(why.message())};
}

absl::Status RecordWriter::Write(const Record& record) {
  RZ_RETURN_IF_ERROR(Send(MSG_DONTWAIT));
  if (waiting_.size() > kMaxWaitingBytes) {
    return absl::ResourceExhaustedError("the launching process does not read its reports");
  }
  waiting_ += ToText(record);
  return Send(MSG_DONTWAIT);
}

absl::Status RecordWriter::Finish(const Record& record) {
  waiting_ += ToText(record);
  return Send(0);
}

absl::Status RecordWriter::Send(int flags) {
  size_t written = 0;
  int error = 0;
  while (written < waiting_.size() && error == 0) {
    const ssize_t sent =
        send(socket_, waiting_.data() + written, waiting_.size() - written, flags | MSG_NOSIGNAL);
    if (sent >= 0) written += static_cast<size_t>(sent);
    if (sent < 0 && errno != EINTR) error = errno;
  }
  waiting_.erase(0, written);
  if (error == 0 || error == EAGAIN || error == EWOULDBLOCK) return absl::OkStatus();
  return Unavailable("cannot report to the launching process: ", std::strerror(error));
}

absl::Status WorkerProcess::Fork(const sigset_t& signal_mask, const Body& body) {
  int pair[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return SystemError(absl::StrCat("cannot make worker ", worker_.value, "'s socket"));
  }
  socket_ = UniqueFd(pair[0]);
  const UniqueFd childs(pair[1]);
  FlushOutput();  // or the child would write it once more
  oom_file_ = FindOomCounter();
  oom_kills_ = OomKillsIn(oom_file_);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    return SystemError(absl::StrCat("cannot start worker ", worker_.value, "'s process"));
  }
  if (pid_ == 0) {
    SetUpChild(worker_, parent, signal_mask);
    Abandon();
    RunChild(body, childs.get());
  }
  return absl::OkStatus();
}

WorkerProcess::~WorkerProcess() {
  if (pid_ <= 0) return;
  Signal(SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void WorkerProcess::ReadRecords(std::vector<Record>& records) {
  std::array<char, 65536> chunk;
  while (socket_) {
    const ssize_t got = recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) socket_.Reset();
    if (got > 0) arrived_.append(chunk.data(), static_cast<size_t>(got));
  }
  absl::string_view rest = arrived_;
  while (std::optional<Record> record = TakeRecord(rest)) records.push_back(*std::move(record));
  arrived_.erase(0, arrived_.size() - rest.size());
}

void WorkerProcess::AskSystem() {
  while (pid_ > 0) {
    int status = 0;
    const pid_t changed = waitpid(pid_, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (changed < 0 && errno == EINTR) continue;
    if (changed == 0) return;
    if (changed > 0 && WIFSTOPPED(status)) {
      stop_ = {WSTOPSIG(status), stop_.count + 1};
      continue;
    }
    stop_.signal = 0;
    if (changed > 0 && WIFCONTINUED(status)) continue;
    pid_ = -1;
    if (changed < 0) {
      end_ = End{0, "was reaped by somebody else"};
    } else if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      end_ = End{signal, absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")",
                                      signal == SIGKILL ? OomWords() : "")};
    } else {
      end_ = End{0, absl::StrCat("exited with code ", WEXITSTATUS(status))};
    }
  }
}

std::string WorkerProcess::OomWords() const {
  const int64_t kills = OomKillsIn(oom_file_) - oom_kills_;
  if (kills <= 0) return "";
  return absl::StrCat(": out of memory, says the kernel (oom_kill in ", oom_file_, " rose by ",
                      kills, ")");
}

std::optional<WorkerProcess::End> WorkerProcess::Reap() {
  AskSystem();
  return std::exchange(end_, std::nullopt);
}

WorkerProcess::Stop WorkerProcess::Stopped() {
  AskSystem();
  return stop_;
}

void WorkerProcess::Abandon() {
  pid_ = -1;
  end_.reset();
  socket_.Reset();
}

void WorkerProcess::Signal(int signal) {
  if (pid_ > 0) kill(pid_, signal);
}

}  // namespace ringzero
