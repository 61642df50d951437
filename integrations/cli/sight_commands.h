// `ringzero blame`, `trace` and `report`: what a run has left, for a person.
#ifndef RINGZERO_INTEGRATIONS_CLI_SIGHT_COMMANDS_H_
#define RINGZERO_INTEGRATIONS_CLI_SIGHT_COMMANDS_H_

#include <string>

#include "absl/status/status.h"
#include "integrations/cli/command_line.h"

namespace ringzero {

absl::Status RunBlame(const CommandLine& line);
absl::Status RunTrace(const CommandLine& line);
absl::Status RunReport(const CommandLine& line);

// The folder of a trace's parts, one per worker, while a run goes on: beside `file`, or in the
// current folder if that is a device, a FIFO or standard output.
std::string TraceParts(const std::string& file);
// Joins the parts to the trace `file` and removes them. FailedPrecondition, naming what to do, if
// not all of `workers` are here: the others are on their hosts.
absl::Status JoinTrace(const std::string& file, int workers);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_SIGHT_COMMANDS_H_
