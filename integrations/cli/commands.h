// The program's commands. Each prints to stdout; what goes wrong is the Status.
//
//   return RunPlan(line);
#ifndef RINGZERO_INTEGRATIONS_CLI_COMMANDS_H_
#define RINGZERO_INTEGRATIONS_CLI_COMMANDS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "integrations/cli/command_line.h"
#include "p2p/rendezvous/identity.h"
#include "zero/config/config.h"

namespace ringzero {

// Checks everything that can be checked, starts the workers, gathers what they report; or is one
// worker of a job that a launcher from outside has started. Call it while the process has one
// thread. Progress goes to stderr, the summary to stdout.
absl::Status RunTrain(const CommandLine& line);
// What a run would do, without running it.
absl::Status RunPlan(const CommandLine& line);
// What a configuration means, or what any may hold. Errors, warnings and notes go to stderr, a line
// each. InvalidArgument when the file is refused: all its errors are on stderr then.
absl::Status RunConfig(const CommandLine& line);
// What a run has left, for a person.
absl::Status RunBlame(const CommandLine& line);
absl::Status RunTrace(const CommandLine& line);
absl::Status RunReport(const CommandLine& line);

// Where a configuration's values come from. `identity`: what a launcher's environment says.
ConfigSource SourceOf(const CommandLine& line, const std::optional<Identity>& identity);

// What a command says to a person: to standard output; to stderr where "-" has given standard
// output to a file of the command.
absl::Status PrintText(const CommandLine& line, absl::string_view text);

// The folder of a trace's parts, one per worker, while a run goes on: beside `file`, or in the
// current folder if that is a device, a FIFO or standard output.
std::string TraceParts(const std::string& file);
// Joins the parts to the trace `file` and removes them. FailedPrecondition, naming what to do, if
// not all of `workers` are here: the others are on their hosts.
absl::Status JoinTrace(const std::string& file, int workers);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_COMMANDS_H_
