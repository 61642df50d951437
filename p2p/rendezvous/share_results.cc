// A result in parts: "<code> <parts>" under "result/<worker>", the text behind it.
#include "p2p/rendezvous/share_results.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"

namespace ringzero {
namespace {

// Whoever failed has put its reason before it was found missing, or is about to.
constexpr std::chrono::seconds kReasonLimit(1);

std::string HeadKey(int worker) { return absl::StrCat("result/", worker); }
std::string PartKey(int worker, size_t part) { return absl::StrCat("result/", worker, "/", part); }

absl::Status Put(const JobSeat& seat, const absl::StatusOr<std::string>& mine) {
  const std::string text = mine.ok() ? *mine : std::string(mine.status().message());
  const size_t parts = (text.size() + kMaxRendezvousValueBytes - 1) / kMaxRendezvousValueBytes;
  const int self = seat.self.value;
  for (size_t part = 0; part < parts; ++part) {
    RZ_RETURN_IF_ERROR(seat.rendezvous->Put(
        PartKey(self, part),
        text.substr(part * kMaxRendezvousValueBytes, kMaxRendezvousValueBytes)));
  }
  const int code = static_cast<int>(mine.status().code());
  return seat.rendezvous->Put(HeadKey(self), absl::StrCat(code, " ", parts));
}

// For all workers together: `limit` is what a message tells, `deadline` has what is left of it.
struct SharedPatience {
  explicit SharedPatience(std::chrono::milliseconds whole) : limit(whole), deadline(whole) {}
  const std::chrono::milliseconds limit;
  const Deadline deadline;
};

// A worker's result, or its error as it put it.
absl::StatusOr<std::string> Get(const JobSeat& seat, int worker, const SharedPatience& patience) {
  const absl::StatusOr<std::string> head =
      seat.rendezvous->Get(HeadKey(worker), patience.deadline.Left());
  if (head.status().code() == absl::StatusCode::kDeadlineExceeded) {
    const double seconds = std::chrono::duration<double>(patience.limit).count();
    return absl::UnavailableError(
        absl::StrFormat("worker %d has left no result within %g s", worker, seconds));
  }
  RZ_RETURN_IF_ERROR(head.status());
  const std::vector<std::string> words = absl::StrSplit(*head, ' ');
  int code = 0;
  size_t parts = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &code) ||
      !absl::SimpleAtoi(words[1], &parts) || code < 0 || code > 16) {
    return absl::InternalError(absl::StrCat("worker ", worker, "'s result cannot be read"));
  }
  std::string text;
  for (size_t part = 0; part < parts; ++part) {
    RZ_ASSIGN_OR_RETURN(const std::string next,
                        seat.rendezvous->Get(PartKey(worker, part), patience.deadline.Left()));
    text += next;
  }
  if (code == 0) return text;
  return absl::Status(static_cast<absl::StatusCode>(code), text);
}

// What a worker has to say when another did not come or went away: perhaps that one said why.
bool MayBlameWrongly(const absl::Status& why) {
  return why.code() == absl::StatusCode::kDeadlineExceeded ||
         (why.code() == absl::StatusCode::kUnavailable &&
          absl::StrContains(why.message(), "worker "));
}

// `found`, unless it only tells that others are not there and one of these has left its reason.
absl::Status FirstCause(const JobSeat& seat, const absl::Status& found) {
  if (!MayBlameWrongly(found)) return found;
  const SharedPatience patience(kReasonLimit);
  for (int w = 1; w < seat.workers; ++w) {
    const absl::Status theirs = Get(seat, w, patience).status();
    if (theirs.ok() || IsEcho(theirs) || MayBlameWrongly(theirs)) continue;
    return ReportedBy(WorkerId(w), theirs);
  }
  return found;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ShareResults(const JobSeat& seat,
                                                      const absl::StatusOr<std::string>& mine,
                                                      std::chrono::milliseconds limit) {
  if (seat.self.value != 0) {
    const absl::Status put = Put(seat, mine);
    if (!mine.ok()) return mine.status();
    RZ_RETURN_IF_ERROR(put);
    return std::vector<std::string>{*mine};
  }
  if (!mine.ok()) return FirstCause(seat, mine.status());
  const SharedPatience patience(limit);
  std::vector<std::string> all = {*mine};
  for (int w = 1; w < seat.workers; ++w) {
    absl::StatusOr<std::string> theirs = Get(seat, w, patience);
    if (!theirs.ok()) {
      return FirstCause(seat, ReportedBy(WorkerId(w), CauseOf(theirs.status())));
    }
    all.push_back(*std::move(theirs));
  }
  return all;
}

}  // namespace ringzero
