// The launching process's loop: records, signals, deaths, deadlines; which failure was the first
// cause. Also a worker's side, in a process that this program or an outside launcher launched.
#include "p2p/launch/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <deque>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status.h"
#include "base/system_names.h"
#include "p2p/awake_clock.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"
#include "p2p/launch/limits.h"
#include "p2p/random_bytes.h"
#include "p2p/unique_fd.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

// timeout(1) sends its signal to the process and to the process' group. The two count as one.
constexpr std::chrono::milliseconds kOneSignal(200);

constexpr std::chrono::seconds kPatience(1);  // from SIGTERM to SIGKILL

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

  absl::Status Start(const WorkerBody& body);
  absl::StatusOr<std::vector<std::string>> Run();

 private:
  struct Worker {
    explicit Worker(WorkerId id) : process(id) {}

    WorkerProcess process;
    std::optional<std::string> result;
    bool told = false;  // it has told a failure of its own
    int stops = 0;      // so far
    std::optional<Deadline> stop_limit;
    bool lost = false;  // its stop took too long, and is among the failures
  };
  struct Failure {
    absl::Status status;  // names its worker, unless that is alone or the status is an echo
    bool killed = false;  // by SIGKILL, from outside
  };
  enum class Phase { kRunning, kInterrupted, kGrace, kTerminated, kKilled };

  bool AnyAlive() const;
  std::string NameOf(const Worker& worker) const {
    return options_.alone.empty() ? absl::StrCat("worker ", worker.process.worker().value)
                                  : options_.alone;
  }
  void Wait();
  void ReadRecords(Worker& worker);
  void ReadSignals();
  void Reap(Worker& worker);
  void Fail(Worker& worker, const absl::Status& status, bool killed = false);
  void Enter(Phase phase);
  void CheckStopped(Worker& worker);
  void Lose(Worker& worker);
  absl::Status Cause() const;

  const LaunchOptions& options_;
  SignalScope& signals_;
  std::deque<Worker> workers_;
  std::vector<Failure> failures_;  // in order of time
  int interrupted_by_ = 0;
  Clock::time_point interrupted_at_;
  Phase phase_ = Phase::kRunning;
  std::optional<Deadline> deadline_;  // of the phase
};

absl::Status Launch::Start(const WorkerBody& body) {
  RZ_ASSIGN_OR_RETURN(std::vector<ShmEndpoint> endpoints, MakeShmEndpoints(options_.workers));
  RZ_ASSIGN_OR_RETURN(const std::string secret, RandomBytes(kSecretBytes));
  const UniqueFd log(memfd_create("ringzero-rendezvous", MFD_CLOEXEC));  // of MakeLaunchRendezvous
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
    WorkerProcess& process = workers_.emplace_back(WorkerId(w)).process;
    RZ_RETURN_IF_ERROR(process.Fork(signals_.previous_mask(), run));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Launch::Run() {
  while (AnyAlive()) {
    Wait();
    for (Worker& worker : workers_) ReadRecords(worker);
    ReadSignals();
    for (Worker& worker : workers_) Reap(worker);
    for (Worker& worker : workers_) CheckStopped(worker);
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

bool Launch::AnyAlive() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.process.alive(); });
}

void Launch::Wait() {
  std::vector<pollfd> files = {{signals_.descriptor(), POLLIN, 0}};
  for (const Worker& worker : workers_) {
    const int socket = worker.process.socket();
    if (socket >= 0) files.push_back({socket, POLLIN, 0});
  }
  poll(files.data(), files.size(), static_cast<int>(kAwakeLook.count()));
}

void Launch::ReadRecords(Worker& worker) {
  std::vector<Record> records;
  worker.process.ReadRecords(records);
  for (Record& record : records) {
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

void Launch::ReadSignals() {
  while (const int signal = signals_.Next()) {
    if (signal == SIGCHLD) continue;  // every child is asked anyway
    const std::vector<int>& pass_on = options_.pass_on;
    if (std::find(pass_on.begin(), pass_on.end(), signal) != pass_on.end()) {
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

void Launch::Reap(Worker& worker) {
  const std::optional<WorkerProcess::End> end = worker.process.Reap();
  if (!end.has_value()) return;
  ReadRecords(worker);  // the last it said
  const bool killed = end->signal == SIGKILL;
  const bool ended_by_us = (end->signal == SIGTERM || killed) && phase_ >= Phase::kTerminated;
  if (worker.result.has_value() || ended_by_us || worker.lost || (worker.told && !killed)) return;
  const char* const rest = end->signal == 0 ? " and without a result" : "";
  Fail(worker, Unavailable(NameOf(worker), " ", end->words, rest), killed);
}

void Launch::Fail(Worker& worker, const absl::Status& status, bool killed) {
  // A peer may be first to miss a silent worker. We know more of it: perhaps it is stopped.
  const std::optional<WorkerId> silent = SilentWorker(status);
  if (silent.has_value() && silent->value < options_.workers) Lose(workers_[silent->value]);
  worker.told = true;
  failures_.push_back({status, killed});
  Enter(Phase::kGrace);
}

void Launch::CheckStopped(Worker& worker) {
  const WorkerProcess::Stop stopped = worker.process.Stopped();
  if (stopped.signal == 0) return;
  if (std::exchange(worker.stops, stopped.count) != stopped.count) {
    worker.stop_limit.emplace(options_.peer_timeout);
  }
  if (worker.stop_limit->over()) Lose(worker);
}

// If the worker is stopped: its stop is a failure, and it could not end by itself.
void Launch::Lose(Worker& worker) {
  const int signal = worker.process.Stopped().signal;
  if (signal == 0 || std::exchange(worker.lost, true)) return;
  const double seconds = std::chrono::duration<double>(options_.peer_timeout).count();
  worker.told = true;
  failures_.push_back({Unavailable(NameOf(worker), " was stopped by signal ", signal, " (",
                                   strsignal(signal), "); peer_timeout is ", seconds, " s")});
  worker.process.Signal(SIGKILL);
  Enter(Phase::kGrace);
}

void Launch::Enter(Phase phase) {
  if (phase <= phase_) return;
  phase_ = phase;
  if (phase == Phase::kGrace) {
    deadline_.emplace(options_.grace);
    return;
  }
  const bool kill = phase == Phase::kKilled;
  const bool ask = phase == Phase::kInterrupted;
  for (Worker& worker : workers_) {
    const bool stopped = worker.process.Stopped().signal != 0;
    worker.process.Signal(kill || stopped ? SIGKILL : ask ? options_.interrupt.signal : SIGTERM);
  }
  deadline_.reset();
  if (!kill) deadline_.emplace(ask ? options_.interrupt.patience : kPatience);
}

absl::Status Launch::Cause() const {
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

absl::Status CheckOneThread() {
#if !defined(__SANITIZE_THREAD__)  // ThreadSanitizer has a thread of its own
  using Entries = std::filesystem::directory_iterator;
  std::error_code unknown;
  const auto threads = std::distance(Entries("/proc/self/task", unknown), Entries());
  if (threads > 1) {
    return FailedPrecondition("processes must be launched before threads are started: ", threads,
                              " run already");
  }
#endif
  return absl::OkStatus();
}

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
  if (options.workers < 1) {
    return InvalidArgument(options.workers, " workers; at least 1 is needed");
  }
  RZ_RETURN_IF_ERROR(CheckOneThread());
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
