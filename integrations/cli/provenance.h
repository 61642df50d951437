// Provenance: what was run, by which program and where, for a run's folder and its summary; and
// what an earlier run with --metrics has left of itself, for `train --again FOLDER`.
//
//   OrderedJson provenance = BeginProvenance(line, config, "torchrun");   // when the run begins
//   AddPlace(report.place, report.worker, provenance);                    // for each report
//   CompareRuns(*ReadRunRecord("run"), provenance, digest).text;          // "same result as …"
//
// A folder holds config.json (every value, as `ringzero config` prints it), provenance.json and,
// of a run that has ended, summary.json.
#ifndef RINGZERO_INTEGRATIONS_CLI_PROVENANCE_H_
#define RINGZERO_INTEGRATIONS_CLI_PROVENANCE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/cli/command_line.h"
#include "zero/config/config.h"

namespace ringzero {

using OrderedJson = nlohmann::ordered_json;

// Where a worker runs: host, system ("Linux 6.1.0 x86_64"), processor ("AMD EPYC 7B13"; "unknown"
// where /proc/cpuinfo does not say), instructions (which of LibTorch's kernels run there: "AVX2"),
// cores (that the process may use; 0.5 with half a core's quota), and transport (to the right
// neighbour; null: nothing travels). Of this process; its transport is null.
OrderedJson ThisPlace();

// The command, --init, the folder that the command's paths are relative to, the moment, the
// launcher ("torchrun"; empty: this program), versions, environment and configuration; no places
// yet. Of the environment only variables that change results or their speed are kept, and none
// whose name speaks of a secret.
OrderedJson BeginProvenance(const CommandLine& line, const Config& config,
                            const std::string& launcher);
// Equal places are listed once, with their workers in the order of the calls. A negative `worker`:
// no worker yet, in a run that has not ended.
void AddPlace(OrderedJson place, int worker, OrderedJson& provenance);

// "ringzero 0.1.0, commit 6dd9e2e3c1f0, LibTorch 2.11.0": the commit where it was built from a
// clone, with -dirty behind it where sources were changed.
std::string VersionText();

// JSON as text, whatever the bytes of a path or a host's name are. `indent`: -1: one line.
std::string Dump(const OrderedJson& json, int indent);
// Null if `text` is empty.
OrderedJson OrNull(const std::string& text);

// Before the first iteration: config.json and provenance.json. PermissionDenied names the file.
absl::Status WriteRunRecord(const std::string& folder, const Config& config,
                            const OrderedJson& provenance);

struct RunRecord {
  std::string folder;
  OrderedJson makes_bits;         // what may change a result
  std::string init;               // empty: none
  bool init_partial = false;      // names may be missing or unexpected in it
  std::string parameters_sha256;  // empty: the run has left none
};
// NotFound: no such run. InvalidArgument: a file is not what a run writes.
absl::StatusOr<RunRecord> ReadRunRecord(const std::string& folder);

struct Comparison {
  std::string text;  // lines for a person
  OrderedJson json;  // {"folder": …, "same_parameters": true, false or null, "differs": [lines]}
};
// `provenance`: of the run that was made now.
Comparison CompareRuns(const RunRecord& before, const OrderedJson& provenance,
                       const std::string& parameters_sha256);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_PROVENANCE_H_
