// ShareResults: what the workers of a job returned, gathered at worker 0 over the rendezvous.
//
//   RZ_ASSIGN_OR_RETURN(std::vector<std::string> all, ShareResults(seat, mine, limit));
//   // at worker 0 all of them, by worker; at the others their own alone
//
// Called once by every worker, at its end. Results are of any size.
#ifndef RINGZERO_P2P_RENDEZVOUS_SHARE_RESULTS_H_
#define RINGZERO_P2P_RENDEZVOUS_SHARE_RESULTS_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/rendezvous/job_seat.h"

namespace ringzero {

// This worker's error comes back as it is. Worker 0: the first error among the others, with that
// worker's number in front; Unavailable when one has left nothing within `limit` (for all
// together). An error that only tells that another is not there (DeadlineExceeded, Unavailable) is
// replaced by that one's own, if it left one.
absl::StatusOr<std::vector<std::string>> ShareResults(const JobSeat& seat,
                                                      const absl::StatusOr<std::string>& mine,
                                                      std::chrono::milliseconds limit);

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_SHARE_RESULTS_H_
