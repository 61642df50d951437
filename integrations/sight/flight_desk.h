// FlightDesk: writes the flight records of this process' workers, at a failure or on SIGUSR1; and
// hears SIGUSR2, which asks for a trace, and the launching process' word that the run is to end.
//
//   FlightDesk desk("ringzero-flight");
//   RZ_RETURN_IF_ERROR(desk.Start());                  // in the process that has the workers
//   options.on_failure = [&] { desk.Wake(); };         // EngineOptions
//   FlightDesk::Seat seat =
//       desk.Add(self, {.take = [&](const std::string& why) { return engine.Flight(why); }});
//
// A thread of its own writes, so that a worker whose computing thread hangs leaves a record, too.
// The signals come by a descriptor and must be blocked in all threads (BlockDeskSignals, first in
// main). Thread-safe.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_FLIGHT_DESK_H_
#define RINGZERO_INTEGRATIONS_SIGHT_FLIGHT_DESK_H_

#include <atomic>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "zero/flight/flight_record.h"

namespace ringzero {

inline constexpr int kDumpSignal = SIGUSR1;
inline constexpr int kTraceSignal = SIGUSR2;
inline constexpr int kInterruptSignal = SIGURG;  // no other process sends it to a worker

// In this thread and in all threads that it will make.
void BlockDeskSignals();

// Before a run, so that a folder holds records of one run only: removes the records of
// `first` and of all workers from `from` on, and what is left of their half-written records.
void RemoveFlights(const std::string& folder, WorkerId first, WorkerId from);

class FlightDesk {
 public:
  // One worker's callbacks; called on the desk's thread, or on the thread that calls the desk.
  struct Callbacks {
    std::function<FlightRecord(const std::string& why)> take;
    // Hears of each record that SIGUSR1 asked for whether it could be written.
    std::function<void(const absl::Status& status)> written = [](const absl::Status&) {};
    // The launching process says by kInterruptSignal that the run is to end. If the signal came
    // before Add, Add calls this.
    std::function<void()> interrupt = nullptr;
    std::function<void()> trace = nullptr;  // set by TraceWith
  };

  explicit FlightDesk(std::string folder) : folder_(std::move(folder)) {}
  ~FlightDesk();
  absl::Status Start();

  // Takes the worker's records until the seat is destroyed, which waits for a record in the making.
  using Seat = std::shared_ptr<void>;
  Seat Add(WorkerId worker, Callbacks callbacks);
  // What SIGUSR2 calls for a worker with a seat, on the desk's thread, until the seat is destroyed.
  void TraceWith(WorkerId worker, std::function<void()> trace);

  // Some worker has failed: its record is written soon. Never blocks, takes no lock.
  void Wake();
  // Writes the record now, on this thread. Once per failure: the first call counts. If the record
  // cannot be written, a warning on stderr says so.
  void WriteFailure(WorkerId worker, const absl::Status& why);

  const std::string& folder() const { return folder_; }

 private:
  struct Worker {
    Callbacks callbacks;
    bool failed = false;  // its failure's record is written
  };
  void Run();
  void WriteFailed();
  void Hear(int signal);

  const std::string folder_;
  UniqueFd signals_, bell_;
  std::atomic<bool> woken_ = false, stopping_ = false;  // why the bell rings
  Mutex mutex_;
  std::map<int, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_FLIGHT_DESK_H_
