// Words for failures that come from another worker, so that a root cause can be told from its
// echoes.
//
//   AbortedBy(WorkerId(2), absl::DataLossError("bad file"));
//   // DATA_LOSS "aborted by worker 2: bad file"
//   WorkerDied(WorkerId(3));
//   // UNAVAILABLE "worker 3 died: its connection closed …"
//   IsEcho(Annotate(AbortedBy(...), "iteration 7"));   // true: annotations do not hide it
//
// Pure functions on values.
#ifndef RINGZERO_P2P_FAILURE_H_
#define RINGZERO_P2P_FAILURE_H_

#include <chrono>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace ringzero {

// What a worker's peers get when it aborts with `why`. An echo is passed on unchanged, so that it
// goes on naming the worker where it began.
absl::Status AbortedBy(WorkerId worker, const absl::Status& why);

// A peer's connection closed and it had not said goodbye.
absl::Status WorkerDied(WorkerId worker);

// A peer's message thread gave no sign of life for so long: it was stopped, or hangs.
absl::Status WorkerSilent(WorkerId worker, std::chrono::milliseconds lasted);
// Whose silence `status` tells of, if it does.
std::optional<WorkerId> SilentWorker(const absl::Status& status);

// Does `status` only pass on what began at another worker?
bool IsEcho(const absl::Status& status);

// The cause inside an echo of an abort: "worker 2: bad file". Anything else comes back as it is.
absl::Status CauseOf(const absl::Status& status);

// `status` with "worker 2: " in front, unless it begins with a worker already: then it blames that
// one, whoever reports it.
absl::Status ReportedBy(WorkerId worker, const absl::Status& status);

// What worker `self` says to a terminal that it shares with others: "worker 1: " in front, unless
// it is there already.
absl::Status SaidBy(WorkerId self, const absl::Status& status);

// Why a worker aborts that is told to end before its run does: somebody pressed Ctrl-C.
absl::Status Interrupted();
// Whether that ended it, here or at another worker.
bool IsInterrupted(const absl::Status& status);

// What a wait ended with: `words` in front if the time was over ("worker 2 has not told its host"),
// unless it begins with a worker already. Any other error says itself whom it is about.
absl::Status WhileWaiting(const absl::Status& status, absl::string_view words);

}  // namespace ringzero

#endif  // RINGZERO_P2P_FAILURE_H_
