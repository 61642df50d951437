// What the workers of a job tell each other at the rendezvous when the job begins and when it ends.
//
//   RZ_RETURN_IF_ERROR(Agree(seat, {{"versions", "ringzero = 0.5.0\ntorch = 2.11.0\n"},
//                                   {"configuration", "cyclic.slack = 1\n…"}}));
//   // InvalidArgument "worker 2 has cyclic.slack = 0, worker 0 has 1 (configuration)"
//   …
//   RZ_ASSIGN_OR_RETURN(std::vector<std::string> all, ShareResults(seat, mine, limit));
//
// Texts are of any size.
#ifndef RINGZERO_P2P_RENDEZVOUS_AGREEMENT_H_
#define RINGZERO_P2P_RENDEZVOUS_AGREEMENT_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "p2p/rendezvous/rendezvous.h"

namespace ringzero {

// A text that all workers must have alike: lines "name = value", or any other lines.
struct AgreementSection {
  std::string name;
  std::string text;
};

// Called before the first byte of training. Waits for all workers, for all together up to the
// seat's join_limit. All workers end with the same error. InvalidArgument: a difference, in words
// if it is within the first 16 KiB of a section. If a worker Disagrees: its code and words, with
// its number in front. Otherwise the errors of Rendezvous. After an error this worker has left the
// rendezvous, with the error as its last words.
absl::Status Agree(const JobSeat& seat, const std::vector<AgreementSection>& sections);

// Called instead of Agree by a worker that cannot come as far as Agree. The worker ends with `why`,
// and so do the others, at once.
void Disagree(const JobSeat& seat, const absl::Status& why);

// Called once, at the end. Worker 0 gets the results of all workers, by worker; another worker gets
// its own alone. This worker's error comes back as it is. Worker 0 also: the first error among the
// others, with that worker's number in front; Unavailable if a worker has left nothing within
// `limit` (for all together). An error that only tells of a missing worker (DeadlineExceeded,
// Unavailable) is replaced by the missing worker's own error, if it left one.
absl::StatusOr<std::vector<std::string>> ShareResults(const JobSeat& seat,
                                                      const absl::StatusOr<std::string>& mine,
                                                      std::chrono::milliseconds limit);

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_AGREEMENT_H_
