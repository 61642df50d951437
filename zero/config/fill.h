// From resolved keys to the typed configuration; for config.cc.
//
//   for (const absl::Status& wrong : FillOurs(config)) …      // what is given of model, data, cyclic
//   for (const absl::Status& wrong : FillRun(config, {})) …   // what a run needs besides
//
// Both go on after what is wrong, and return all of it.
#ifndef RINGZERO_ZERO_CONFIG_FILL_H_
#define RINGZERO_ZERO_CONFIG_FILL_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "zero/config/config.h"

namespace ringzero {

// From config.keys, of which our own sections are right, one by one: they have no "auto".
std::vector<absl::Status> FillOurs(Config& config);

// Leaves out `refused`: sections (or keys at the top) with a value that no run takes.
std::vector<absl::Status> FillRun(Config& config, const std::set<std::string>& refused);

// An integer; the nearest int, where DeepSpeed takes any.
inline int Int(const ResolvedKeys& keys, absl::string_view path) {
  using Limits = std::numeric_limits<int>;
  return static_cast<int>(std::clamp<int64_t>(keys.Integer(path), Limits::min(), Limits::max()));
}

// Whether an iteration that overflows updates nothing: fp16, or bf16 unless it says otherwise.
bool SkipsOverflows(const ResolvedKeys& keys);

// optimizer.decay and optimizer.groups, and the numbers of both together.
absl::Status FillGroups(const ResolvedKeys& keys, OptimizerOptions& optimizer);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_FILL_H_
