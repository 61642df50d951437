// ReceivedNeeds: how much a worker holds at once of what others have sent it, by its program: for
// transports that receive into memory of their own.
//
//   RZ_ASSIGN_OR_RETURN(const ReceivedBytes received, ReceivedNeeds(plan, self, metrics_count));
//   options.received_parameter_bytes = received.parameters;
#ifndef RINGZERO_ZERO_RECEIVED_NEEDS_H_
#define RINGZERO_ZERO_RECEIVED_NEEDS_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "sharding/op.h"
#include "sharding/plan.h"

namespace ringzero {

// A message's payload. `metrics_count`: numbers that a micro-batch reports.
size_t MessageBytes(const Plan& plan, const Op& message, int metrics_count);

// Given (and so received as a buffer of one's own), not shared.
bool IsOwnedMessage(Channel channel);

struct ReceivedBytes {
  size_t parameters = 0;  // of shared messages
  size_t sums = 0;        // of owned ones
};

// Per channel and size as many as there are among the messages that may be under way at once, and
// of copies that are held as many as their slots (HeldSlots) and some that are leaving; of others
// at most 2·`window`, half of them delivered and half still leaving. Address space: a block
// that is never used costs nothing. Errors of MakeProgram.
absl::StatusOr<ReceivedBytes> ReceivedNeeds(const Plan& plan, WorkerId self, int metrics_count);

// Of that, what a run comes to use: blocks are made when they are first needed, and the most of a
// size that follow each other within a channel's credit, and within two iterations, are alive
// together. An estimate: who is how far ahead is a matter of timing. Errors of MakeProgram.
absl::StatusOr<ReceivedBytes> ReceivedUse(const Plan& plan, WorkerId self, int metrics_count);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_RECEIVED_NEEDS_H_
