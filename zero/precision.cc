// The recurrence of the loss scale.
#include "zero/precision.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ringzero {
namespace {

LossScale::History FromTheStart(const LossScaleOptions& options) {
  return {
      .scale = options.initial, .scale_of_next = options.initial, .hysteresis = options.hysteresis};
}

}  // namespace

LossScale::LossScale(const LossScaleOptions& options, const Seen& seen,
                     const std::optional<History>& history)
    : options_(options), seen_(seen) {
  const History before = history.value_or(FromTheStart(options));
  scale_ = before.scale;
  hysteresis_ = before.hysteresis;
  last_overflow_ = before.last_overflow;
  noted_ = before.noted;
  skipped_ = before.skipped;
  // Those that earlier iterations have decided.
  for (int t = noted_; t - LagOf(t) < noted_; ++t) scales_[t] = scale_;
  scales_[noted_] = before.scale_of_next;
  skipped_before_[noted_] = skipped_;
}

LossScale::History LossScale::history() const {
  return {.noted = noted_,
          .scale = scale_,
          .scale_of_next = Of(noted_),
          .hysteresis = hysteresis_,
          .last_overflow = last_overflow_,
          .skipped = skipped_};
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
