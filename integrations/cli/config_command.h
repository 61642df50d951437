// `ringzero config`: what a configuration means, or what any may hold.
//
//   return RunConfig(line);   // to stdout; errors, warnings and notes to stderr, a line each
#ifndef RINGZERO_INTEGRATIONS_CLI_CONFIG_COMMAND_H_
#define RINGZERO_INTEGRATIONS_CLI_CONFIG_COMMAND_H_

#include "absl/status/status.h"
#include "integrations/cli/command_line.h"

namespace ringzero {

// InvalidArgument when the file is refused: all its errors are on stderr then.
absl::Status RunConfig(const CommandLine& line);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_CONFIG_COMMAND_H_
