// EngineFlight: what the engine does now, with its last events, as a record for a file; and what worker
// 0's clock says, so that the records of several workers can be put side by side.
//
//   FlightRecord record = flight.Record("SIGTERM");
//
// Methods take the executor's lock themselves.
#ifndef RINGZERO_ZERO_ENGINE_FLIGHT_H_
#define RINGZERO_ZERO_ENGINE_FLIGHT_H_

#include <optional>
#include <string>

#include "zero/engine/executor.h"
#include "zero/engine/waits.h"
#include "zero/flight_record.h"

namespace ringzero {

class EngineFlight {
 public:
  // Both must outlive this.
  EngineFlight(Executor& executor, const Waits& waits) : executor_(executor), waits_(waits) {}

  // Waits for the lock a second at most, and does without.
  FlightRecord Record(const std::string& why) const;
  // Asks worker 0 a few times; never blocks.
  void MeasureClock();
  // The answer to such a question.
  static std::string AnswerClock();
  std::optional<ClockOffset> clock_offset() const;

 private:
  void AskClock(int times);
  void DescribeWaits(FlightRecord& record) const;

  Executor& executor_;
  const Waits& waits_;
  std::optional<ClockOffset> clock_offset_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_FLIGHT_H_
