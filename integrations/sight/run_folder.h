// RunFolder: what a run with --metrics has left, read back.
//
//   RZ_ASSIGN_OR_RETURN(RunFolder run, ReadRunFolder("run"));
//   run.Values("Train/Samples/train_loss");     // (iteration, value)
#ifndef RINGZERO_INTEGRATIONS_SIGHT_RUN_FOLDER_H_
#define RINGZERO_INTEGRATIONS_SIGHT_RUN_FOLDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "sharding/memory_forecast.h"
#include "sharding/plan.h"
#include "zero/flight_record.h"

namespace ringzero {

struct RunFolder {
  Plan plan;
  int64_t parameters = 0;
  double stale_share = 0;
  MemoryBytes forecast;
  std::vector<std::string> not_measured;
  // By scalar: (iterations done, value), as written; what was not finite is left out.
  std::map<std::string, std::vector<std::pair<double, double>>> scalars;
  std::vector<FlightRecord> flights;  // those that are there

  // Empty if there is no such scalar.
  const std::vector<std::pair<double, double>>& Values(const std::string& name) const;
};

// NotFound without run.json or metrics.jsonl; InvalidArgument, with file and line, for what is not
// to be read. A last line that was cut (the run died) is left out.
absl::StatusOr<RunFolder> ReadRunFolder(const std::string& folder);

// Its parts: run.json, then metrics.jsonl.
absl::Status ParseRun(const std::string& text, RunFolder& run);
absl::Status ParseMetrics(const std::string& text, RunFolder& run);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_RUN_FOLDER_H_
