// Makes a Rendezvous of a RendezvousStore: the workers gather, agree on a name for this start of
// the job, and all keys carry it, so that whatever an earlier start has left is not taken for ours.
//
//   RZ_ASSIGN_OR_RETURN(std::shared_ptr<Rendezvous> rendezvous,
//                       GatherAt(std::move(store), {.self = WorkerId(1), .workers = 4}));
//
// How they gather: every worker writes a number of its own (random, made now); worker 0 answers
// with the name of the start and all numbers; who finds its own number there takes the name, and
// says so; worker 0 answers again as long as numbers change. So nobody takes an old answer, and no
// job id or restart count has to be told from outside; where they are told, the name carries the
// restart count. From its first moment until it is connected each worker gives signs of life there
// and looks for those of the others (p2p/rendezvous/presence.h).
#ifndef RINGZERO_P2P_RENDEZVOUS_STORE_RENDEZVOUS_H_
#define RINGZERO_P2P_RENDEZVOUS_STORE_RENDEZVOUS_H_

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/rendezvous/rendezvous.h"
#include "p2p/rendezvous/rendezvous_store.h"

namespace ringzero {

struct Gathering {
  WorkerId self{0};
  int workers = 1;
  int restart = 0;
  // How long the others may take to come.
  std::chrono::milliseconds limit = std::chrono::minutes(2);
  // How long a worker that leaves waits for those who have not left: 0 where the store stays
  // without it.
  std::chrono::milliseconds leave_limit{0};
  // A worker that gives no sign of life for so long is lost.
  std::chrono::milliseconds peer_timeout = std::chrono::seconds(5);
};

// Waits for all workers. DeadlineExceeded names those who are missing, Unavailable one that came
// and fell silent; AlreadyExists when another process is this worker, too (two jobs in one folder);
// another worker's error, its number in front, when that one could not gather. The rendezvous' end
// says that this worker has left; the last one clears the store.
absl::StatusOr<std::shared_ptr<Rendezvous>> GatherAt(std::unique_ptr<RendezvousStore> store,
                                                     const Gathering& gathering);

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_STORE_RENDEZVOUS_H_
