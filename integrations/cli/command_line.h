// The command line: `ringzero COMMAND [CONFIG or FOLDER] [OPTION …]`, strictly; and exit codes.
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
  std::string help_of;                 // help: HelpText's
  std::string config;                  // file; the folder that blame, trace and report read
  std::vector<std::string> others;     // report: more folders
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

// What `ringzero help` prints; `of` a command: what `ringzero COMMAND --help` prints; of "man" a man
// page, of "bash" the completion for bash. InvalidArgument if it is none of these.
absl::StatusOr<std::string> HelpText(const std::string& of = "");

// Exit codes of every program:
//
//   0    done
//   2    bad input: an option, the configuration, the data or another file that was named;
//        an output that cannot be written, standard output included; too little memory where
//        `ulimit -v` limits it
//   3    a worker was lost: it died, its connection closed, it gave no sign of life for too long, or
//        a signal interrupted it while another launcher's job went on
//   4    a deadline: everybody lives, but one wait took too long
//   5    an internal error: our own bug, or the machine's (no memory, too few files or processes
//        allowed, a damaged payload)
//   6    numbers that are not finite ended the run: an overflow at the smallest loss scale, or
//        cyclic.on_nonfinite is stop
//   7    done, but --dump-parameters or --summary could not be written where it was to be at the
//        end; the last line says where it is instead, or that it is lost
//   128+n  ended by signal n (129: SIGHUP, 130: Ctrl-C, 137: SIGKILL, 143: SIGTERM)
inline constexpr int kExitDone = 0;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitLostPeer = 3;
inline constexpr int kExitDeadline = 4;
inline constexpr int kExitInternal = 5;
inline constexpr int kExitNonfinite = 6;
inline constexpr int kExitElsewhere = 7;
inline constexpr int kExitSignal = 128;

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
    case absl::StatusCode::kAborted: return kExitElsewhere;  // of the program's end alone
    default: return kExitInternal;
  }
}

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_COMMAND_LINE_H_
