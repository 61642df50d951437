// FaultyTransport: another transport with faults: delays messages, loses one, fails after some; by
// a seed.
//
//   std::unique_ptr<Transport> slow = MakeFaulty(std::move(transport),
//       {.seed = 7, .max_delay = std::chrono::milliseconds(5)});
//
// For tests. How long a message waits depends on the seed, the worker, the channel and the
// message's number in its channel alone, not on timing; order within a channel is kept.
// Thread-safe, as Transport says; delayed sends come from a thread of its own.
#ifndef RINGZERO_P2P_FAULTY_TRANSPORT_H_
#define RINGZERO_P2P_FAULTY_TRANSPORT_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "p2p/transport.h"

namespace ringzero {

struct FaultOptions {
  uint64_t seed = 0;
  // Each message is sent after a random time in 0..max_delay. 0: at once.
  std::chrono::microseconds max_delay{0};
  // The n-th message that this worker sends (from 1, all channels) vanishes. 0: none.
  uint64_t drop_message = 0;
  // After this many messages the next one aborts the transport (Internal, "injected failure after
  // …"). 0: never.
  uint64_t fail_after = 0;
};

// Close says goodbye once everything delayed has been sent, so it may return OK and fail later;
// errors of a delayed send that are not the transport's end abort it.
std::unique_ptr<Transport> MakeFaulty(std::unique_ptr<Transport> transport,
                                      const FaultOptions& faults);

}  // namespace ringzero

#endif  // RINGZERO_P2P_FAULTY_TRANSPORT_H_
