// Pace: how fast each worker computes, and which one holds up all others.
//
//   PaceMeter meter(micro_batch, engine.stats());               // in each worker
//   meter.EndLap(lap, engine.stats());                          // after every micro-batch
//   StragglerWatch watch(workers);                              // at worker 0
//   for (const std::string& line : watch.Note(worker, when, pace)) say(line);
//
// Workers of a ring end their steps at the same time: a slow one shows in what it computes between
// its waits, and the others in theirs. RingTotals carries the paces to worker 0.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_PACE_H_
#define RINGZERO_INTEGRATIONS_SIGHT_PACE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zero/engine.h"

namespace ringzero {

// Of one worker since its start, in complete micro-batches of training without those of iteration
// 0. Seconds are those of its computing thread.
struct Pace {
  double micro_batches = 0;
  double computing_seconds = 0;  // by the clock, without waits for the ring
  double off_core_seconds = 0;   // of these: not on a processor
  double disk_faults = 0;        // page faults that had to read
  double stolen_seconds = 0;     // other guests of the machine had the host's processors: the mean

  friend Pace operator-(const Pace& a, const Pace& b) {
    return {a.micro_batches - b.micro_batches, a.computing_seconds - b.computing_seconds,
            a.off_core_seconds - b.off_core_seconds, a.disk_faults - b.disk_faults,
            a.stolen_seconds - b.stolen_seconds};
  }
};

// Time on a processor, of the calling thread.
double ThreadCpuSeconds();

// Counts a worker's pace. One thread, the computing one.
class PaceMeter {
 public:
  // All since some moment of the past.
  struct Moment {
    double clock_seconds = 0;
    double wait_seconds = 0;
    double cpu_seconds = 0;
    double disk_faults = 0;
    double stolen_seconds = 0;
  };

  // `micro_batch`: samples of a complete one.
  PaceMeter(int64_t micro_batch, const EngineStats& stats) : PaceMeter(micro_batch, Moment()) {
    last_ = Now(stats);
  }
  PaceMeter(int64_t micro_batch, const Moment& start) : micro_batch_(micro_batch), last_(start) {}

  void EndLap(const LapTask& lap, const EngineStats& stats) { EndLap(lap, Now(stats)); }
  void EndLap(const LapTask& lap, const Moment& now);

  const Pace& pace() const { return pace_; }
  // In all micro-batches of training since the last call.
  double TakeOffCoreSeconds();

 private:
  Moment Now(const EngineStats& stats);

  const int64_t micro_batch_;
  Moment last_;
  Pace pace_;
  double off_core_seconds_ = 0;
  double stolen_seconds_ = 0, stolen_read_at_ = 0;  // the file is long: it is read once a second
};

// Compares the workers in windows of 5 s, or longer until each has told its pace twice. One thread.
class StragglerWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit StragglerWatch(int workers) : seen_(static_cast<size_t>(workers)) {}

  // `worker` had come so far when it told so, at `when`. The lines that are due: one for each
  // worker that has computed at half the others' speed or less in windows one after another that
  // add up to 20 s; once per run.
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
