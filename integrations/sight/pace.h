// Pace: what a worker uses and how fast it computes, and which worker holds up all others.
//
//   LapMeter meter({.iterations = T, .laps = K, .micro_batch = B}, Usage::Now(engine.stats()));
//   meter.EndLap(lap, Usage::Now(engine.stats()));   // after every micro-batch, evaluations too
//   StragglerWatch watch(workers);                   // at worker 0
//   for (const std::string& line : watch.Note(worker, when, pace)) say(line);
//
// Workers of a ring end their steps at the same time. A slow one shows in its computing between
// waits, the others in their waits. RingTotals carries the paces to worker 0.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_PACE_H_
#define RINGZERO_INTEGRATIONS_SIGHT_PACE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "zero/engine.h"

namespace ringzero {

// What one worker has used since its start, in complete micro-batches of training without those of
// iteration 0. Seconds: of its computing thread.
struct Pace {
  double micro_batches = 0;
  double computing_seconds = 0;  // by the clock, without waits for the ring
  double off_core_seconds = 0;   // part of computing_seconds: not on a processor
  double disk_faults = 0;        // page faults that had to read from a disk
  double stolen_seconds = 0;     // other guests had the host's processors; mean per processor

  friend Pace operator-(const Pace& a, const Pace& b) {
    return {a.micro_batches - b.micro_batches, a.computing_seconds - b.computing_seconds,
            a.off_core_seconds - b.off_core_seconds, a.disk_faults - b.disk_faults,
            a.stolen_seconds - b.stolen_seconds};
  }
};

// What a worker has used since some moment. The calling thread is the worker's computing thread.
struct Usage {
  // Usage so far. `stolen` is read at most once a second: its file is long.
  static Usage Now(const EngineStats& stats);
  Usage& Add(const Usage& more, double factor = 1);
  double waits() const { return parameters + gradient_sums + update + other; }
  double computing() const { return std::max(0.0, seconds - waits()); }
  double off_core() const { return std::max(0.0, computing() - on_core); }

  double seconds = 0;                                               // by the clock
  double parameters = 0, gradient_sums = 0, update = 0, other = 0;  // of seconds: waits in the ring
  double on_core = 0;                                               // of seconds: on a processor
  double disk_faults = 0;                                           // page faults that had to read
  double stolen = 0;        // seconds: other guests had the host's processors; mean per processor
  double cpu = 0;           // seconds of the process: user and system, all threads
  double minor_faults = 0;  // page faults of the process
};

// The measured iterations.
struct Steps {
  int count = 0;
  double median = 0, min = 0, max = 0;  // seconds
  Usage all;                            // of all measured iterations together
  // The mean of one iteration. `total`: a member of `all`.
  double mean(double total) const { return total / std::max(count, 1); }
};

// Counts what a worker uses, at the ends of its accumulation steps (laps). Computing thread only.
class LapMeter {
 public:
  struct Options {
    int iterations = 0;
    int laps = 1;
    int64_t micro_batch = 1;  // samples of a complete micro-batch
    int left_out = 10;        // first iterations, not measured; 0 if the run has no more
  };
  LapMeter(const Options& options, const Usage& start) : options_(options), last_(start) {}
  // An evaluation between two iterations counts to neither.
  void EndLap(const LapTask& lap, const Usage& now);

  Steps steps() const;
  const Pace& pace() const { return pace_; }
  // Off-core seconds in all micro-batches of training since the last call.
  double TakeOffCoreSeconds() { return std::exchange(off_core_, 0); }

 private:
  const Options options_;
  Usage last_;                   // so far, at the end of the previous lap
  Usage iteration_;              // in the laps of this iteration
  Usage all_;                    // in the measured iterations
  std::vector<double> seconds_;  // of each measured iteration
  Pace pace_;
  double off_core_ = 0;
};

// Compares the workers in windows of 5 s, or longer until each has told its pace twice. One thread.
class StragglerWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit StragglerWatch(int workers) : seen_(static_cast<size_t>(workers)) {}

  // `pace`: how far `worker` had come at `when`. Returns a line for each worker that has computed
  // at half the others' speed or less, in consecutive windows that add up to 20 s; once per run.
  std::vector<std::string> Note(int worker, Time when, const Pace& pace);

 private:
  struct Seen {
    Pace begin, last;  // of the window
    bool told = false;
    double slow_seconds = 0;
    bool named = false;
  };
  std::vector<std::string> EndWindow(double seconds);

  std::vector<Seen> seen_;
  std::optional<Time> begin_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_PACE_H_
