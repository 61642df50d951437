// A result in parts: "<code> <parts>" under "result/<worker>", the text behind it.
#include "p2p/share_results.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "p2p/failure.h"

namespace ringzero {
namespace {

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

absl::StatusOr<std::string> Get(const JobSeat& seat, int worker, std::chrono::milliseconds limit) {
  const absl::StatusOr<std::string> head = seat.rendezvous->Get(HeadKey(worker), limit);
  if (head.status().code() == absl::StatusCode::kDeadlineExceeded) {
    const double seconds = std::chrono::duration<double>(limit).count();
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
    RZ_ASSIGN_OR_RETURN(const std::string next, seat.rendezvous->Get(PartKey(worker, part), limit));
    text += next;
  }
  if (code == 0) return text;
  return ReportedBy(WorkerId(worker),
                    CauseOf(absl::Status(static_cast<absl::StatusCode>(code), text)));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ShareResults(const JobSeat& seat,
                                                      const absl::StatusOr<std::string>& mine,
                                                      std::chrono::milliseconds limit) {
  if (seat.self.value != 0) {
    const absl::Status put = Put(seat, mine);
    if (!mine.ok()) return mine.status();
    RZ_RETURN_IF_ERROR(put);
    return std::vector<std::string>();
  }
  if (!mine.ok()) return mine.status();
  std::vector<std::string> all = {*mine};
  for (int w = 1; w < seat.workers; ++w) {
    RZ_ASSIGN_OR_RETURN(std::string theirs, Get(seat, w, limit));
    all.push_back(std::move(theirs));
  }
  return all;
}

}  // namespace ringzero
