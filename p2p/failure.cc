// Makes and recognises the words of failures that began elsewhere.
#include "p2p/failure.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr absl::string_view kWorker = "worker ";
constexpr absl::string_view kAborted = "aborted by worker ";
constexpr absl::string_view kDied = " died: its connection closed without a goodbye";
constexpr absl::string_view kSilent = " gave no sign of life for ";
constexpr absl::string_view kInterrupted = "interrupted before the run's end";

// The number at the start of `text`, which must follow "worker "; nothing if there is none.
std::optional<WorkerId> NumberOf(absl::string_view text) {
  const size_t end = text.find_first_not_of("0123456789");
  int worker = 0;
  if (!absl::SimpleAtoi(text.substr(0, end), &worker)) return std::nullopt;
  return WorkerId(worker);
}

bool BeginsWithAWorker(absl::string_view message) {
  return absl::StartsWith(message, kWorker) && NumberOf(message.substr(kWorker.size())).has_value();
}

}  // namespace

absl::Status AbortedBy(WorkerId worker, const absl::Status& why) {
  if (IsEcho(why)) return why;
  return absl::Status(why.code(), absl::StrCat(kAborted, worker.value, ": ", why.message()));
}

absl::Status WorkerDied(WorkerId worker) { return Unavailable(kWorker, worker.value, kDied); }

absl::Status WorkerSilent(WorkerId worker, std::chrono::milliseconds lasted) {
  const double seconds = std::chrono::duration<double>(lasted).count();
  return absl::UnavailableError(
      absl::StrFormat("%s%d%s%.1f s (peer_timeout)", kWorker, worker.value, kSilent, seconds));
}

std::optional<WorkerId> SilentWorker(const absl::Status& status) {
  const absl::string_view message = status.message();
  const size_t at = message.find(kSilent);
  if (at == absl::string_view::npos) return std::nullopt;
  const size_t worker = message.rfind(kWorker, at);
  if (worker == absl::string_view::npos) return std::nullopt;
  return NumberOf(message.substr(worker + kWorker.size()));
}

bool IsEcho(const absl::Status& status) {
  for (const absl::string_view words : {kAborted, kDied, kSilent}) {
    if (absl::StrContains(status.message(), words)) return true;
  }
  return false;
}

absl::Status CauseOf(const absl::Status& status) {
  const absl::string_view message = status.message();
  const size_t at = message.find(kAborted);
  if (at == absl::string_view::npos) return status;
  const absl::string_view named = message.substr(at + kAborted.size() - kWorker.size());
  const absl::string_view words = named.substr(named.find(": ") + 2);
  return absl::Status(status.code(), BeginsWithAWorker(words) ? words : named);
}

absl::Status ReportedBy(WorkerId worker, const absl::Status& status) {
  if (status.ok() || BeginsWithAWorker(status.message())) return status;
  return absl::Status(status.code(), absl::StrCat(kWorker, worker.value, ": ", status.message()));
}

absl::Status SaidBy(WorkerId self, const absl::Status& status) {
  const std::string who = absl::StrCat(kWorker, self.value);
  if (status.ok() || absl::StartsWith(status.message(), absl::StrCat(who, ": "))) return status;
  return Annotate(status, who);
}

absl::Status Interrupted() { return absl::CancelledError(kInterrupted); }

bool IsInterrupted(const absl::Status& status) {
  return absl::IsCancelled(status) && absl::StrContains(status.message(), kInterrupted);
}

absl::Status WhileWaiting(const absl::Status& status, absl::string_view words) {
  if (!absl::IsDeadlineExceeded(status) || BeginsWithAWorker(status.message())) return status;
  return absl::DeadlineExceededError(absl::StrCat(words, ": ", status.message()));
}

}  // namespace ringzero
