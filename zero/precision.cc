// The recurrence of the loss scale.
#include "zero/precision.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ringzero {

LossScale::LossScale(const LossScaleOptions& options, const Seen& seen,
                     const std::optional<History>& history)
    : options_(options),
      seen_(seen),
      so_far_(history.value_or(History{.scale = options.initial,
                                       .scale_of_next = options.initial,
                                       .hysteresis = options.hysteresis})) {
  const int noted = so_far_.noted;
  // Those that earlier iterations have decided.
  for (int t = noted; t - LagOf(t) < noted; ++t) scales_[t] = so_far_.scale;
  scales_[noted] = so_far_.scale_of_next;
  skipped_before_[noted] = so_far_.skipped;
}

absl::Status LossScale::Note(int iteration, bool overflow) {
  RZ_CHECK(iteration == so_far_.noted,
           absl::StrCat("iteration ", iteration, " is noted after ", so_far_.noted));
  RZ_RETURN_IF_ERROR(Advance(overflow));
  const int noted = ++so_far_.noted;
  if (overflow) ++so_far_.skipped;
  for (int t = iteration + 1; t <= iteration + seen_.lag; ++t) {
    if (t - LagOf(t) == iteration) scales_[t] = so_far_.scale;
  }
  so_far_.scale_of_next = Of(noted);
  skipped_before_[noted] = so_far_.skipped;
  scales_.erase(scales_.begin(), scales_.lower_bound(noted - kKept));
  skipped_before_.erase(skipped_before_.begin(), skipped_before_.lower_bound(noted - kKept));
  return absl::OkStatus();
}

absl::Status LossScale::Advance(bool overflow) {
  if (!options_.dynamic) return absl::OkStatus();
  History& now = so_far_;
  if (!overflow) {
    const int good = now.noted - now.last_overflow - 1;  // in a row, before this one
    const bool doubles = good > 0 && good % options_.window == 0;
    if (doubles || options_.consecutive_hysteresis) now.hysteresis = options_.hysteresis;
    if (doubles) now.scale *= 2;
    return absl::OkStatus();
  }
  now.last_overflow = now.noted;
  if (now.hysteresis != 1) {  // below 1 it never comes to 1
    if (now.hysteresis > 1) --now.hysteresis;
    return absl::OkStatus();
  }
  const bool ends = options_.at_minimum == LossScaleOptions::AtMinimum::kEndsRun;
  if (ends && now.scale == options_.minimum) {
    return absl::OutOfRangeError(absl::StrCat(
        "gradients of iteration ", now.noted, " are not finite, and the loss scale is already ",
        options_.minimum, ", fp16.min_loss_scale: it cannot be lowered any more"));
  }
  now.scale = std::max(now.scale / 2, options_.minimum);
  return absl::OkStatus();
}

double LossScale::Of(int iteration) const {
  const auto found = scales_.find(iteration);
  RZ_CHECK(found != scales_.end(),
           absl::StrCat("the loss scale of iteration ", iteration, " is not known"));
  return found->second;
}

bool LossScale::Overflowed(int iteration) const {
  return UpdatesBefore(iteration + 1) == UpdatesBefore(iteration);
}

int LossScale::UpdatesBefore(int iteration) const {
  const auto found = skipped_before_.find(iteration);
  RZ_CHECK(found != skipped_before_.end(),
           absl::StrCat("what iteration ", iteration, " has skipped is not known"));
  return iteration - found->second;
}

}  // namespace ringzero
