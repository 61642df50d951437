// ReceivedNeeds: how much memory a worker needs for the messages that it receives.
//
//   RZ_ASSIGN_OR_RETURN(const ReceivedBytes received, ReceivedNeeds(plan, self, metrics_count));
//   options.received_parameter_bytes = received.parameters;
//
// For transports that receive into memory of the receiver (ucx, nccl). Pure.
#ifndef RINGZERO_ZERO_RECEIVED_NEEDS_H_
#define RINGZERO_ZERO_RECEIVED_NEEDS_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/transport.h"
#include "sharding/op.h"
#include "sharding/plan.h"

namespace ringzero {

// The message's name at a transport, and the kSend that has it (sharding/op.h, MessageOp).
MessageKey MessageKeyOf(const Op& message);
Op SendOf(MessageKey key);

// A message's payload. `metrics_count`: numbers that a micro-batch reports.
size_t MessageBytes(const Plan& plan, const Op& message, int metrics_count);

// Given (and so received as a buffer of one's own), not shared.
bool IsOwnedMessage(Channel channel);

struct ReceivedBytes {
  size_t parameters = 0;  // of shared messages
  size_t sums = 0;        // of owned ones
};

// An upper bound, in bytes of address space; a block that is never used costs no memory.
// Each channel is counted by itself, and in it each size of message:
// - copies that are held: their slots (HeldSlots), and those that are leaving;
// - all others: 2·plan.window, half of them delivered and half leaving.
// Errors of MakeProgram.
absl::StatusOr<ReceivedBytes> ReceivedNeeds(const Plan& plan, WorkerId self, int metrics_count);

// An estimate of how many of these bytes a run uses. Timing decides how far a worker is ahead, so
// another run may use more or less. Of each size it counts the most messages that follow each other
// within a channel's credit and within two iterations. Errors of MakeProgram.
absl::StatusOr<ReceivedBytes> ReceivedUse(const Plan& plan, WorkerId self, int metrics_count);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_RECEIVED_NEEDS_H_
