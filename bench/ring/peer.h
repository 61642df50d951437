// Peer: what --compare measures beside us, in the same run and by turns with us.
//
//   RZ_RETURN_IF_ERROR(CheckComparable(options));                        // before the run
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Peer> peer, MakePeer(setup));    // on every worker
//   RZ_ASSIGN_OR_RETURN(double microseconds, peer->Measure(traffic, 20));
//
// All workers make the same calls in the same order; used by the calling thread.
#ifndef RINGZERO_BENCH_RING_PEER_H_
#define RINGZERO_BENCH_RING_PEER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "bench/ring/host.h"
#include "bench/ring/meeting.h"
#include "bench/ring/options.h"
#include "bench/ring/traffic.h"

namespace ringzero {

// Memory that all workers of this host map, for peers that need no tool. Made before the processes
// are forked; unmapped with the last copy of this object. Thread-safe.
struct SharedArea {
  // ResourceExhausted without memory.
  static absl::StatusOr<SharedArea> Create(int workers, size_t bytes_each);
  std::span<std::byte> BytesOf(WorkerId worker) const;
  // A word that `worker` is woken by, on a cache line of its own; 0 at the start.
  std::atomic<uint32_t>& WordOf(WorkerId worker) const;

  std::shared_ptr<std::byte> memory;  // null: not made
  size_t words_bytes = 0;             // of all words, which stand before the parts
  size_t bytes_each = 0;              // of a worker's part
};

struct PeerSetup {
  const RingOptions& options;
  const HostFacts& facts;
  SharedArea area;
  Waiting* waiting = nullptr;  // outlives the peer
};

class Peer {
 public:
  explicit Peer(const PeerSetup& setup) : setup_(setup) {}
  virtual ~Peer() = default;
  virtual std::string name() const = 0;
  // How Measure averages its iterations; for the comparison our times are averaged in the same way.
  enum class Typical { kMedian, kMean };
  virtual Typical typical() const { return Typical::kMedian; }
  // Memory for messages of this size; not timed.
  virtual absl::Status Prepare(const TrafficSetup&) { return absl::OkStatus(); }
  // Microseconds of a typical iteration as this worker sees it; 0: another worker measures.
  virtual absl::StatusOr<double> Measure(const TrafficSetup& traffic, int iterations) = 0;

 protected:
  WorkerId self() const { return setup_.waiting->transport().self(); }
  const PeerSetup setup_;
};

// InvalidArgument if no peer does what these options do, NotFound if the tool is not installed.
absl::Status CheckComparable(const RingOptions& options);
absl::StatusOr<std::unique_ptr<Peer>> MakePeer(const PeerSetup& setup);

// Bytes of each worker's part of the shared area: `buffers` buffers for messages of `bytes`.
size_t PeerBytes(size_t bytes, int buffers);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_PEER_H_
