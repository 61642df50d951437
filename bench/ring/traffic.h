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
  // Seconds that each of `iterations` took this worker; one more before them, from which the clock
  // runs, brings the workers into step.
  virtual absl::StatusOr<std::vector<double>> Time(int iterations) = 0;
  // One iteration with data of `repetition`; how many elements that came here were wrong.
  virtual absl::StatusOr<int64_t> Check(uint64_t repetition) = 0;
  // The first number that no message has had.
  virtual uint64_t next_tag() const = 0;
};

// Between each stamp and the next.
std::vector<double> SecondsBetween(
    const std::vector<std::chrono::steady_clock::time_point>& stamps);

// A buffer that was sent, to be written again: its receivers are done with it, but that may still
// be on its way.
absl::StatusOr<Buffer> Reopen(Waiting& waiting, SharedBuffer& buffer);

// All but kTrain (train_traffic.h). Of kStream worker 0 sends, worker 1 receives; two iterations are
// on their way. After each iteration worker 1 answers with a message of a cache line, upon which
// worker 0 begins the one after the next: a link that is never empty, as a tool's bandwidth test has it.
absl::StatusOr<std::unique_ptr<Traffic>> MakeTraffic(const TrafficSetup& setup);
// Payload of worker 1's answers.
inline constexpr size_t kStreamAnswerBytes = kPayloadAlignment;

// What the transport must be able to allocate for it, in TransportOptions' measure.
struct TrafficMemory {
  size_t parameter_bytes = 0;
  size_t sum_bytes = 0;
  size_t received_parameter_bytes = 0;
  size_t received_sum_bytes = 0;
  size_t own_bytes = 0;  // Payload::Make's, beside these
};
// `slots`: of each channel.
TrafficMemory MemoryOf(const TrafficSetup& setup, WorkerId self, int slots);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_TRAFFIC_H_
