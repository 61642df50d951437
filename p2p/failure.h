// Words for failures that come from another worker, so that a root cause can be told from its
// echoes.
//
//   AbortedBy(WorkerId(2), absl::DataLossError("bad file"))   // DATA_LOSS "aborted by worker 2:
//   bad file" WorkerDied(WorkerId(3))                  // UNAVAILABLE "worker 3 died: its
//   connection closed …" IsEcho(Annotate(AbortedBy(...), "iteration 7"))           // true:
//   annotations do not hide it
//
// Pure functions on values.
#ifndef RINGZERO_P2P_FAILURE_H_
#define RINGZERO_P2P_FAILURE_H_

#include "absl/status/status.h"
#include "base/ids.h"

namespace ringzero {

// What a worker's peers get when it aborts with `why`. An echo is passed on unchanged, so that it
// goes on naming the worker where it began.
absl::Status AbortedBy(WorkerId worker, const absl::Status& why);

// A peer's connection closed and it had not said goodbye.
absl::Status WorkerDied(WorkerId worker);

// Does `status` only pass on what began at another worker?
bool IsEcho(const absl::Status& status);

// The cause inside an echo of an abort: "worker 2: bad file". Anything else comes back as it is.
absl::Status CauseOf(const absl::Status& status);

}  // namespace ringzero

#endif  // RINGZERO_P2P_FAILURE_H_
