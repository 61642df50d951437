// `ringzero train`: checks everything that can be checked, starts the workers, gathers what they
// report; or is one worker of a job that a launcher from outside has started.
#ifndef RINGZERO_INTEGRATIONS_CLI_TRAIN_H_
#define RINGZERO_INTEGRATIONS_CLI_TRAIN_H_

#include "absl/status/status.h"
#include "integrations/cli/command_line.h"

namespace ringzero {

// Call it while the process has one thread. Progress goes to stderr, the summary to stdout.
absl::Status RunTrain(const CommandLine& line);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_TRAIN_H_
