// A thread that waits for a signal, a failure, or its end.
#include "integrations/sight/flight_desk.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/system_names.h"
#include "p2p/failure.h"

namespace ringzero {
namespace {

constexpr int kLookMs = 1000;  // a bell that could not be rung delays a record by no more

sigset_t DeskSignals() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, kDumpSignal);
  sigaddset(&mask, kTraceSignal);
  sigaddset(&mask, kInterruptSignal);
  return mask;
}

void Ring(const UniqueFd& bell) {
  const uint64_t one = 1;
  // It cannot fail but by being full, and then it rings already.
  [[maybe_unused]] const ssize_t written = write(bell.get(), &one, sizeof(one));
}

void Hush(const UniqueFd& bell) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(bell.get(), &count, sizeof(count));
}

// The run goes on, or has an end of its own; who asked looks into the folder.
void WriteOrWarn(const std::string& folder, const FlightRecord& record,
                 const std::function<void(const absl::Status&)>& missing = nullptr) {
  const absl::Status written = WriteFlightFile(folder, record);
  if (written.ok()) return;
  if (missing) return missing(written);
  std::fprintf(stderr, "warning: %s\n", std::string(written.message()).c_str());
}

// Whose record it is, or what who was killed while it wrote one has left of it:
// "worker-2.flight.4711.tmp".
std::optional<int> WorkerOf(absl::string_view name) {
  int worker = 0;
  if (!absl::ConsumePrefix(&name, "worker-")) return std::nullopt;
  const size_t dot = std::min(name.find('.'), name.size());
  const absl::string_view ending = name.substr(dot);
  const bool left = absl::StartsWith(ending, ".flight.") && absl::EndsWith(ending, ".tmp");
  if (ending != ".flight" && !left) return std::nullopt;
  if (!absl::SimpleAtoi(name.substr(0, dot), &worker)) return std::nullopt;
  return worker;
}

}  // namespace

void BlockDeskSignals() {
  const sigset_t mask = DeskSignals();
  pthread_sigmask(SIG_BLOCK, &mask, nullptr);
}

void RemoveFlights(const std::string& folder, WorkerId first, WorkerId from) {
  std::vector<std::string> old;
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  while (const dirent* const entry = readdir(entries)) {
    const std::optional<int> worker = WorkerOf(entry->d_name);
    if (!worker.has_value() || (*worker != first.value && *worker < from.value)) continue;
    old.push_back(absl::StrCat(folder, "/", entry->d_name));
  }
  closedir(entries);
  for (const std::string& path : old) std::remove(path.c_str());
}

FlightDesk::FlightDesk(std::string folder) : folder_(std::move(folder)) {}

FlightDesk::~FlightDesk() {
  if (!thread_.joinable()) return;
  Ring(stop_);
  thread_.join();
}

absl::Status FlightDesk::Start() {
  const sigset_t mask = DeskSignals();
  signals_ = UniqueFd(signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC));
  wake_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  stop_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!signals_ || !wake_ || !stop_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("flight recorder: no descriptor: ", std::strerror(errno)));
  }
  thread_ = NamedThread("rz-flight", [this] { Run(); });
  return absl::OkStatus();
}

FlightDesk::Seat::~Seat() {
  if (desk_ != nullptr) desk_->Remove(worker_);
}

FlightDesk::Seat FlightDesk::Add(WorkerId worker, Callbacks callbacks) {
  const MutexLock lock(mutex_);
  if (interrupted_ && callbacks.interrupt) callbacks.interrupt();
  workers_[worker.value] = {.callbacks = std::move(callbacks)};
  return Seat(this, worker);
}

void FlightDesk::TraceWith(WorkerId worker, std::function<void()> trace) {
  const MutexLock lock(mutex_);
  workers_[worker.value].trace = std::move(trace);
}

void FlightDesk::TraceAll() {
  const MutexLock lock(mutex_);
  for (const auto& [worker, each] : workers_) {
    if (each.trace) {
      each.trace();
    } else {
      std::fprintf(stderr,
                   "warning: worker %d: signal %d asks for a trace, which wants --trace FILE "
                   "--trace-iterations signal:COUNT\n",
                   worker, kTraceSignal);
    }
  }
}

void FlightDesk::Remove(WorkerId worker) {
  const MutexLock lock(mutex_);
  workers_.erase(worker.value);
}

void FlightDesk::Wake() {
  woken_ = true;
  Ring(wake_);
}

void FlightDesk::WriteFailure(WorkerId worker, const absl::Status& why) {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker.value);
  if (found == workers_.end() || std::exchange(found->second.failed, true)) return;
  FlightRecord record = found->second.callbacks.take(std::string(why.message()));
  if (record.error.ok()) record.error = why;  // not the engine's: of who computes
  WriteOrWarn(folder_, record);
}

void FlightDesk::WriteAll(const std::string& why) {
  const MutexLock lock(mutex_);
  for (const auto& [worker, each] : workers_) {
    WriteOrWarn(folder_, each.callbacks.take(why), each.callbacks.missing);
  }
}

void FlightDesk::Interrupt() {
  const MutexLock lock(mutex_);
  interrupted_ = true;
  for (const auto& [worker, each] : workers_) {
    if (each.callbacks.interrupt) each.callbacks.interrupt();
  }
}

void FlightDesk::WriteFailed() {
  const MutexLock lock(mutex_);
  for (auto& [worker, each] : workers_) {
    if (each.failed) continue;
    FlightRecord record = each.callbacks.take("");
    if (record.error.ok() || IsInterrupted(record.error)) continue;
    each.failed = true;
    record.why = std::string(record.error.message());
    WriteOrWarn(folder_, record);
  }
}

void FlightDesk::Run() {
  pollfd files[] = {
      {stop_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
  while (true) {
    if (poll(files, std::size(files), kLookMs) < 0) {
      if (errno == EINTR) continue;
      std::fprintf(stderr, "warning: no more flight records: poll: %s\n", std::strerror(errno));
      return;
    }
    if (files[0].revents != 0) return;
    if (files[1].revents != 0) Hush(wake_);
    if (woken_.exchange(false)) WriteFailed();
    signalfd_siginfo info = {};
    if (files[2].revents == 0 || read(signals_.get(), &info, sizeof(info)) != sizeof(info))
      continue;
    if (info.ssi_signo == kTraceSignal) {
      TraceAll();
    } else if (info.ssi_signo == kInterruptSignal) {
      Interrupt();
    } else {
      WriteAll(
          absl::StrCat("signal ", kDumpSignal, " (", strsignal(kDumpSignal), ") asked for it"));
    }
  }
}

}  // namespace ringzero
