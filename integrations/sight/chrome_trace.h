// ChromeTrace: events as the JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
//   RZ_ASSIGN_OR_RETURN(std::vector<FlightRecord> records, ReadFlightFolder("run.parts"));
//   std::string json = ChromeTrace(records, {});
//
//   RZ_RETURN_IF_ERROR(WriteTrace("trace.json.gz", json));
//
// A worker is a process there, its tracks (sharding/event.h) are threads, operations are slices,
// and a flow goes from each send to its receive. Format:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#ifndef RINGZERO_INTEGRATIONS_SIGHT_CHROME_TRACE_H_
#define RINGZERO_INTEGRATIONS_SIGHT_CHROME_TRACE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "zero/flight_record.h"

namespace ringzero {

struct ChromeTraceOptions {
  double microseconds_per_unit = 1e-3;  // a unit of Event::time: a nanosecond, or a tick
  std::string note;                     // for who looks: what a tick is, …
};

// `records`: one per worker at most, any of them with aligned clocks or said not to be.
std::string ChromeTrace(std::span<const FlightRecord> records, const ChromeTraceOptions& options);

// A whole file (base/files.h), packed by gzip if the name ends in .gz; both programs open such
// a one. PermissionDenied names the file.
absl::Status WriteTrace(const std::string& path, const std::string& json);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_CHROME_TRACE_H_
