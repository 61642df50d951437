// PrintText: what a command says to a person.
//
//   return PrintText(line, summary.text);
#ifndef RINGZERO_INTEGRATIONS_CLI_PRINT_TEXT_H_
#define RINGZERO_INTEGRATIONS_CLI_PRINT_TEXT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "integrations/cli/command_line.h"

namespace ringzero {

// To standard output; to stderr where "-" has given standard output to a file of the command.
absl::Status PrintText(const CommandLine& line, absl::string_view text);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_PRINT_TEXT_H_
