// The traffic of --mode stream: worker 0 sends, worker 1 receives; two iterations are on their way.
//
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Traffic> traffic, MakeStreamTraffic(setup));
//
// After each iteration worker 1 answers with a message of a cache line, upon which worker 0 begins
// the one after the next: a link that is never empty, as a tool's bandwidth test has it.
#ifndef RINGZERO_BENCH_RING_STREAM_TRAFFIC_H_
#define RINGZERO_BENCH_RING_STREAM_TRAFFIC_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "bench/ring/traffic.h"

namespace ringzero {

// Payload of worker 1's answers.
inline constexpr size_t kStreamAnswerBytes = kPayloadAlignment;

absl::StatusOr<std::unique_ptr<Traffic>> MakeStreamTraffic(const TrafficSetup& setup);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_STREAM_TRAFFIC_H_
