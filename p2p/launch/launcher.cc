// The parent's loop: records, signals, deaths, deadlines; and which failure was the first cause.
// And a worker's side, in a process that this one has launched, and in one that others have.
#include "p2p/launch/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
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

// timeout(1) sends its signal to the process and to the process' group: that is one, not a second.
constexpr std::chrono::milliseconds kOneSignal(200);

// Whether somebody (nohup) has asked for it before this program began.
bool IsIgnored(int signal) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

// SIGINT, SIGTERM, SIGHUP unless it is ignored, SIGCHLD and what is passed on come through a
// descriptor while this lives.
class SignalScope {
 public:
  static absl::StatusOr<std::unique_ptr<SignalScope>> Create(const std::vector<int>& pass_on) {
    std::unique_ptr<SignalScope> scope(new SignalScope(pass_on));
    if (!scope->descriptor_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot make a signalfd: ", std::strerror(errno)));
    }
    return scope;
  }
  ~SignalScope() {
    // What still pends is delivered as if we had not been here.
    sigaction(SIGCHLD, &previous_child_action_, nullptr);
    sigprocmask(SIG_SETMASK, &previous_mask_, nullptr);
  }

  int descriptor() const { return descriptor_.get(); }
  const sigset_t& previous_mask() const { return previous_mask_; }
  // The next one that came, or 0.
  int Next() {
    signalfd_siginfo info = {};
    const ssize_t got = read(descriptor_.get(), &info, sizeof(info));
    return got == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }
  void Close() { descriptor_.Reset(); }  // in a child

 private:
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

  sigset_t previous_mask_;
  struct sigaction previous_child_action_;
  UniqueFd descriptor_;
};

// Of MakeLaunchRendezvous.
absl::StatusOr<UniqueFd> MakeLog() {
  UniqueFd log(memfd_create("ringzero-rendezvous", MFD_CLOEXEC));
  if (!log) return SystemError("cannot make a memory file");
  return log;
}

class Launch {
 public:
  Launch(const LaunchOptions& options, SignalScope& signals)
      : options_(options),
        signals_(signals),
        awake_(Clock::now(), options.peer_timeout / 5),
        stops_(options.workers),
        results_(options.workers) {}

  absl::Status Start(const WorkerBody& body);
  absl::StatusOr<std::vector<std::string>> Run();

 private:
  struct Failure {
    WorkerId worker;
    absl::Status status;  // names its worker, or is an echo
    bool killed = false;  // by SIGKILL, from outside
  };
  struct Stop {
    int count = 0;            // which of the worker's stops
    Clock::time_point since;  // awake time
    bool lost = false;        // it took too long, and was said
  };
  enum class Phase { kRunning, kInterrupted, kGrace, kTerminated, kKilled };

  void Wait();
  void ReadRecords(WorkerProcess& child);
  void ReadSignals();
  void ReapAll();
  void Fail(const Failure& failure);
  void Enter(Phase phase);
  void CheckStopped();
  void Lose(WorkerProcess& child);
  void CheckDeadline();
  bool AnyAlive() const;
  absl::Status Cause() const;
  absl::Status AllKilled() const;

  const LaunchOptions& options_;
  SignalScope& signals_;
  std::vector<WorkerProcess> children_;
  AwakeClock awake_;
  std::vector<Stop> stops_;                                     // by worker
  Clock::time_point stop_deadline_ = Clock::time_point::max();  // when CheckStopped is due
  std::vector<std::optional<std::string>> results_;
  std::vector<Failure> failures_;  // in order of time
  int interrupted_by_ = 0;
  Clock::time_point interrupted_at_;
  Phase phase_ = Phase::kRunning;
  std::optional<Deadline> deadline_;  // of the phase
};

absl::Status Launch::Start(const WorkerBody& body) {
  RZ_ASSIGN_OR_RETURN(std::vector<ShmEndpoint> endpoints, MakeShmEndpoints(options_.workers));
  RZ_ASSIGN_OR_RETURN(const std::string secret, RandomBytes(kSecretBytes));
  RZ_ASSIGN_OR_RETURN(const UniqueFd log, MakeLog());
  children_.reserve(options_.workers);
  for (int w = 0; w < options_.workers; ++w) {
    const auto run = [&, w](RecordWriter& records) {
      WorkerContext context({.self = WorkerId(w),
                             .workers = options_.workers,
                             .secret = secret,
                             .rendezvous = MakeLaunchRendezvous(log)},
                            std::move(endpoints[w]), records);
      // What belongs to others is closed here, or their deaths would not be seen.
      endpoints.clear();
      for (WorkerProcess& other : children_) other.Abandon();
      signals_.Close();
      return body(context);
    };
    RZ_ASSIGN_OR_RETURN(WorkerProcess child,
                        WorkerProcess::Fork(WorkerId(w), {signals_.previous_mask(), run}));
    children_.push_back(std::move(child));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Launch::Run() {
  while (AnyAlive()) {
    Wait();
    for (WorkerProcess& child : children_) ReadRecords(child);
    ReadSignals();
    ReapAll();
    CheckStopped();
    CheckDeadline();
  }
  if (interrupted_by_ != 0) {
    const bool all = std::all_of(results_.begin(), results_.end(),
                                 [](const auto& result) { return result.has_value(); });
    if (options_.interrupt.signal == 0 || !all) return InterruptedBy(interrupted_by_);
  } else {
    RZ_RETURN_IF_ERROR(Cause());
  }
  std::vector<std::string> results;
  for (std::optional<std::string>& result : results_) results.push_back(*std::move(result));
  return results;
}

void Launch::Wait() {
  std::vector<pollfd> files = {{signals_.descriptor(), POLLIN, 0}};
  for (const WorkerProcess& child : children_) {
    if (child.socket() >= 0) files.push_back({child.socket(), POLLIN, 0});
  }
  int64_t limit = deadline_.has_value() ? deadline_->Look().count() : -1;
  if (stop_deadline_ != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(stop_deadline_ - Clock::now());
    limit = std::clamp<int64_t>(left.count(), 0, limit < 0 ? INT_MAX : limit);
  }
  poll(files.data(), files.size(), static_cast<int>(limit));
}

void Launch::ReadRecords(WorkerProcess& child) {
  std::vector<Record> records;
  child.ReadRecords(records);
  for (Record& record : records) {
    switch (record.type) {
      case Record::Type::kReport:
        if (options_.on_report) options_.on_report(child.worker(), record.kind, record.text);
        break;
      case Record::Type::kResult: results_[child.worker().value] = std::move(record.text); break;
      case Record::Type::kFailure:
        Fail({child.worker(),
              ReportedBy(child.worker(),
                         absl::Status(static_cast<absl::StatusCode>(record.code), record.text))});
        break;
    }
  }
}

void Launch::ReadSignals() {
  while (const int signal = signals_.Next()) {
    if (signal == SIGCHLD) continue;  // ReapAll asks every child anyway
    const std::vector<int>& pass_on = options_.pass_on;
    if (std::find(pass_on.begin(), pass_on.end(), signal) != pass_on.end()) {
      for (WorkerProcess& child : children_) child.Signal(signal);
      continue;
    }
    if (interrupted_by_ != 0) {
      // The second one means: now.
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

void Launch::ReapAll() {
  for (WorkerProcess& child : children_) {
    const std::optional<WorkerProcess::End> end = child.Reap();
    if (!end.has_value()) continue;
    ReadRecords(child);  // the last it said
    const bool ended_by_us =
        (end->signal == SIGTERM || end->signal == SIGKILL) && phase_ >= Phase::kTerminated;
    const int worker = child.worker().value;
    if (results_[worker].has_value() || ended_by_us || stops_[worker].lost) continue;
    const bool killed = end->signal == SIGKILL;
    const bool told = std::any_of(failures_.begin(), failures_.end(), [&](const Failure& failure) {
      return failure.worker.value == worker;
    });
    if (told && !killed) continue;
    const char* const rest = end->signal == 0 ? " and without a result" : "";
    Fail({child.worker(),
          absl::UnavailableError(absl::StrCat("worker ", worker, " ", end->words, rest)), killed});
  }
}

void Launch::Fail(const Failure& failure) {
  // Its peers may be first to miss a worker that we know more about.
  const std::optional<WorkerId> silent = SilentWorker(failure.status);
  if (silent.has_value() && silent->value < options_.workers) Lose(children_[silent->value]);
  failures_.push_back(failure);
  Enter(Phase::kGrace);
}

void Launch::CheckStopped() {
  const Clock::time_point now = Clock::now();
  const Clock::time_point awake = awake_.Tick(now);
  stop_deadline_ = Clock::time_point::max();
  for (WorkerProcess& child : children_) {
    Stop& stop = stops_[child.worker().value];
    const WorkerProcess::Stop stopped = child.Stopped();
    if (stopped.signal == 0 || stop.lost) continue;
    if (stop.count != stopped.count) {
      stop.count = stopped.count;
      stop.since = awake;
    }
    const Clock::duration left = options_.peer_timeout - (awake - stop.since);
    if (left <= Clock::duration::zero()) {
      Lose(child);
    } else {
      // Often enough for awake_ to see when we were stopped ourselves.
      const Clock::duration interval = options_.peer_timeout / 5;
      stop_deadline_ = std::min(stop_deadline_, now + std::min(left, interval));
    }
  }
}

// If it is stopped: that is a failure, and it could not end by itself.
void Launch::Lose(WorkerProcess& child) {
  const int signal = child.Stopped().signal;
  if (signal == 0 || std::exchange(stops_[child.worker().value].lost, true)) return;
  const double seconds = std::chrono::duration<double>(options_.peer_timeout).count();
  const std::string words =
      absl::StrCat("worker ", child.worker().value, " was stopped by signal ", signal, " (",
                   strsignal(signal), "); peer_timeout is ", seconds, " s");
  failures_.push_back({child.worker(), absl::UnavailableError(words)});
  child.Signal(SIGKILL);
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
  for (WorkerProcess& child : children_) {
    const bool stopped = child.Stopped().signal != 0;
    child.Signal(kill || stopped ? SIGKILL : ask ? options_.interrupt.signal : SIGTERM);
  }
  deadline_.reset();
  if (!kill) deadline_.emplace(ask ? options_.interrupt.patience : options_.patience);
}

void Launch::CheckDeadline() {
  if (!deadline_.has_value() || !deadline_->over()) return;
  Enter(phase_ == Phase::kTerminated ? Phase::kKilled : Phase::kTerminated);
}

bool Launch::AnyAlive() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const WorkerProcess& child) { return child.alive(); });
}

absl::Status Launch::Cause() const {
  if (failures_.empty()) return absl::OkStatus();
  for (const Failure& failure : failures_) {
    if (!IsEcho(failure.status)) return failure.killed ? AllKilled() : failure.status;
  }
  // The worker where it began did not come to report; the echo still names it.
  return CauseOf(failures_.front().status);
}

// No worker dies by SIGKILL because another did: each of them is a cause.
absl::Status Launch::AllKilled() const {
  std::vector<absl::string_view> words;
  for (const Failure& failure : failures_) {
    if (failure.killed) words.push_back(failure.status.message());
  }
  return absl::UnavailableError(absl::StrJoin(words, "; "));
}

absl::Status CheckOneThread() {
#if !defined(__SANITIZE_THREAD__)  // which has a thread of its own
  using Entries = std::filesystem::directory_iterator;
  std::error_code unknown;
  const auto threads = std::distance(Entries("/proc/self/task", unknown), Entries());
  if (threads > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "processes must be launched before threads are started: ", threads, " run already"));
  }
#endif
  return absl::OkStatus();
}

}  // namespace

absl::Status InterruptedBy(int signal) {
  return absl::CancelledError(
      absl::StrCat("interrupted by signal ", signal, " (", strsignal(signal), ")"));
}

// SIGINT, SIGTERM and SIGHUP of a worker in a seat, while it lives. The first asks the worker by
// `ask` to end early, as our own launcher asks its workers. A second one ends the process; within a
// second of the first it counts as the same, as a terminal and torchrun both send theirs. What was
// ignored before (nohup) stays ignored.
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

  // Only what a signal's handler may do.
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
  return [this] { return TakeEndpoint(); };
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
  if (launched()) return Write({Record::Type::kReport, 0, kind, text});
  if (options_->on_report) options_->on_report(self(), kind, text);
  return absl::OkStatus();
}

absl::Status WorkerContext::Fail(const absl::Status& why) {
  if (!launched()) return absl::OkStatus();
  return Write(
      {Record::Type::kFailure, static_cast<int>(why.code()), "", std::string(why.message())});
}

absl::Status WorkerContext::Write(const Record& record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return records_->Write(record);
}

absl::StatusOr<std::vector<std::string>> LaunchProcesses(const LaunchOptions& options,
                                                         const WorkerBody& body) {
  if (options.workers < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.workers, " workers; at least 1 is needed"));
  }
  RZ_RETURN_IF_ERROR(CheckOneThread());
  RZ_RETURN_IF_ERROR(CheckLimits({.workers = options.workers, .tasks = options.tasks}));
  RZ_ASSIGN_OR_RETURN(const std::unique_ptr<SignalScope> signals,
                      SignalScope::Create(options.pass_on));
  Launch launch(options, *signals);
  RZ_RETURN_IF_ERROR(launch.Start(body));
  return launch.Run();
}

absl::StatusOr<std::vector<std::string>> RunJob(const JobOptions& options, const WorkerBody& body) {
  if (!options.seat.has_value()) return LaunchProcesses(options.launch, body);
  const JobSeat& seat = *options.seat;
  absl::StatusOr<std::string> mine;
  bool agreed = false;
  {  // While it lives, signals ask for an early end.
    WorkerContext context(seat, options.launch);
    mine = body(context);
    agreed = context.agreed();
  }
  if (!agreed) {  // no other worker waits for this one's result
    RZ_RETURN_IF_ERROR(mine.status());
    return std::vector<std::string>{*mine};
  }
  const auto limit = std::max<std::chrono::milliseconds>(2 * options.launch.peer_timeout,
                                                         std::chrono::seconds(10));
  absl::StatusOr<std::vector<std::string>> all = ShareResults(seat, mine, limit);
  if (all.ok()) return all;
  const absl::Status cause = CauseOf(all.status());
  if (SilentWorker(cause) != seat.self) return cause;
  // What lies between the two workers is broken.
  return Annotate(cause, "another worker heard nothing of this one, though it lives");
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
