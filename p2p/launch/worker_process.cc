// fork, what a child sets up before its body runs, records as texts, and waitpid.
#include "p2p/launch/worker_process.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <new>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status.h"
#include "base/texts.h"
#include "p2p/launch/limits.h"

namespace ringzero {
namespace {

constexpr int kFailedExitCode = 1;

// How many processes of a control group the kernel has ended for lack of memory: the line
// "oom_kill N" of `file`, -1 without one.
int64_t OomKillsIn(const std::string& file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key;
    int64_t count = 0;
    if (words >> key >> count && key == "oom_kill") return count;
  }
  return -1;
}

// The nearest counter there is: of this process' group in either version of cgroups, of the group
// that a container sees as the root, or of the whole machine.
OomCounter FindOomCounter() {
  std::vector<std::string> files;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/a/b", "0::/a/b"
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    for (const std::string& path : {parts[2] == "/" ? "" : parts[2], std::string()}) {
      if (parts[1].empty()) files.push_back("/sys/fs/cgroup" + path + "/memory.events");
      if (parts[1] == "memory") {
        files.push_back("/sys/fs/cgroup/memory" + path + "/memory.oom_control");
      }
    }
  }
  files.emplace_back("/proc/vmstat");
  for (const std::string& file : files) {
    const int64_t kills = OomKillsIn(file);
    if (kills >= 0) return {file, kills};
  }
  return {};
}

// Who holds the memory is to be ended for lack of it, not who can tell of it. -1000 stays: somebody
// has said that this job never is.
void OfferToOomKiller() {
  constexpr char kFile[] = "/proc/self/oom_score_adj";
  constexpr int kTenthOfTheMemory = 100;
  int score = 0;
  if (!(std::ifstream(kFile) >> score) || score == -1000) return;
  std::ofstream(kFile) << std::min(score + kTenthOfTheMemory, 1000);
}

pid_t launching_process = 0;

// Worker 0 has the last words of a launching process that was killed. SIGCONT wakes it for them
// even if it is stopped; an ordinary one means nothing.
void OnContinued(int) {
  if (getppid() == launching_process) return;
  constexpr char kWords[] =
      "ringzero: error: the launching process died (SIGKILL, or a crash); its workers end\n";
  alarm(1);  // ends us if the words are not taken
  (void)!write(STDERR_FILENO, kWords, sizeof(kWords) - 1);
  kill(getpid(), SIGKILL);
}

// A terminal's Ctrl-C and its hang-up go to the whole group: there the launching process alone
// decides, and then sends SIGTERM. If it vanishes, so do we.
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

absl::StatusOr<std::string> RunBody(const WorkerProcess::Spawn& spawn, RecordWriter& records) {
  try {
    return spawn.body(records);
  } catch (const std::system_error& error) {
    return FromSystemError(error);
  } catch (const std::bad_alloc& error) {
    return OutOfMemory(error.what());
  }
}

[[noreturn]] void RunChild(const WorkerProcess::Spawn& spawn, int socket) {
  RecordWriter records(socket);
  absl::StatusOr<std::string> result = RunBody(spawn, records);
  Record last;
  last.type = result.ok() ? Record::Type::kResult : Record::Type::kFailure;
  last.code = static_cast<int>(result.status().code());
  last.text = result.ok() ? *std::move(result) : std::string(result.status().message());
  FlushOutput();
  const bool told = records.Finish(last).ok();
  // Not exit: the parent's handlers and static objects are not ours to run.
  _exit(told && last.type == Record::Type::kResult ? 0 : kFailedExitCode);
}

std::string ToText(const Record& record) {
  return JoinTexts({absl::StrCat(static_cast<int>(record.type)), absl::StrCat(record.code),
                    record.kind, record.text});
}

// The first record of `bytes`, which then begins behind it. Nothing: it has not come completely.
std::optional<Record> TakeRecord(absl::string_view& bytes) {
  absl::string_view rest = bytes;
  std::array<std::string, 4> parts;
  for (std::string& part : parts) {
    std::optional<std::string> text = TakeText(rest);
    if (!text.has_value()) return std::nullopt;
    part = *std::move(text);
  }
  int type = 0;
  Record record{.kind = std::move(parts[2]), .text = std::move(parts[3])};
  RZ_CHECK(absl::SimpleAtoi(parts[0], &type) && absl::SimpleAtoi(parts[1], &record.code), parts[0]);
  record.type = static_cast<Record::Type>(type);
  bytes = rest;
  return record;
}

}  // namespace

absl::Status RecordWriter::Write(const Record& record) {
  if (waiting_.size() > kMaxWaitingBytes) {
    RZ_RETURN_IF_ERROR(Send(MSG_DONTWAIT));
    if (waiting_.size() > kMaxWaitingBytes) {
      return absl::ResourceExhaustedError("the launching process does not read its reports");
    }
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
  return absl::UnavailableError(
      absl::StrCat("cannot report to the launching process: ", std::strerror(error)));
}

absl::StatusOr<WorkerProcess> WorkerProcess::Fork(WorkerId worker, const Spawn& spawn) {
  int pair[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make worker ", worker.value, "'s socket: ", std::strerror(errno)));
  }
  UniqueFd parents(pair[0]);
  UniqueFd childs(pair[1]);
  FlushOutput();  // or the child would write it once more
  const OomCounter before = FindOomCounter();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start worker ", worker.value, "'s process: ", std::strerror(errno)));
  }
  if (pid == 0) {
    SetUpChild(worker, parent, spawn.signal_mask);
    parents.Reset();
    RunChild(spawn, childs.get());
  }
  return WorkerProcess(worker, pid, std::move(parents), before);
}

WorkerProcess::WorkerProcess(WorkerId worker, pid_t pid, UniqueFd socket, OomCounter oom)
    : worker_(worker), pid_(pid), oom_(std::move(oom)), socket_(std::move(socket)) {}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : worker_(other.worker_),
      pid_(std::exchange(other.pid_, -1)),
      oom_(std::move(other.oom_)),
      stop_(other.stop_),
      end_(std::move(other.end_)),
      socket_(std::move(other.socket_)),
      arrived_(std::move(other.arrived_)) {}

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
  const int64_t kills = OomKillsIn(oom_.file) - oom_.kills;
  if (kills <= 0) return "";
  return absl::StrCat(": out of memory, says the kernel (oom_kill in ", oom_.file, " rose by ",
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
