// The command line: `ringzero COMMAND [CONFIG or FOLDER] [OPTION …]`, strictly; the commands, and
// exit codes.
//
//   RZ_ASSIGN_OR_RETURN(CommandLine line, ParseCommandLine(argc, argv));
//   absl::Status status = line.run(line);
//
// An option takes its value as `--set X` or `--set=X`. An unknown option is InvalidArgument with
// the nearest known option, if one is like it. An option that is planned, but not built, says so.
#ifndef RINGZERO_INTEGRATIONS_CLI_COMMAND_LINE_H_
#define RINGZERO_INTEGRATIONS_CLI_COMMAND_LINE_H_

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "p2p/job/join_job.h"
#include "zero/config/config.h"

namespace ringzero {

// --trace-iterations: FIRST:LAST, both included, counted from 1 as the progress line does; or
// signal:COUNT.
struct TraceIterations {
  int first = 1;
  int last = std::numeric_limits<int>::max();
  int on_signal = 0;  // COUNT: iterations after each SIGUSR2, and no others; 0: FIRST:LAST
};

struct CommandLine {
  absl::Status (*run)(const CommandLine& line) = nullptr;  // the command
  std::vector<std::string> words;                          // all of it, the program's name first
  std::string help_of;                                     // help: the argument of HelpText
  std::string config;                  // file; the folder that blame, trace and report read
  std::vector<std::string> others;     // report: more folders; checkpoint: all folders
  std::vector<std::string> overrides;  // --set, and --workers as cyclic.workers=N
  IdentityFlags identity;              // --worker, --workers, --rendezvous
  // train; empty: not asked for
  std::string again;  // folder of an earlier run; `config` is the file left there
  std::string summary;
  std::optional<std::string> resume;  // a checkpoint's folder; empty: the newest
  bool new_batch = false;
  std::string init;
  bool init_partial = false;
  std::string dump_parameters;
  std::string flight = "ringzero-flight";  // folder
  std::string metrics;                     // folder
  std::string trace;                       // file; also for plan
  std::optional<TraceIterations> trace_iterations;
  std::string out;             // trace, report, checkpoint export: file
  std::string dtype = "fp32";  // checkpoint export
  // plan
  std::string svg;
  std::string text;
  std::string profile;  // file
  bool freeze = false;
  int hosts = 1;     // number of hosts; each has an equal run of worker numbers
  int program = -1;  // worker whose program is printed
  int blocks = -1;   // worker whose blocks are printed
  bool grid = false;
  // config: printed instead of a file's values
  bool schema = false;
  bool markdown = false;
};

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// What `ringzero help` prints; `of` a command: what `ringzero COMMAND --help` prints; of "man" a
// man page, of "bash" the completion for bash. InvalidArgument if `of` is none of these.
absl::StatusOr<std::string> HelpText(const std::string& of = "");

// Exit codes of every program (README.md).
inline constexpr int kExitDone = 0;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitLostPeer = 3;
inline constexpr int kExitDeadline = 4;
inline constexpr int kExitInternal = 5;
inline constexpr int kExitNonfinite = 6;
inline constexpr int kExitElsewhere = 7;  // done, but an output is not where it was to be
inline constexpr int kExitSignal = 128;   // plus the number of the signal that ended it

inline int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return kExitDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented: return kExitBadInput;
    case absl::StatusCode::kUnavailable: return kExitLostPeer;
    case absl::StatusCode::kDeadlineExceeded: return kExitDeadline;
    case absl::StatusCode::kOutOfRange: return kExitNonfinite;
    case absl::StatusCode::kAborted: return kExitElsewhere;  // only at the program's end
    default: return kExitInternal;
  }
}

// The commands. Each prints to stdout; what goes wrong is the Status.

absl::Status RunHelp(const CommandLine& line);
// Checks everything that can be checked, starts the workers, gathers what they report; or is one
// worker of a job that a launcher from outside has started. Call it while the process has one
// thread. Progress goes to stderr, the summary to stdout.
absl::Status RunTrain(const CommandLine& line);
// What a run would do, without running it.
absl::Status RunPlan(const CommandLine& line);
// `config` is what to do: list, verify, export or diff. InvalidArgument: a checkpoint is not whole.
absl::Status RunCheckpoint(const CommandLine& line);

// Where a configuration's values come from. `identity`: what a launcher's environment says.
ConfigSource SourceOf(const CommandLine& line, const std::optional<Identity>& identity);

// Prints what a command says to a person: to standard output, or to stderr if an output file of the
// command is "-", which is standard output.
absl::Status PrintText(const CommandLine& line, absl::string_view text);

// The folder of a trace's parts, one per worker, while a run goes on: beside `file`, or in the
// current folder if `file` is a device, a FIFO or standard output.
std::string TraceParts(const std::string& file);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_COMMAND_LINE_H_
