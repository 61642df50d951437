// cyclic.sum_windows balanced: what goes with it.
#include <string>

#include "absl/strings/str_cat.h"
#include "zero/config/fill.h"

namespace ringzero {
namespace {

// What it needs, and what there is instead; empty: it goes.
std::string MissingForBalanced(const Config& config) {
  const CyclicConfig& cyclic = config.cyclic;
  const int stages =
      cyclic.boundaries.empty() ? cyclic.stages : static_cast<int>(cyclic.boundaries.size());
  const bool clips = cyclic.clipping != Clipping::kOff && cyclic.clipping != Clipping::kPerStage;
  if (cyclic.rule != Rule::kCdpV2) {
    return absl::StrCat("cyclic.rule cdp_v2, found ", ToString(cyclic.rule));
  }
  if (stages != 0 && stages != cyclic.workers) {
    return absl::StrCat("a stage per worker, found ", stages, " stages and ", cyclic.workers,
                        " workers");
  }
  if (config.batch.laps != 1) {
    return absl::StrCat("gradient_accumulation_steps 1, found ", config.batch.laps);
  }
  if (config.zero_stage != 3) {
    return absl::StrCat("zero_optimization.stage 3, found ", config.zero_stage);
  }
  if (clips) {
    return absl::StrCat("cyclic.clipping per_stage or gradient_clipping 0, found clipping ",
                        ToString(cyclic.clipping));
  }
  if (config.precision.compute == ValueType::kFp16) return "fp16.enabled false, found true";
  if (config.precision.skip_overflows) return "bf16.check_grad_overflow false, found true";
  if (cyclic.strict) return "cyclic.strict false, found true";
  if (cyclic.predict) return "cyclic.predict false, found true";
  return cyclic.slack > 1 ? absl::StrCat("cyclic.slack 0 or 1, found ", cyclic.slack) : "";
}

}  // namespace

absl::Status CheckSumWindows(const Config& config) {
  if (config.cyclic.sum_windows != SumWindows::kBalanced) return absl::OkStatus();
  const std::string missing = MissingForBalanced(config);
  if (missing.empty()) return absl::OkStatus();
  return config.Error("cyclic.sum_windows", absl::StrCat("balanced needs ", missing));
}

}  // namespace ringzero
