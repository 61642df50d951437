// MakeTransports: how a test makes the transports of all workers, which are threads of one process.
//
//   MakeTransports make = Delayed(LocalTransports(), /*seed=*/1, std::chrono::microseconds(300));
//   RZ_ASSIGN_OR_RETURN(auto transports, make(needs));   // one per worker
#ifndef RINGZERO_TESTS_P2P_TRANSPORTS_H_
#define RINGZERO_TESTS_P2P_TRANSPORTS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/arena.h"
#include "p2p/job/rendezvous.h"
#include "p2p/nccl/lane_transport.h"
#include "p2p/transport.h"

namespace ringzero {

using Transports = std::vector<std::unique_ptr<Transport>>;  // one per worker
using MakeTransports =
    std::function<absl::StatusOr<Transports>(const std::vector<TransportOptions>&)>;

// Each worker makes its own, all at once: they wait for one another.
using MakeOne = std::function<absl::StatusOr<std::unique_ptr<Transport>>(const JobSeat&,
                                                                         const TransportOptions&)>;
absl::StatusOr<Transports> MakeTogether(const std::vector<TransportOptions>& options,
                                        const MakeOne& make);

MakeTransports LocalTransports();
MakeTransports ShmTransports();  // all ends in this process
// Lanes over memory: one for every ordered pair of workers, words over `words`.
MakeTransports LaneTransports(MakeTransports words = LocalTransports(),
                              PayloadMemory memory = HostMemory());
// One for each of these pairs whose workers are there, and for each worker with itself; messages of
// `word_kinds` take none.
MakeTransports LaneTransportsOf(std::vector<WorkerPair> pairs, std::vector<uint8_t> word_kinds);
// All ends in this process, with a shared board of pulses, as the workers of one host have.
MakeTransports UcxTransports();
// Over TCP alone, and silence is judged by messages, as between hosts.
MakeTransports UcxTcpTransports();
// Over UCX, as between hosts that the loopback interface leads to.
MakeTransports UcxHostsTransports();
// As on so many hosts, with an equal run of workers on each: those share memory, and meet the
// others over UCX.
MakeTransports MixedTransports(int hosts);
// Over NCCL, words over local transports: worker w has GPU w, in memory that the host can read, and
// all pairs have a lane.
MakeTransports NcclTransports();
// Why NcclTransports cannot make `workers` of them here; empty if they can be made.
std::string NcclMissing(int workers);
// Every message of `transports` comes late at random, by up to `max_delay`.
MakeTransports Delayed(MakeTransports transports, uint64_t seed,
                       std::chrono::microseconds max_delay);
// Payloads are checked from end to end.
MakeTransports Checksummed(MakeTransports transports);
// Without message threads: a thread of the test's polls each, and destroys it.
MakeTransports Polled(MakeTransports transports);
// The n-th message that arrives at `worker` has one bit flipped.
struct Damage {
  WorkerId worker;
  uint64_t message = 1;
  uint64_t seed = 0;
};
MakeTransports Damaged(MakeTransports transports, const Damage& damage);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_P2P_TRANSPORTS_H_
