// What a person looks at. Report: the numbers of runs as one page of HTML that needs nothing else.
// PlanFigure: one SVG with a plan's schedule as a grid, and below it what its simulation sends and
// holds over time.
//
//   RZ_ASSIGN_OR_RETURN(RunFolder run, ReadRunFolder("run"));
//   run.scalars["Train/Samples/train_loss"];     // (iteration, value)
//   std::string html = Report({&run, 1});
//   RZ_ASSIGN_OR_RETURN(std::string svg, PlanFigure(plan, speed));
//
// The page is report_page.html: its script draws what Report writes into it as JSON.
#ifndef RINGZERO_INTEGRATIONS_SIGHT_REPORT_H_
#define RINGZERO_INTEGRATIONS_SIGHT_REPORT_H_

#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "sharding/study/simulate.h"
#include "zero/flight/flight_record.h"

namespace ringzero {

// What a run with --metrics has left.
struct RunFolder {
  std::string name;       // the folder, as it was given
  nlohmann::json about;   // run.json
  Plan plan;              // of run.json
  nlohmann::json config;  // config.json: values by path ("/cyclic/rule"); an object
  // By scalar: (iterations done, value), as written; what was not finite is left out.
  std::map<std::string, std::vector<std::pair<double, double>>> scalars;
  std::vector<FlightRecord> flights;  // those that are there
};

// NotFound without run.json or metrics.jsonl; InvalidArgument, with file and line, for what cannot
// be read. A last line that was cut (the run died) is left out.
absl::StatusOr<RunFolder> ReadRunFolder(const std::string& folder);

// The parts of ReadRunFolder: run.json, then metrics.jsonl.
absl::Status ParseRun(const std::string& text, RunFolder& run);
absl::Status ParseMetrics(const std::string& text, RunFolder& run);

// A pure function. For several runs the page has a table of the configuration's keys that differ.
std::string Report(std::span<const RunFolder> runs);

// Panels: bytes per second sent on each channel; activations of all workers, in micro-batches.
// Shows two iterations after the first few, without evaluations. `speed` in nanoseconds
// (sharding/study/cost_profile.h). Errors are Simulate's.
absl::StatusOr<std::string> PlanFigure(const Plan& plan, const SimulationOptions& speed);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_SIGHT_REPORT_H_
