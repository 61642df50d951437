// Makes and recognises the words of failures that began elsewhere.
#include "p2p/failure.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

constexpr char kAborted[] = "aborted by worker ";
constexpr char kDied[] = " died: its connection closed without a goodbye";

}  // namespace

absl::Status AbortedBy(WorkerId worker, const absl::Status& why) {
  if (IsEcho(why)) return why;
  return absl::Status(why.code(), absl::StrCat(kAborted, worker.value, ": ", why.message()));
}

absl::Status WorkerDied(WorkerId worker) {
  return absl::UnavailableError(absl::StrCat("worker ", worker.value, kDied));
}

bool IsEcho(const absl::Status& status) {
  const std::string message(status.message());
  return message.find(kAborted) != std::string::npos || message.find(kDied) != std::string::npos;
}

absl::Status CauseOf(const absl::Status& status) {
  const std::string message(status.message());
  const size_t at = message.find(kAborted);
  if (at == std::string::npos) return status;
  const size_t worker = at + sizeof("aborted by ") - 1;
  return absl::Status(status.code(), message.substr(worker));
}

}  // namespace ringzero
