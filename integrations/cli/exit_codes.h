// Exit codes of every program, in one table.
//
//   return ExitCode(status);   // 0 when OK
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
#ifndef RINGZERO_INTEGRATIONS_CLI_EXIT_CODES_H_
#define RINGZERO_INTEGRATIONS_CLI_EXIT_CODES_H_

#include "absl/status/status.h"

namespace ringzero {

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

#endif  // RINGZERO_INTEGRATIONS_CLI_EXIT_CODES_H_
