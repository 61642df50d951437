// Agree: before the first byte of training, the workers compare what all of them must have alike.
//
//   RZ_RETURN_IF_ERROR(Agree(seat, {{"versions", "ringzero = 0.5.0\ntorch = 2.11.0\n"},
//                                   {"configuration", "cyclic.slack = 1\n…"}}));
//   // InvalidArgument "worker 2 has cyclic.slack = 0, worker 0 has 1 (configuration)"
//
// A section is compared by its digest; its text, lines "name = value" or any others, says what
// differs. All workers end with the same error. A worker that cannot even come so far says so
// instead (Disagree), and the others end with its words at once.
#ifndef RINGZERO_P2P_RENDEZVOUS_AGREEMENT_H_
#define RINGZERO_P2P_RENDEZVOUS_AGREEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "p2p/rendezvous/job_seat.h"

namespace ringzero {

struct AgreementSection {
  std::string name;
  std::string text;  // of any size; what is beyond 16 KiB is only compared
};

// Waits for all workers, for all together up to the seat's join_limit. InvalidArgument: a
// difference. The code and words of a worker that Disagrees, with its number in front. As
// Rendezvous otherwise. After an error this worker has left the rendezvous, with the error as its
// last words.
absl::Status Agree(const JobSeat& seat, const std::vector<AgreementSection>& sections);

// Instead of Agree: this worker ends with `why`.
void Disagree(const JobSeat& seat, const absl::Status& why);

}  // namespace ringzero

#endif  // RINGZERO_P2P_RENDEZVOUS_AGREEMENT_H_
