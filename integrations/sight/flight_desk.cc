// A thread that waits for a signal, a failure, or its end.
#include "integrations/sight/flight_desk.h"

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
#include <filesystem>
#include <optional>
#include <system_error>

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
  // The write fails only if the bell's counter is full, and then the bell rings already.
  (void)!write(bell.get(), &one, sizeof(one));
}

// A failed write is no error: the run goes on, or has its own end; who asked looks into the folder.
void WriteOrWarn(const std::string& folder, const FlightRecord& record) {
  const absl::Status written = WriteFlightFile(folder, record);
  if (written.ok()) return;
  std::fprintf(stderr, "warning: %s\n", std::string(written.message()).c_str());
}

// The worker of a record, or of what a worker that was killed while writing has left of its record:
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
  std::error_code missing, gone;
  for (std::filesystem::directory_iterator at(folder, missing), end; at != end;
       at.increment(missing)) {
    const std::optional<int> worker = WorkerOf(at->path().filename().string());
    if (worker == first.value || worker >= from.value) std::filesystem::remove(at->path(), gone);
  }
}

FlightDesk::~FlightDesk() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  Ring(bell_);
  thread_.join();
}

absl::Status FlightDesk::Start() {
  const sigset_t mask = DeskSignals();
  signals_ = UniqueFd(signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC));
  bell_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!signals_ || !bell_) return SystemError("flight recorder: no descriptor");
  thread_ = NamedThread("rz-flight", [this] { Run(); });
  return absl::OkStatus();
}

FlightDesk::Seat FlightDesk::Add(WorkerId worker, Callbacks callbacks) {
  const MutexLock lock(mutex_);
  if (interrupted_ && callbacks.interrupt) callbacks.interrupt();
  workers_[worker.value] = {.callbacks = std::move(callbacks)};
  return Seat(nullptr, [this, worker](void*) {
    const MutexLock gone(mutex_);
    workers_.erase(worker.value);
  });
}

void FlightDesk::TraceWith(WorkerId worker, std::function<void()> trace) {
  const MutexLock lock(mutex_);
  workers_[worker.value].callbacks.trace = std::move(trace);
}

void FlightDesk::Wake() {
  woken_ = true;
  Ring(bell_);
}

void FlightDesk::WriteFailure(WorkerId worker, const absl::Status& why) {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker.value);
  if (found == workers_.end() || std::exchange(found->second.failed, true)) return;
  FlightRecord record = found->second.callbacks.take(std::string(why.message()));
  if (record.error.ok()) record.error = why;  // not the engine's failure: the computing thread's
  WriteOrWarn(folder_, record);
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

void FlightDesk::Hear(int signal) {
  const MutexLock lock(mutex_);
  interrupted_ = interrupted_ || signal == kInterruptSignal;
  for (const auto& [worker, each] : workers_) {
    const auto& [take, written, interrupt, trace] = each.callbacks;
    if (signal == kInterruptSignal) {
      if (interrupt) interrupt();
    } else if (signal == kDumpSignal) {
      const std::string why =
          absl::StrCat("signal ", signal, " (", strsignal(signal), ") asked for it");
      written(WriteFlightFile(folder_, take(why)));
    } else if (trace) {
      trace();
    } else {
      std::fprintf(stderr,
                   "warning: worker %d: signal %d asks for a trace, which wants --trace FILE "
                   "--trace-iterations signal:COUNT\n",
                   worker, signal);
    }
  }
}

void FlightDesk::Run() {
  pollfd files[] = {{bell_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
  while (!stopping_) {
    if (poll(files, std::size(files), kLookMs) < 0) {
      if (errno == EINTR) continue;
      std::fprintf(stderr, "warning: no more flight records: poll: %s\n", std::strerror(errno));
      return;
    }
    uint64_t rings = 0;
    if (files[0].revents != 0) (void)!read(bell_.get(), &rings, sizeof(rings));
    if (woken_.exchange(false)) WriteFailed();
    signalfd_siginfo info = {};
    if (files[1].revents != 0 && read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      Hear(static_cast<int>(info.ssi_signo));
    }
  }
}

}  // namespace ringzero
