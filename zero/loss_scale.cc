// The recurrence.
#include "zero/loss_scale.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ringzero {

LossScale::LossScale(const LossScaleOptions& options, const Seen& seen)
    : options_(options), seen_(seen), scale_(options.initial), hysteresis_(options.hysteresis) {
  for (int t = 0; t < LagOf(t); ++t) scales_[t] = scale_;
  skipped_before_[0] = 0;
}

absl::Status LossScale::Note(int iteration, bool overflow) {
  RZ_CHECK(iteration == noted_, absl::StrCat("iteration ", iteration, " is noted after ", noted_));
  RZ_RETURN_IF_ERROR(Advance(overflow));
  ++noted_;
  if (overflow) ++skipped_;
  for (int t = iteration + 1; t <= iteration + seen_.lag; ++t) {
    if (t - LagOf(t) == iteration) scales_[t] = scale_;
  }
  skipped_before_[noted_] = skipped_;
  scales_.erase(scales_.begin(), scales_.lower_bound(noted_ - kKept));
  skipped_before_.erase(skipped_before_.begin(), skipped_before_.lower_bound(noted_ - kKept));
  return absl::OkStatus();
}

absl::Status LossScale::Advance(bool overflow) {
  if (!options_.dynamic) return absl::OkStatus();
  if (!overflow) {
    const int good = noted_ - last_overflow_ - 1;  // in a row, before this one
    const bool doubles = good > 0 && good % options_.window == 0;
    if (doubles || options_.consecutive_hysteresis) hysteresis_ = options_.hysteresis;
    if (doubles) scale_ *= 2;
    return absl::OkStatus();
  }
  last_overflow_ = noted_;
  if (hysteresis_ != 1) {  // below 1 it never comes to 1
    if (hysteresis_ > 1) --hysteresis_;
    return absl::OkStatus();
  }
  const bool ends = options_.at_minimum == LossScaleOptions::AtMinimum::kEndsRun;
  if (ends && scale_ == options_.minimum) {
    return absl::OutOfRangeError(absl::StrCat(
        "gradients of iteration ", noted_, " are not finite, and the loss scale is already ",
        options_.minimum, ", fp16.min_loss_scale: it cannot be lowered any more"));
  }
  scale_ = std::max(scale_ / 2, options_.minimum);
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
