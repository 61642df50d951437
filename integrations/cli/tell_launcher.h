// TellLauncher: the line of an error, for whoever started this process and reports how it ended.
//
//   TellLauncher("worker 2: data.path: no such file");
//
// torchrun: in the file that TORCHELASTIC_ERROR_FILE names, as torchelastic records exceptions.
// Kubernetes: behind what /dev/termination-log holds. A file that cannot be written is a warning on
// stderr; without either nothing happens.
#ifndef RINGZERO_INTEGRATIONS_CLI_TELL_LAUNCHER_H_
#define RINGZERO_INTEGRATIONS_CLI_TELL_LAUNCHER_H_

#include <string>

namespace ringzero {

void TellLauncher(const std::string& error);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_TELL_LAUNCHER_H_
