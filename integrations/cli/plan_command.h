// `ringzero plan`: what a run would do, without running it.
#ifndef RINGZERO_INTEGRATIONS_CLI_PLAN_COMMAND_H_
#define RINGZERO_INTEGRATIONS_CLI_PLAN_COMMAND_H_

#include "absl/status/status.h"
#include "integrations/cli/command_line.h"

namespace ringzero {

// Prints to stdout; --svg writes a file.
absl::Status RunPlan(const CommandLine& line);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_PLAN_COMMAND_H_
