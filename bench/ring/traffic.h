// Traffic: what one worker sends, passes on and receives in one mode and for one size.
//
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Traffic> traffic, MakeTraffic(setup));
//   // One per iteration:
//   RZ_ASSIGN_OR_RETURN(std::vector<double> seconds, traffic->Time(20));
//   // Elements:
//   RZ_ASSIGN_OR_RETURN(int64_t wrong, traffic->Check(repetition));
//
// All workers make the same calls in the same order and Meet before each. What reacts to a message
// runs where the engine reacts: on the transport's message thread (or in Poll); what reads payload
// (copies, sums, checks) runs on the calling thread.
//
// Messages are the engine's. Where workers share memory they are words: a receiver reads the
// sender's block, and all add to worker 0's sums. Elsewhere payload goes from block to block.
#ifndef RINGZERO_BENCH_RING_TRAFFIC_H_
#define RINGZERO_BENCH_RING_TRAFFIC_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "bench/ring/meeting.h"
#include "bench/ring/options.h"
#include "bench/ring/payload.h"
#include "p2p/transport.h"

namespace ringzero {

struct TrafficSetup {
  Waiting* waiting = nullptr;  // outlives the traffic, like its transport
  Payload* payload = nullptr;  // outlives the traffic; of the memory that the transport has
  RingMode mode = RingMode::kShift;
  bool copy = false;  // receivers copy what arrives
  ElementType type = ElementType::kFloat;
  size_t bytes = 0;  // of one message
  int aggregate = 1;
  int buffers = 1;         // to send, that take turns; kReduce: at least 2 x `aggregate`
  int slots = 2;           // to receive into, that take turns
  bool damage = false;     // worker 0 sends one wrong bit in the check of repetition 1
  uint64_t first_tag = 0;  // messages are numbered on from here
  // As large as MemoryOf says. `send`: the first block of its memory that the worker allocated.
  std::span<std::byte> send, receive;
};

class Traffic {
 public:
  virtual ~Traffic() = default;
  // Seconds that each of `iterations` took this worker. One more iteration before them brings the
  // workers into step; the clock runs from its end.
  virtual absl::StatusOr<std::vector<double>> Time(int iterations) = 0;
  // Runs one iteration with data of `repetition`; returns the number of wrong elements received.
  virtual absl::StatusOr<int64_t> Check(uint64_t repetition) = 0;
  // The first tag that no message has had.
  virtual uint64_t next_tag() const = 0;
};

// Seconds between each stamp and the next.
std::vector<double> SecondsBetween(
    const std::vector<std::chrono::steady_clock::time_point>& stamps);

// For all modes but kTrain (train_traffic.h). In kStream worker 0 sends, worker 1 receives, and two
// iterations are on their way. Worker 1 answers each iteration with a cache line; then worker 0
// begins the iteration after the next: the link is never empty, as in a tool's bandwidth test.
absl::StatusOr<std::unique_ptr<Traffic>> MakeTraffic(const TrafficSetup& setup);

// What a setup needs at one worker.
struct TrafficMemory {
  size_t send = 0;     // from the transport, of SentFrom's use
  size_t receive = 0;  // from the transport, kParameters; unused where workers share memory
  size_t own = 0;      // of Payload::Make, in all
};
TrafficMemory MemoryOf(const TrafficSetup& setup, WorkerId self);
MemoryUse SentFrom(RingMode mode);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_TRAFFIC_H_
