// BlameFlights: who waits for whom, and the first cause, from the workers' flight records.
//
//   RZ_ASSIGN_OR_RETURN(std::vector<FlightRecord> records, ReadFlightFolder("flight"));
//   std::fputs(BlameFlights(records).text.c_str(), stdout);
//
// The chain of questions that a worker asks after wait_timeout (zero/blame.h), asked of files. Only
// records of one moment are compared: those of the end if the run failed, else the newest. Without
// a failure only a worker that is at one thing for more than 5 s, and for more than twice as long
// as at anything before, begins a chain. A pure function.
#ifndef RINGZERO_ZERO_FLIGHT_BLAME_H_
#define RINGZERO_ZERO_FLIGHT_BLAME_H_

#include <optional>
#include <span>
#include <string>

#include "base/ids.h"
#include "zero/flight_record.h"

namespace ringzero {

struct FlightBlame {
  // None: nobody waits too long, they wait in a circle, or several failed by clocks that were not
  // compared.
  std::optional<WorkerId> first_cause;
  std::string text;  // lines for a person
};

// `records`: ascending by worker, of one run; at least one.
FlightBlame BlameFlights(std::span<const FlightRecord> records);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_FLIGHT_BLAME_H_
