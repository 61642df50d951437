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
#ifndef RINGZERO_BENCH_RING_TRAFFIC_H_
#define RINGZERO_BENCH_RING_TRAFFIC_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "bench/ring/element.h"
#include "bench/ring/options.h"
#include "bench/ring/payload.h"
#include "bench/ring/waiting.h"

namespace ringzero {

// What the engine calls its forward copies.
inline constexpr uint8_t kCopyKind = 1;

struct TrafficSetup {
  Waiting* waiting = nullptr;  // outlives the traffic, like its transport
  Payload* payload = nullptr;  // outlives the traffic; of the memory that the transport has
  RingMode mode = RingMode::kShift;
  bool copy = false;  // receivers copy what arrives
  ElementType type = ElementType::kFloat;
  size_t bytes = 0;  // of one message
  int aggregate = 1;
  int buffers = 1;    // that take turns; kReduce: at least 2 x `aggregate`
  int first_sum = 0;  // numbers [first_sum, first_sum + buffers) of AllocateNumbered are its own
  uint64_t first_tag = 0;  // messages are numbered on from here
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

// Makes a buffer that was sent writable again. Its receivers are done with it, but the news may
// still be on its way: waits for that.
absl::StatusOr<Buffer> Reopen(Waiting& waiting, SharedBuffer& buffer);

// For all modes but kTrain (train_traffic.h). In kStream worker 0 sends, worker 1 receives, and two
// iterations are on their way. Worker 1 answers each iteration with a cache line; then worker 0
// begins the iteration after the next: the link is never empty, as in a tool's bandwidth test.
absl::StatusOr<std::unique_ptr<Traffic>> MakeTraffic(const TrafficSetup& setup);
// Payload of worker 1's answers.
inline constexpr size_t kStreamAnswerBytes = kPayloadAlignment;

// What the transport must be able to allocate for a setup, counted as in TransportOptions.
struct TrafficMemory {
  size_t parameter_bytes = 0;
  size_t sum_bytes = 0;
  size_t received_parameter_bytes = 0;
  size_t received_sum_bytes = 0;
  size_t own_bytes = 0;  // for Payload::Make, not from the transport
};
// `slots`: of each channel.
TrafficMemory MemoryOf(const TrafficSetup& setup, WorkerId self, int slots);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_TRAFFIC_H_
