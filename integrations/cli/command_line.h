// The command line: `ringzero COMMAND [CONFIG or FOLDER] [OPTION …]`, strictly.
//
//   RZ_ASSIGN_OR_RETURN(CommandLine line, ParseCommandLine(argc, argv));
//   line.command; line.config; line.overrides;
//
// An option takes its value as `--set X` or `--set=X`. Unknown ones are InvalidArgument with the
// nearest known option, if one is like it; planned ones say that they are.
#ifndef RINGZERO_INTEGRATIONS_CLI_COMMAND_LINE_H_
#define RINGZERO_INTEGRATIONS_CLI_COMMAND_LINE_H_

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "p2p/rendezvous/identity.h"

namespace ringzero {

// --trace-iterations: FIRST:LAST, both included, counted from 1 as the progress line does; or
// signal:COUNT.
struct TraceIterations {
  int first = 1;
  int last = std::numeric_limits<int>::max();
  int on_signal = 0;  // so many each time that SIGUSR2 comes, and no others; 0: FIRST:LAST
};

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
  std::vector<std::string> words;      // all of it, the program's name first
  std::string help_of;                 // help: of which command; empty: of the program
  std::string config;                  // file; the folder that blame, trace and report read
  std::vector<std::string> overrides;  // --set, and --workers as cyclic.workers=N
  IdentityFlags identity;              // --worker, --workers, --rendezvous
  // train; empty: not asked for
  std::string again;  // folder; `config` is what that run has left there
  std::string summary;
  std::string init;
  std::string dump_parameters;
  std::string flight = "ringzero-flight";  // folder
  std::string metrics;                     // folder
  std::string trace;                       // file; of plan, too
  std::optional<TraceIterations> trace_iterations;
  std::string out;  // trace, report: file
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
