// A key for each worker.
#include "p2p/rendezvous/tell_all.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"

namespace ringzero {

absl::StatusOr<std::vector<std::string>> TellAll(const JobSeat& seat, absl::string_view key,
                                                 const std::string& mine,
                                                 absl::string_view missing) {
  RZ_RETURN_IF_ERROR(seat.rendezvous->Put(absl::StrCat(key, "/", seat.self.value), mine));
  const Deadline deadline(seat.join_limit);
  std::vector<std::string> told;
  for (int w = 0; w < seat.workers; ++w) {
    absl::StatusOr<std::string> theirs =
        seat.rendezvous->Get(absl::StrCat(key, "/", w), deadline.Left());
    if (!theirs.ok()) {
      return WhileWaiting(theirs.status(), absl::StrCat("worker ", w, " ", missing));
    }
    told.push_back(*std::move(theirs));
  }
  return told;
}

}  // namespace ringzero
