// From resolved keys to the typed configuration; for config.cc.
//
//   RZ_RETURN_IF_ERROR(FillOurs(config));   // what is given of model, data, cyclic
//   RZ_RETURN_IF_ERROR(FillRun(config));    // what a run needs besides, or what is missing
#ifndef RINGZERO_ZERO_CONFIG_FILL_H_
#define RINGZERO_ZERO_CONFIG_FILL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "zero/config/config.h"

namespace ringzero {

// From config.keys, of which our own sections are right, one by one: they have no "auto".
absl::Status FillOurs(Config& config);

// config.keys has no value left that must be set.
absl::Status FillRun(Config& config);

// An integer that the registry has bounded.
inline int Int(const ResolvedKeys& keys, absl::string_view path) {
  return static_cast<int>(keys.Integer(path));
}

// Whether an iteration that overflows updates nothing: fp16, or bf16 unless it says otherwise.
bool SkipsOverflows(const ResolvedKeys& keys);

// optimizer.decay and optimizer.groups, and the numbers of both together.
absl::Status FillGroups(const ResolvedKeys& keys, OptimizerOptions& optimizer);

// Whether what is given goes with cyclic.sum_windows; of a filled configuration.
absl::Status CheckSumWindows(const Config& config);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_FILL_H_
