// What a worker has sent, told apart: parameters and gradient sums of training, and everything
// else.
#ifndef RINGZERO_INTEGRATIONS_CLI_SENT_BYTES_H_
#define RINGZERO_INTEGRATIONS_CLI_SENT_BYTES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/transport.h"
#include "sharding/plan.h"

namespace ringzero {

struct SentBytes {
  uint64_t training = 0;  // forward and backward copies, injections, sums, retirements
  uint64_t other = 0;     // evaluation, the final collection, running statistics, metrics, tokens
};

// Measured bytes of a whole run of `plan`. Injections for evaluations and for the final collection
// share a channel with those for training; the plan says how many they are.
absl::StatusOr<SentBytes> SplitSentBytes(const Plan& plan, WorkerId self,
                                         const TransportStats& stats);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_SENT_BYTES_H_
