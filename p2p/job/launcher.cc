// The launching process' side: a forked child for each worker, the records that the child sends,
// and the loop that takes records, signals, deaths and deadlines and finds the first cause. Also a
// worker's side, in a process that this program or an outside launcher launched.
#include "p2p/job/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <deque>
#include <fstream>
#include <iostream>
#include <iterator>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/crypto.h"
#include "base/files.h"
#include "base/status.h"
#include "base/system_names.h"
#include "base/texts.h"
#include "base/unique_fd.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"
#include "p2p/job/limits.h"

namespace ringzero {

struct Record {
  enum class Type {
    kReport = 1,  // kind and text, while it runs
    kResult,      // text: the body's value; the last record
    kFailure,     // an error: kind is its code in digits; the body goes on to its end
  };
  Type type = Type::kReport;
  std::string kind;
  std::string text;
};

// Sends records of any size over a stream socket. Not thread-safe.
class RecordWriter {
 public:
  explicit RecordWriter(int socket) : socket_(socket) {}

  // Does not block: a reader that does not read (it is stopped, or its terminal is) holds up no
  // writer. ResourceExhausted, and the record is dropped, if more than kMaxWaitingBytes wait
  // already; Unavailable if the reader is gone.
  absl::Status Write(const Record& record) {
    RZ_RETURN_IF_ERROR(Send(MSG_DONTWAIT));
    if (waiting_.size() > kMaxWaitingBytes) {
      return absl::ResourceExhaustedError("the launching process does not read its reports");
    }
    waiting_ += ToText(record);
    return Send(MSG_DONTWAIT);
  }
  // Sends all that waits and the last record; blocks. Unavailable if the reader is gone.
  absl::Status Finish(const Record& record) {
    waiting_ += ToText(record);
    return Send(0);
  }

 private:
  static constexpr size_t kMaxWaitingBytes = 1 << 20;

  static std::string ToText(const Record& record) {
    return JoinTexts({absl::StrCat(static_cast<int>(record.type)), record.kind, record.text});
  }

  // Until nothing waits or, not blocking, the socket is full.
  absl::Status Send(int flags) {
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

  const int socket_;
  std::string waiting_;
};

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFailedExitCode = 1;

// timeout(1) sends its signal to the process and to the process' group. The two count as one.
constexpr std::chrono::milliseconds kOneSignal(200);

constexpr std::chrono::seconds kPatience(1);  // from SIGTERM to SIGKILL

Record FailureRecord(const absl::Status& why) {
  return {Record::Type::kFailure, absl::StrCat(why.raw_code()), std::string(why.message())};
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

// How many processes of a control group the kernel has ended for lack of memory: the line
// "oom_kill N" of `file`, -1 without one.
int64_t OomKillsIn(const std::string& file) {
  int64_t kills = 0;
  return absl::SimpleAtoi(FieldOfFile(file, "oom_kill"), &kills) ? kills : -1;
}

// The nearest counter there is: of the groups around this process, or of the whole machine.
std::string FindOomCounter() {
  for (const Cgroup& group : CgroupsOfThisProcess("memory")) {
    std::string file =
        absl::StrCat(group.folder, group.unified ? "/memory.events" : "/memory.oom_control");
    if (OomKillsIn(file) >= 0) return file;
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

// Runs in the child. What it returns becomes the last record. A body first closes everything that
// the child must not keep open.
using ChildBody = std::function<absl::StatusOr<std::string>(RecordWriter& records)>;

absl::StatusOr<std::string> RunBody(const ChildBody& body, RecordWriter& records) {
  try {
    return body(records);
  } catch (const std::system_error& error) {
    return FromSystemError(error);
  } catch (const std::bad_alloc& error) {
    return OutOfMemory(error.what());
  }
}

[[noreturn]] void RunChild(const ChildBody& body, int socket) {
  RecordWriter records(socket);
  const absl::StatusOr<std::string> result = RunBody(body, records);
  FlushOutput();
  const Record last =
      result.ok() ? Record{Record::Type::kResult, "", *result} : FailureRecord(result.status());
  const bool told = records.Finish(last).ok();
  // Not exit: the parent's handlers and static objects are not ours to run.
  _exit(told && result.ok() ? 0 : kFailedExitCode);
}

// One forked child that runs a body and reports; ended and reaped by its owner.
class WorkerProcess {
 public:
  // `stop_limit`: how long the child may be stopped.
  WorkerProcess(WorkerId worker, std::chrono::milliseconds stop_limit)
      : worker_(worker), stop_limit_(stop_limit) {}
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  // Kills (SIGKILL) and reaps the child if it still lives.
  ~WorkerProcess() {
    if (pid_ <= 0) return;
    Signal(SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  // Once, before anything else. `signal_mask`: the child's. ResourceExhausted when the system
  // refuses.
  absl::Status Fork(const sigset_t& signal_mask, const ChildBody& body) {
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

  WorkerId worker() const { return worker_; }
  // For poll; -1 once it is closed.
  int socket() const { return socket_.get(); }
  // True until Reap has said how the child ended.
  bool alive() const { return pid_ > 0 || end_.has_value(); }

  // The records that have completely arrived; does not block.
  std::vector<Record> ReadRecords() {
    std::array<char, 65536> chunk;
    while (socket_) {
      const ssize_t got = recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (got <= 0) socket_.Reset();
      if (got > 0) arrived_.append(chunk.data(), static_cast<size_t>(got));
    }
    std::vector<Record> records;
    absl::string_view rest = arrived_;
    while (std::optional<Record> record = TakeRecord(rest)) records.push_back(*std::move(record));
    arrived_.erase(0, arrived_.size() - rest.size());
    return records;
  }

  // How the child ended, once, as soon as it has: "was killed by signal 9 (Killed)", "exited with
  // code 3". ": out of memory, says the kernel (…)" is added if its counter rose since the fork.
  struct End {
    int signal = 0;
    std::string words;
  };
  std::optional<End> Reap() {
    AskSystem();
    return std::exchange(end_, std::nullopt);
  }

  // Nothing, unless the child is stopped now.
  struct Stop {
    int signal = 0;  // SIGSTOP, SIGTSTP, …
    Deadline limit;
  };
  const std::optional<Stop>& Stopped() {
    AskSystem();
    return stop_;
  }

  void Signal(int signal) {
    if (pid_ > 0) kill(pid_, signal);
  }
  // In another child: closes what belongs to the parent, and leaves the process alone.
  void Abandon() {
    pid_ = -1;
    end_.reset();
    socket_.Reset();
  }

 private:
  void AskSystem() {
    while (pid_ > 0) {
      int status = 0;
      const pid_t changed = waitpid(pid_, &status, WNOHANG | WUNTRACED | WCONTINUED);
      if (changed < 0 && errno == EINTR) continue;
      if (changed == 0) return;
      if (changed > 0 && WIFSTOPPED(status)) {
        stop_ = {WSTOPSIG(status), Deadline(stop_limit_)};
        continue;
      }
      stop_.reset();
      if (changed > 0 && WIFCONTINUED(status)) continue;
      pid_ = -1;
      if (changed < 0) {
        end_ = End{0, "was reaped by somebody else"};
      } else if (WIFSIGNALED(status)) {
        const int signal = WTERMSIG(status);
        end_ = End{signal, absl::StrCat("was killed by signal ", signal, " (", strsignal(signal),
                                        ")", signal == SIGKILL ? OomWords() : "")};
      } else {
        end_ = End{0, absl::StrCat("exited with code ", WEXITSTATUS(status))};
      }
    }
  }

  std::string OomWords() const {
    const int64_t kills = OomKillsIn(oom_file_) - oom_kills_;
    if (kills <= 0) return "";
    return absl::StrCat(": out of memory, says the kernel (oom_kill in ", oom_file_, " rose by ",
                        kills, ")");
  }

  const WorkerId worker_;
  pid_t pid_ = -1;          // -1: not forked yet, or reaped
  std::string oom_file_;    // where the kernel counts the processes it has ended for lack of memory
  int64_t oom_kills_ = -1;  // its count at the fork
  const std::chrono::milliseconds stop_limit_;
  std::optional<Stop> stop_;
  std::optional<End> end_;
  UniqueFd socket_;
  std::string arrived_;  // the first part of a record
};

// Whether `signal` is ignored, as somebody (nohup) has asked for before this program began.
bool IsIgnored(int signal) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

// While this lives, signals come through a descriptor: SIGINT, SIGTERM, SIGCHLD, the signals to
// pass on, and SIGHUP unless it is ignored.
class SignalScope {
 public:
  explicit SignalScope(const std::vector<int>& pass_on) {
    struct sigaction child_action = {};
    child_action.sa_handler = SIG_DFL;  // ignored, children would vanish without a status
    sigaction(SIGCHLD, &child_action, &previous_child_action_);
    sigset_t mask;
    sigemptyset(&mask);
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&mask, signal);
    if (!IsIgnored(SIGHUP)) sigaddset(&mask, SIGHUP);
    for (const int signal : pass_on) sigaddset(&mask, signal);
    sigprocmask(SIG_BLOCK, &mask, &previous_mask_);
    descriptor_ = UniqueFd(signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC));
  }
  ~SignalScope() {
    // Signals that still pend are delivered as if this object had not been here.
    sigaction(SIGCHLD, &previous_child_action_, nullptr);
    sigprocmask(SIG_SETMASK, &previous_mask_, nullptr);
  }

  int descriptor() const { return descriptor_.get(); }  // -1: it cannot be made (errno)
  const sigset_t& previous_mask() const { return previous_mask_; }
  // The next signal that came, or 0.
  int Next() {
    signalfd_siginfo info = {};
    const ssize_t got = read(descriptor_.get(), &info, sizeof(info));
    return got == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }
  void Close() { descriptor_.Reset(); }  // in a child

 private:
  sigset_t previous_mask_;
  struct sigaction previous_child_action_;
  UniqueFd descriptor_;
};

class Launch {
 public:
  Launch(const LaunchOptions& options, SignalScope& signals)
      : options_(options), signals_(signals) {}

  absl::Status Start(const WorkerBody& body) {
    RZ_ASSIGN_OR_RETURN(std::vector<ShmEndpoint> endpoints, MakeShmEndpoints(options_.workers));
    const std::string secret = RandomBytes(kSecretBytes);
    const UniqueFd log(memfd_create("ringzero-rendezvous", MFD_CLOEXEC));
    if (!log) return SystemError("cannot make a memory file");
    for (int w = 0; w < options_.workers; ++w) {
      const auto run = [&, w](RecordWriter& records) {
        WorkerContext context({.self = WorkerId(w),
                               .workers = options_.workers,
                               .secret = secret,
                               .rendezvous = MakeLaunchRendezvous(log)},
                              std::move(endpoints[w]), records);
        // Closes what belongs to other workers: otherwise their deaths would not be seen.
        endpoints.clear();
        for (Worker& other : workers_) other.process.Abandon();
        signals_.Close();
        return body(context);
      };
      WorkerProcess& process = workers_.emplace_back(WorkerId(w), options_.peer_timeout).process;
      RZ_RETURN_IF_ERROR(process.Fork(signals_.previous_mask(), run));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> Run() {
    while (std::ranges::any_of(workers_, &WorkerProcess::alive, &Worker::process)) {
      Wait();
      for (Worker& worker : workers_) ReadRecords(worker);
      ReadSignals();
      for (Worker& worker : workers_) Reap(worker);
      for (Worker& worker : workers_) {
        if (const auto& stop = worker.process.Stopped(); stop && stop->limit.over()) Lose(worker);
      }
      if (deadline_.has_value() && deadline_->over()) {
        Enter(phase_ == Phase::kTerminated ? Phase::kKilled : Phase::kTerminated);
      }
    }
    if (interrupted_by_ == 0) RZ_RETURN_IF_ERROR(Cause());
    std::vector<std::string> results;
    for (Worker& worker : workers_) {
      if (worker.result.has_value()) results.push_back(*std::move(worker.result));
    }
    const bool early = options_.interrupt.signal != 0 && results.size() == workers_.size();
    if (interrupted_by_ != 0 && !early) return InterruptedBy(interrupted_by_);
    return results;
  }

 private:
  struct Worker {
    Worker(WorkerId id, std::chrono::milliseconds stop_limit) : process(id, stop_limit) {}

    WorkerProcess process;
    std::optional<std::string> result;
    bool told = false;  // it has told a failure of its own
    bool lost = false;  // its stop took too long, and is among the failures
  };
  struct Failure {
    absl::Status status;  // names its worker, unless that is alone or the status is an echo
    bool killed = false;  // by SIGKILL, from outside
  };
  enum class Phase { kRunning, kInterrupted, kGrace, kTerminated, kKilled };

  std::string NameOf(const Worker& worker) const {
    return options_.alone.empty() ? absl::StrCat("worker ", worker.process.worker().value)
                                  : options_.alone;
  }

  void Wait() {
    std::vector<pollfd> files = {{signals_.descriptor(), POLLIN, 0}};
    for (const Worker& worker : workers_) {
      const int socket = worker.process.socket();
      if (socket >= 0) files.push_back({socket, POLLIN, 0});
    }
    poll(files.data(), files.size(), static_cast<int>(kAwakeLook.count()));
  }

  void ReadRecords(Worker& worker) {
    for (Record& record : worker.process.ReadRecords()) {
      switch (record.type) {
        case Record::Type::kReport:
          if (options_.on_report) {
            options_.on_report(worker.process.worker(), record.kind, record.text);
          }
          break;
        case Record::Type::kResult: worker.result = std::move(record.text); break;
        case Record::Type::kFailure:
          int code = 0;
          RZ_CHECK(absl::SimpleAtoi(record.kind, &code), record.kind);
          const absl::Status why(static_cast<absl::StatusCode>(code), record.text);
          Fail(worker, options_.alone.empty() ? ReportedBy(worker.process.worker(), why) : why);
          break;
      }
    }
  }

  void ReadSignals() {
    while (const int signal = signals_.Next()) {
      if (signal == SIGCHLD) continue;  // every child is asked anyway
      if (std::ranges::count(options_.pass_on, signal) > 0) {
        for (Worker& worker : workers_) worker.process.Signal(signal);
        continue;
      }
      if (interrupted_by_ != 0) {
        // A second signal means: now.
        if (Clock::now() - interrupted_at_ > kOneSignal) Enter(Phase::kKilled);
        continue;
      }
      interrupted_by_ = signal;
      interrupted_at_ = Clock::now();
      if (options_.interrupt.by != nullptr) *options_.interrupt.by = signal;
      const bool ask = options_.interrupt.signal != 0 && phase_ == Phase::kRunning;
      Enter(ask ? Phase::kInterrupted : Phase::kTerminated);
    }
  }

  void Reap(Worker& worker) {
    const std::optional<WorkerProcess::End> end = worker.process.Reap();
    if (!end.has_value()) return;
    ReadRecords(worker);  // the last it said
    const bool killed = end->signal == SIGKILL;
    const bool ended_by_us = (end->signal == SIGTERM || killed) && phase_ >= Phase::kTerminated;
    if (worker.result.has_value() || ended_by_us || worker.lost || (worker.told && !killed)) return;
    const char* const rest = end->signal == 0 ? " and without a result" : "";
    Fail(worker, Unavailable(NameOf(worker), " ", end->words, rest), killed);
  }

  void Fail(Worker& worker, const absl::Status& status, bool killed = false) {
    // A peer may be first to miss a silent worker. We know more of it: perhaps it is stopped.
    const std::optional<WorkerId> silent = SilentWorker(status);
    if (silent.has_value() && silent->value < options_.workers) Lose(workers_[silent->value]);
    worker.told = true;
    failures_.push_back({status, killed});
    Enter(Phase::kGrace);
  }

  // If the worker is stopped: its stop is a failure, and it could not end by itself.
  void Lose(Worker& worker) {
    const std::optional<WorkerProcess::Stop> stop = worker.process.Stopped();
    if (!stop.has_value() || std::exchange(worker.lost, true)) return;
    const double seconds = std::chrono::duration<double>(options_.peer_timeout).count();
    worker.told = true;
    failures_.push_back(
        {Unavailable(NameOf(worker), " was stopped by signal ", stop->signal, " (",
                     strsignal(stop->signal), "); peer_timeout is ", seconds, " s")});
    worker.process.Signal(SIGKILL);
    Enter(Phase::kGrace);
  }

  void Enter(Phase phase) {
    if (phase <= phase_) return;
    phase_ = phase;
    if (phase == Phase::kGrace) {
      deadline_.emplace(options_.grace);
      return;
    }
    const bool kill = phase == Phase::kKilled;
    const bool ask = phase == Phase::kInterrupted;
    for (Worker& worker : workers_) {
      const bool stopped = worker.process.Stopped().has_value();
      worker.process.Signal(kill || stopped ? SIGKILL : ask ? options_.interrupt.signal : SIGTERM);
    }
    deadline_.reset();
    if (!kill) deadline_.emplace(ask ? options_.interrupt.patience : kPatience);
  }

  absl::Status Cause() const {
    std::vector<absl::string_view> killed;
    for (const Failure& failure : failures_) {
      if (failure.killed) killed.push_back(failure.status.message());
    }
    for (const Failure& failure : failures_) {
      if (IsEcho(failure.status)) continue;
      // No worker dies by SIGKILL because another did: each such death is a cause.
      return failure.killed ? absl::UnavailableError(absl::StrJoin(killed, "; ")) : failure.status;
    }
    // The worker where the failure began did not come to report; the echo still names that worker.
    return failures_.empty() ? absl::OkStatus() : CauseOf(failures_.front().status);
  }

  const LaunchOptions& options_;
  SignalScope& signals_;
  std::deque<Worker> workers_;
  std::vector<Failure> failures_;  // in order of time
  int interrupted_by_ = 0;
  Clock::time_point interrupted_at_;
  Phase phase_ = Phase::kRunning;
  std::optional<Deadline> deadline_;  // of the phase
};

}  // namespace

absl::Status InterruptedBy(int signal) {
  return absl::CancelledError(
      absl::StrCat("interrupted by signal ", signal, " (", strsignal(signal), ")"));
}

// While this lives, handles SIGINT, SIGTERM and SIGHUP of a worker in a seat. The first signal asks
// the worker by `ask_` to end early, as our own launcher asks its workers. A second signal ends the
// process. Within a second of the first it counts as the same signal: a terminal and torchrun both
// send theirs. A signal ignored before (nohup) stays ignored.
class WorkerContext::SeatSignals {
 public:
  explicit SeatSignals(const LaunchOptions::Interrupt& interrupt) : by_(interrupt.by) {
    ask_ = interrupt.signal;
    first_ = 0;
    first_ms_ = 0;
    struct sigaction action {};
    action.sa_handler = &Hear;
    action.sa_flags = SA_RESTART;
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~SeatSignals() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    if (by_ != nullptr) *by_ = first_;
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

  // Does only what a signal handler may do.
  static void Hear(int signal) {
    timespec clock{};
    clock_gettime(CLOCK_MONOTONIC, &clock);
    const int64_t now = int64_t{1000} * clock.tv_sec + clock.tv_nsec / 1000000;
    int64_t earlier = 0;
    if (first_ms_.compare_exchange_strong(earlier, now)) {
      first_ = signal;
      kill(getpid(), ask_);
    } else if (now - earlier > 1000) {
      std::signal(signal, SIG_DFL);
      raise(signal);  // comes when this handler has returned
    }
  }

  static inline std::atomic<int> ask_ = 0, first_ = 0;
  static inline std::atomic<int64_t> first_ms_ = 0;  // when first_ came; 0: none has come
  int* const by_;
  struct sigaction before_[std::size(kSignals)] = {};
};

WorkerContext::WorkerContext(JobSeat seat, ShmEndpoint endpoint, RecordWriter& records)
    : seat_(std::move(seat)), endpoint_(std::move(endpoint)), records_(&records) {}

WorkerContext::WorkerContext(JobSeat seat, const LaunchOptions& options)
    : seat_(std::move(seat)), options_(&options) {}

WorkerContext::~WorkerContext() = default;

std::function<ShmEndpoint()> WorkerContext::EndpointTaker() {
  if (!launched()) return nullptr;
  return [this] { return std::move(endpoint_); };
}

absl::Status WorkerContext::Agree(const absl::StatusOr<std::vector<AgreementSection>>& statement) {
  if (launched()) return statement.status();
  if (!statement.ok()) {
    Disagree(seat_, statement.status());
    return statement.status();
  }
  RZ_RETURN_IF_ERROR(ringzero::Agree(seat_, *statement));
  agreed_ = true;
  return absl::OkStatus();
}

absl::StatusOr<Connection> WorkerContext::Connect(ConnectRequest request) {
  request.take_endpoint = EndpointTaker();
  RZ_ASSIGN_OR_RETURN(Connection made, ringzero::Connect(seat_, request));
  HearSignals();
  return made;
}

void WorkerContext::StayAlone() {
  seat_.rendezvous->Leave(absl::OkStatus());
  HearSignals();
}

void WorkerContext::HearSignals() {
  if (launched() || options_->interrupt.signal == 0) return;
  signals_ = std::make_unique<SeatSignals>(options_->interrupt);
}

absl::Status WorkerContext::Report(const std::string& kind, const std::string& text) {
  if (launched()) return Write({Record::Type::kReport, kind, text});
  const MutexLock lock(mutex_);  // on_report need not be thread-safe
  if (options_->on_report) options_->on_report(self(), kind, text);
  return absl::OkStatus();
}

absl::Status WorkerContext::Fail(const absl::Status& why) {
  return launched() ? Write(FailureRecord(why)) : absl::OkStatus();
}

absl::Status WorkerContext::Write(const Record& record) {
  const MutexLock lock(mutex_);
  return records_->Write(record);
}

absl::StatusOr<std::vector<std::string>> LaunchProcesses(const LaunchOptions& options,
                                                         const WorkerBody& body) {
  RZ_RETURN_IF_ERROR(CheckLimits({.workers = options.workers, .tasks = options.tasks}));
  SignalScope signals(options.pass_on);
  if (signals.descriptor() < 0) return SystemError("cannot make a signalfd");
  Launch launch(options, signals);
  RZ_RETURN_IF_ERROR(launch.Start(body));
  return launch.Run();
}

SeatedWorker::SeatedWorker(JobSeat seat, LaunchOptions options)
    : seat_(std::move(seat)),
      options_(std::move(options)),
      context_(std::make_unique<WorkerContext>(seat_, options_)) {}

absl::StatusOr<std::vector<std::string>> SeatedWorker::Close(
    const absl::StatusOr<std::string>& mine) {
  const bool agreed = context_->agreed();
  context_.reset();  // from here on no signal asks for an early end
  if (!agreed) {     // no other worker waits for this worker's result
    RZ_RETURN_IF_ERROR(mine.status());
    return std::vector<std::string>{*mine};
  }
  const auto limit =
      std::max<std::chrono::milliseconds>(2 * options_.peer_timeout, std::chrono::seconds(10));
  absl::StatusOr<std::vector<std::string>> all = ShareResults(seat_, mine, limit);
  if (all.ok()) return all;
  const absl::Status cause = CauseOf(all.status());
  if (SilentWorker(cause) != seat_.self) return cause;
  // The connection between the two workers is broken.
  return Annotate(cause, "another worker heard nothing of this one, though it lives");
}

absl::StatusOr<std::vector<std::string>> RunJob(const JobOptions& options, const WorkerBody& body) {
  if (!options.seat.has_value()) return LaunchProcesses(options.launch, body);
  SeatedWorker worker(*options.seat, options.launch);
  return worker.Close(body(worker.context()));
}

absl::StatusOr<std::vector<std::string>> RunThreads(
    int workers, const std::function<absl::StatusOr<std::string>(WorkerId)>& body) {
  std::vector<absl::StatusOr<std::string>> results(workers, absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.push_back(NamedThread(absl::StrCat("rz-compute ", w),
                                  [&results, &body, w] { results[w] = body(WorkerId(w)); }));
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> values;
  absl::Status echo;
  for (int w = 0; w < workers; ++w) {
    const absl::Status status = results[w].status();
    if (!status.ok() && !IsEcho(status)) return ReportedBy(WorkerId(w), status);
    if (status.ok()) values.push_back(*std::move(results[w]));
    if (echo.ok()) echo = CauseOf(status);
  }
  if (!echo.ok()) return echo;
  return values;
}

}  // namespace ringzero
