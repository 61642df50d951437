// FaultyTransport: another transport with faults: delays messages, loses one, damages one, fails or
// does something worse at one; by a seed.
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
#include <functional>
#include <memory>

#include "p2p/transport.h"

namespace ringzero {

struct FaultOptions {
  uint64_t seed = 0;
  // Each message is sent after a random time in min_delay..max_delay (equal: a fixed one). 0: at
  // once.
  std::chrono::microseconds min_delay{0};
  std::chrono::microseconds max_delay{0};
  // The n-th message that this worker sends (from 1, all channels) vanishes. 0: none.
  uint64_t drop_message = 0;
  // After this many messages the next one aborts the transport (Internal, "injected failure after
  // …"). 0: never.
  uint64_t fail_after = 0;
  // In the n-th message that arrives at this worker (from 1, all channels) one bit, chosen by the
  // seed, is not what was sent. 0: none.
  uint64_t flip_message = 0;
  // Called when the n-th message is to be sent, before it is, with locks held: for ends of
  // processes. 0: never.
  uint64_t act_at_message = 0;
  std::function<void()> act;
};

// Close says goodbye once everything delayed has been sent, so it may return OK and fail later;
// errors of a delayed send that are not the transport's end abort it.
std::unique_ptr<Transport> MakeFaulty(std::unique_ptr<Transport> transport, FaultOptions faults);

}  // namespace ringzero

#endif  // RINGZERO_P2P_FAULTY_TRANSPORT_H_
