// Waits: whom and what this worker waits for, in words, and whose fault it is that a wait takes too
// long: it asks along the chain of waits, and answers the others' questions.
//
//   BlameAnswer now = waits.WhatItDoes();          // "waits for \"Recv sum s1 t4 l0 w2\"", next: 2
//   absl::Status why = waits.Blame(lock, "waited 600 s for …", now);
//
// With the executor's lock held. docs/decisions/0012-dead-or-slow.md.
#ifndef RINGZERO_ZERO_ENGINE_WAITS_H_
#define RINGZERO_ZERO_ENGINE_WAITS_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "zero/engine/executor.h"
#include "zero/flight/blame.h"
#include "zero/flight/flight_record.h"

namespace ringzero {

class Waits {
 public:
  // `executor` must outlive this.
  explicit Waits(Executor& executor) : executor_(executor) {}

  BlameAnswer WhatItDoes() const;
  BlameAnswer WhyNotDone(int64_t op) const;
  BlameAnswer AnswerTo(const BlameQuestion& question) const;

  // DeadlineExceeded that names the end of the chain of waits. `waited`: "waited 600 s for …";
  // `mine`: what this worker waits for. The lock is released while others are asked.
  absl::Status Blame(Executor::Lock& lock, const std::string& waited, BlameAnswer mine);
  // Waits for `done`, which only `worker` can bring about; `what` is it that is missed.
  absl::Status AwaitWorker(Executor::Lock& lock, WorkerId worker, const std::string& what,
                           const std::function<bool()>& done);

 private:
  BlameAnswer AskWorker(Executor::Lock& lock, const BlameStep& step);
  BlameAnswer WhyNotSent(WorkerId to, MessageKey message) const;
  std::string ComputingThread() const;

  Executor& executor_;
};

// What the engine does now, with its last events, as a record for a file; and what worker
// 0's clock says, so that the records of several workers can be put side by side.
//
//   FlightRecord record = flight.Record("SIGTERM");
//
// Methods take the executor's lock themselves.
class EngineFlight {
 public:
  // Both must outlive this.
  EngineFlight(Executor& executor, const Waits& waits) : executor_(executor), waits_(waits) {}

  // Waits for the lock a second at most, and does without.
  FlightRecord Record(const std::string& why) const;
  // Asks worker 0, one question after the other; never blocks.
  void MeasureClock(int times = 8);
  // The answer to such a question.
  static std::string AnswerClock();
  std::optional<ClockOffset> clock_offset() const;

 private:
  void DescribeWaits(FlightRecord& record) const;

  Executor& executor_;
  const Waits& waits_;
  std::optional<ClockOffset> clock_offset_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_WAITS_H_
