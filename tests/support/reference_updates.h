// The reference's updates: plain loops over one parameter's memory, written apart from zero/update.
//
//   UpdateReference(task.optimizer, "fc.weight", /*divisor=*/N * K, state);
//
// With the roundings that docs/decisions/0008 asks for, and the blocks of norms that algorithm.md
// section 5 asks for.
#ifndef RINGZERO_TESTS_SUPPORT_REFERENCE_UPDATES_H_
#define RINGZERO_TESTS_SUPPORT_REFERENCE_UPDATES_H_

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "zero/update/optimizer_options.h"

namespace ringzero {

// θ_t, θ_{t-1}, the sum and the optimizer's state of one parameter, in the parameter's own strides.
struct ReferenceState {
  at::Tensor now, before, sum, first, second;
  bool contributed = false;
  bool updated = false;  // by the last update
  float clip = 1;        // what its averaged gradient is multiplied by
  int updates = 0;
};

// `updates` is the number of those before.
void UpdateReference(const OptimizerOptions& options, const std::string& name, float divisor,
                     ReferenceState& s);

// What torch calls the states of an optimizer: its first, its second; empty: none.
std::pair<std::string, std::string> ReferenceStateNames(const OptimizerOptions& options,
                                                        const std::string& name,
                                                        const at::Tensor& parameter);

// Between a and b, in units of the last place of the largest number that took part: a, b, what was
// `before`, or what was added to it. All of one shape, fp32.
double LargestDifferenceInUlps(const at::Tensor& a, const at::Tensor& b, const at::Tensor& before);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SUPPORT_REFERENCE_UPDATES_H_
