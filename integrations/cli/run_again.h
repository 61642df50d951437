// RunRecord: what an earlier run with --metrics has left of itself, for `train --again FOLDER`.
//
//   RZ_ASSIGN_OR_RETURN(RunRecord before, ReadRunRecord("run"));
//   … the run, with before.init and RecordedConfig("run") …
//   const Comparison comparison = CompareRuns(before, provenance, digest);
//   comparison.text;   // "same result as that of run: parameters sha256 2c1f…"
//
// A folder holds config.json (every value, as `ringzero config` prints it), provenance.json and,
// of a run that has ended, summary.json.
#ifndef RINGZERO_INTEGRATIONS_CLI_RUN_AGAIN_H_
#define RINGZERO_INTEGRATIONS_CLI_RUN_AGAIN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/cli/provenance.h"

namespace ringzero {

// The configuration of the run that has left `folder`.
std::string RecordedConfig(const std::string& folder);

// When a run begins: config.json and provenance.json. PermissionDenied names the file.
absl::Status WriteRunRecord(const std::string& folder, const Provenance& provenance);
// When it has ended: summary.json.
absl::Status WriteRunSummary(const std::string& folder, const std::string& summary);

struct RunRecord {
  std::string folder;
  std::string provenance;         // JSON (provenance.h)
  std::string init;               // empty: none
  std::string parameters_sha256;  // empty: the run has left none
};
// NotFound: no such run. InvalidArgument: a file is not what a run writes.
absl::StatusOr<RunRecord> ReadRunRecord(const std::string& folder);

struct Comparison {
  std::string text;  // lines for a person
  std::string json;  // {"folder": …, "same_parameters": true, false or null, "differs": [lines]}
};
// `provenance`: JSON of the run that was made now.
Comparison CompareRuns(const RunRecord& before, const std::string& provenance,
                       const std::string& parameters_sha256);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_RUN_AGAIN_H_
