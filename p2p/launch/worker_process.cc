// fork, what a child sets up before its body runs, and waitpid.
#include "p2p/launch/worker_process.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

constexpr int kFailedExitCode = 1;

// A terminal's Ctrl-C goes to the whole group: there the launching process alone decides, and then
// sends SIGTERM. If it vanishes, so do we.
void SetUpChild(pid_t parent, const sigset_t& mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kFailedExitCode);
  signal(SIGINT, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  signal(SIGCHLD, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
}

void FlushOutput() {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
}

[[noreturn]] void RunChild(const WorkerProcess::Spawn& spawn, int socket) {
  RecordWriter records(socket);
  absl::StatusOr<std::string> result = spawn.body({socket, records});
  Record last;
  last.type = result.ok() ? Record::Type::kResult : Record::Type::kFailure;
  last.code = static_cast<int32_t>(result.status().code());
  last.text = result.ok() ? *std::move(result) : std::string(result.status().message());
  FlushOutput();
  const bool told = records.Finish(last).ok();
  // Not exit: the parent's handlers and static objects are not ours to run.
  _exit(told && last.type == Record::Type::kResult ? 0 : kFailedExitCode);
}

}  // namespace

absl::StatusOr<WorkerProcess> WorkerProcess::Fork(WorkerId worker, const Spawn& spawn) {
  int pair[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make worker ", worker.value, "'s socket: ", std::strerror(errno)));
  }
  UniqueFd parents(pair[0]);
  UniqueFd childs(pair[1]);
  FlushOutput();  // or the child would write it once more
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start worker ", worker.value, "'s process: ", std::strerror(errno)));
  }
  if (pid == 0) {
    SetUpChild(parent, spawn.signal_mask);
    parents.Reset();
    RunChild(spawn, childs.get());
  }
  return WorkerProcess(worker, pid, std::move(parents));
}

WorkerProcess::WorkerProcess(WorkerId worker, pid_t pid, UniqueFd socket)
    : worker_(worker), pid_(pid), socket_(std::move(socket)), answers_(socket_.get()) {}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : worker_(other.worker_),
      pid_(std::exchange(other.pid_, -1)),
      stop_(other.stop_),
      end_(std::move(other.end_)),
      socket_(std::move(other.socket_)),
      reader_(std::move(other.reader_)),
      answers_(std::move(other.answers_)) {}

WorkerProcess::~WorkerProcess() {
  if (pid_ <= 0) return;
  Signal(SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void WorkerProcess::ReadRecords(std::vector<Record>& records) {
  if (!socket_) return;
  if (reader_.Read(socket_.get(), records) == RecordReader::State::kClosed) socket_.Reset();
}

void WorkerProcess::Answer(const Record& record) {
  if (socket_) answers_.Write(record).IgnoreError();
}

void WorkerProcess::SendAnswers() {
  if (socket_) answers_.Flush().IgnoreError();
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
      end_ =
          End{signal, absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")")};
    } else {
      end_ = End{0, absl::StrCat("exited with code ", WEXITSTATUS(status))};
    }
  }
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
