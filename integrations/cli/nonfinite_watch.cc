// Counts, and words.
#include "integrations/cli/nonfinite_watch.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ringzero {
namespace {

constexpr std::array<const char*, 3> kValueNames = {"loss", "gradient norm", "held-out loss"};

}  // namespace

std::optional<std::string> NonfiniteWatch::Note(Value what, int done, double value,
                                                absl::string_view from) {
  if (std::isfinite(value)) return std::nullopt;
  Seen& seen = seen_[static_cast<size_t>(what)];
  if (seen.times++ == 0) seen.first = done;
  if (std::exchange(said_, true)) return std::nullopt;
  return absl::StrCat("iteration ", done, "/", iterations_, ": the ",
                      kValueNames[static_cast<size_t>(what)], " is ", WithoutNanSign(value),
                      from.empty() ? "" : ", ", from);
}

std::optional<std::string> NonfiniteWatch::Summary() const {
  if (!said_) return std::nullopt;
  std::vector<std::string> parts;
  for (size_t i = 0; i < seen_.size(); ++i) {
    const auto [times, first] = seen_[i];
    if (times == 0) continue;
    parts.push_back(absl::StrCat("the ", kValueNames[i], " ", times,
                                 times == 1 ? " time" : " times", ", first in iteration ", first,
                                 "/", iterations_));
  }
  return absl::StrCat("not finite: ", absl::StrJoin(parts, "; "));
}

std::string OriginOf(const RunLog::Loss& loss, const Plan& plan) {
  const int count = static_cast<int>(loss.totals[RingTotals::kNonfiniteLosses]);
  if (count != 1) {
    return absl::StrCat("from ", count, " of ", plan.workers * plan.laps, " micro-batches");
  }
  const int number = static_cast<int>(loss.totals[RingTotals::kNonfiniteNumbers]);
  return absl::StrCat("from micro-batch ", number, " of worker ", number % plan.workers);
}

}  // namespace ringzero
