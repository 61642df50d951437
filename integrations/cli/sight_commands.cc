// Reads folders, writes a page, a trace or a few lines.
#include "integrations/cli/sight_commands.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/cli/print_text.h"
#include "integrations/cli/run_metrics.h"
#include "integrations/cli/summary.h"
#include "integrations/sight/chrome_trace.h"
#include "integrations/sight/flight_desk.h"
#include "integrations/sight/report.h"
#include "integrations/sight/run_folder.h"
#include "zero/flight_blame.h"
#include "zero/flight_record.h"

namespace ringzero {
namespace {

// Of the folder itself, or of a run's with --metrics. What a command was told to read and cannot is
// bad input.
absl::StatusOr<std::vector<FlightRecord>> ReadFolder(const std::string& folder) {
  absl::StatusOr<std::vector<FlightRecord>> records = ReadFlightFolder(folder);
  if (absl::IsNotFound(records.status())) {
    auto of_metrics = ReadFlightFolder(MetricsFlights(folder));
    if (!absl::IsNotFound(of_metrics.status())) records = std::move(of_metrics);
  }
  if (records.ok()) return records;
  return absl::InvalidArgumentError(records.status().message());
}

}  // namespace

absl::Status RunBlame(const CommandLine& line) {
  RZ_ASSIGN_OR_RETURN(const std::vector<FlightRecord> records, ReadFolder(line.config));
  return PrintToStdout(BlameFlights(records).text);
}

absl::Status RunTrace(const CommandLine& line) {
  const std::string out = line.out.empty() ? absl::StrCat(line.config, "/trace.json") : line.out;
  RZ_ASSIGN_OR_RETURN(const std::vector<FlightRecord> records, ReadFolder(line.config));
  std::vector<NamedPath> inputs;
  for (const FlightRecord& record : records) {
    inputs.push_back({"FOLDER", FlightPath(line.config, record.worker)});
  }
  RZ_RETURN_IF_ERROR(CheckOutputFiles({{"--out", out}}, inputs));
  RZ_RETURN_IF_ERROR(WriteTrace(out, ChromeTrace(records, {})));
  return PrintText(line, absl::StrCat(out, ": open it at ui.perfetto.dev\n"));
}

absl::Status RunReport(const CommandLine& line) {
  const std::string out = line.out.empty() ? absl::StrCat(line.config, "/report.html") : line.out;
  const absl::StatusOr<RunFolder> run = ReadRunFolder(line.config);
  if (!run.ok()) return absl::InvalidArgumentError(run.status().message());
  RZ_RETURN_IF_ERROR(
      CheckOutputFiles({{"--out", out}}, {{"FOLDER", absl::StrCat(line.config, "/run.json")},
                                          {"FOLDER", absl::StrCat(line.config, "/metrics.jsonl")},
                                          {"FOLDER", MetricsFlights(line.config)}}));
  RZ_RETURN_IF_ERROR(WriteWholeFile(out, Report(*run, line.config)));
  return PrintText(line, absl::StrCat(out, ": open it in a browser\n"));
}

std::string TraceParts(const std::string& file) {
  return absl::StrCat(WrittenInPlace(file) ? "ringzero-trace" : file, ".parts");
}

absl::Status JoinTrace(const std::string& file, int workers) {
  const std::string parts = TraceParts(file);
  RZ_ASSIGN_OR_RETURN(const std::vector<FlightRecord> records, ReadFlightFolder(parts));
  if (static_cast<int>(records.size()) != workers) {
    return absl::FailedPreconditionError(
        absl::StrCat("the trace has parts of ", records.size(), " of ", workers,
                     " workers here; bring those of the other hosts to ", parts,
                     " and run: ringzero trace ", parts, " --out ", file));
  }
  RZ_RETURN_IF_ERROR(WriteTrace(file, ChromeTrace(records, {})));
  RemoveFlights(parts, WorkerId(0), WorkerId(0));
  rmdir(parts.c_str());
  return absl::OkStatus();
}

}  // namespace ringzero
