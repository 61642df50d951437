// TellAll: each worker tells one value where the workers meet, and hears those of all.
//
//   RZ_ASSIGN_OR_RETURN(const std::vector<std::string> hosts,
//                       TellAll(seat, "host", mine, "has not told its host"));
//   hosts[2];   // what worker 2 has told, under the key "host/2"
#ifndef RINGZERO_P2P_RENDEZVOUS_TELL_ALL_H_
#define RINGZERO_P2P_RENDEZVOUS_TELL_ALL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "p2p/rendezvous/job_seat.h"

namespace ringzero {

// By worker. All workers of the job must call it, once for a key. Waits at most seat.join_limit for
// all together: DeadlineExceeded, "worker 2 has not told its host: …", names the first worker that
// is missing. Else the errors of Rendezvous: an error that names a lost worker stays as it is.
absl::StatusOr<std::vector<std::string>> TellAll(const JobSeat& seat, absl::string_view key,
                                                 const std::string& mine,
                                                 absl::string_view missing);

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_TELL_ALL_H_
