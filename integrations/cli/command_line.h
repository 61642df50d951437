// The command line: `ringzero COMMAND [CONFIG or FOLDER] [OPTION …]`, strictly.
//
//   RZ_ASSIGN_OR_RETURN(CommandLine line, ParseCommandLine(argc, argv));
//   line.command; line.config; line.overrides;
//
// An option takes its value as `--set X` or `--set=X`. Unknown ones are InvalidArgument with the
// nearest known option, if one is like it; planned ones say that they are.
#ifndef RINGZERO_INTEGRATIONS_CLI_COMMAND_LINE_H_
#define RINGZERO_INTEGRATIONS_CLI_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "p2p/rendezvous/identity.h"

namespace ringzero {

struct CommandLine {
  enum class Command {
    kTrain,
    kPlan,
    kConfig,
    kBlame,
    kTrace,
    kReport,
    kHelp,
    kVersion
  } command = Command::kHelp;
  std::string help_of;                 // help: of which command; empty: of the program
  std::string config;                  // file; the folder that blame, trace and report read
  std::vector<std::string> overrides;  // --set, and --workers as cyclic.workers=N
  IdentityFlags identity;              // --worker, --workers, --rendezvous
  // train; empty: not asked for
  std::string summary;
  std::string init;
  std::string dump_parameters;
  std::string flight = "ringzero-flight";  // folder
  std::string metrics;                     // folder
  std::string trace;                       // file; of plan, too
  std::string out;                         // trace, report: file
  // plan
  std::string svg;
  std::string text;
  std::string profile;  // file
  bool freeze = false;
  int hosts = 1;     // that the workers are on, in equal runs of their numbers
  int program = -1;  // worker whose program is printed
  bool grid = false;
  // config: instead of a file's values
  bool schema = false;
  bool markdown = false;
};

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// What `ringzero help` prints; of one command, what `ringzero COMMAND --help` prints.
std::string HelpText(absl::string_view command = "");

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_COMMAND_LINE_H_
