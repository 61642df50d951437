// The commands that only read: config, blame, trace, report.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/cli/command_line.h"
#include "integrations/cli/run_metrics.h"
#include "integrations/sight/chrome_trace.h"
#include "integrations/sight/flight_desk.h"
#include "integrations/sight/report.h"
#include "p2p/rendezvous/join_job.h"
#include "zero/config/config.h"
#include "zero/flight_blame.h"
#include "zero/flight_record.h"

namespace ringzero {
namespace {

const char* Word(Finding::Kind kind) {
  if (kind == Finding::Kind::kError) return "error";
  return kind == Finding::Kind::kNoEffect || kind == Finding::Kind::kMinor ? "warning" : "note";
}

void PrintLine(absl::string_view kind, std::string line) {
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  std::fputs(absl::StrCat("ringzero: ", kind, line, "\n").c_str(), stderr);
}

// The records in `folder` itself, or in the flight folder of a run with --metrics. A folder that a
// command was told to read and cannot is bad input.
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

ConfigSource SourceOf(const CommandLine& line, const std::optional<Identity>& identity) {
  ConfigSource source{.file = line.config, .overrides = line.overrides, .environment = {}};
  if (identity.has_value()) {
    source.environment.push_back(absl::StrCat("cyclic.workers=", identity->workers));
  }
  return source;
}

absl::Status PrintText(const CommandLine& line, absl::string_view text) {
  for (const std::string& path : {line.summary, line.dump_parameters, line.trace, line.out,
                                  line.svg, line.text, line.profile}) {
    if (path != "-") continue;
    std::fwrite(text.data(), 1, text.size(), stderr);
    return absl::OkStatus();
  }
  return PrintToStdout(text);
}

absl::Status RunConfig(const CommandLine& line) {
  if (line.schema) return PrintToStdout(ConfigSchema());
  if (line.markdown) return PrintToStdout(ConfigMarkdown());
  RZ_ASSIGN_OR_RETURN(const std::optional<Identity> identity,
                      FindIdentity(line.identity, CurrentEnvironment()));
  const ConfigSource source = SourceOf(line, identity);
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(source.file));
  CheckedConfig checked = CheckConfig(text, source);
  for (const Finding& finding : checked.findings.all()) {
    if (RefusedByTraining(finding.kind)) continue;
    PrintLine(absl::StrCat(Word(finding.kind), ": "), finding.line);
  }
  const std::vector<std::string> refused = FillForTraining(checked);
  if (!refused.empty()) {
    PrintLine("", absl::StrCat(source.file, ": train refuses it, for ", refused.size(),
                               refused.size() == 1 ? " reason:" : " reasons:"));
  }
  for (const std::string& line : refused) PrintLine("  ", line);
  const int errors = checked.findings.Count(Finding::Kind::kError);
  if (errors > 0) {
    return InvalidArgument(source.file, ": refused, for ", errors,
                           errors == 1 ? " error" : " errors");
  }
  return PrintToStdout(checked.config.Print());
}

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
  RZ_RETURN_IF_ERROR(WriteTrace(out, ChromeTrace(records)));
  return PrintText(line, absl::StrCat(out, ": open it at ui.perfetto.dev\n"));
}

absl::Status RunReport(const CommandLine& line) {
  const std::string out = line.out.empty() ? absl::StrCat(line.config, "/report.html") : line.out;
  std::vector<std::string> folders = {line.config};
  folders.insert(folders.end(), line.others.begin(), line.others.end());
  std::vector<RunFolder> runs;
  std::vector<NamedPath> inputs;
  for (const std::string& folder : folders) {
    absl::StatusOr<RunFolder> run = ReadRunFolder(folder);
    if (!run.ok()) return absl::InvalidArgumentError(run.status().message());
    runs.push_back(*std::move(run));
    for (const char* const name : {"/run.json", "/metrics.jsonl", "/config.json", "/flight"}) {
      inputs.push_back({"FOLDER", absl::StrCat(folder, name)});
    }
  }
  RZ_RETURN_IF_ERROR(CheckOutputFiles({{"--out", out}}, inputs));
  RZ_RETURN_IF_ERROR(WriteWholeFile(out, Report(runs)));
  return PrintText(line, absl::StrCat(out, ": open it in a browser\n"));
}

std::string TraceParts(const std::string& file) {
  return absl::StrCat(WrittenInPlace(file) ? "ringzero-trace" : file, ".parts");
}

absl::Status JoinTrace(const std::string& file, int workers) {
  const std::string parts = TraceParts(file);
  RZ_ASSIGN_OR_RETURN(const std::vector<FlightRecord> records, ReadFlightFolder(parts));
  if (static_cast<int>(records.size()) != workers) {
    return FailedPrecondition("the trace has parts of ", records.size(), " of ", workers,
                              " workers here; bring those of the other hosts to ", parts,
                              " and run: ringzero trace ", parts, " --out ", file);
  }
  RZ_RETURN_IF_ERROR(WriteTrace(file, ChromeTrace(records)));
  RemoveFlights(parts, WorkerId(0), WorkerId(0));
  rmdir(parts.c_str());
  return absl::OkStatus();
}

}  // namespace ringzero
