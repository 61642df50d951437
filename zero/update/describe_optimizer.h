// An optimizer's options as text: all that changes a bit, a line each, for workers to compare.
//
//   Agree(seat, {{"optimizer", DescribeOptimizer(options)}});
//   // "… worker 2 has learning_rate = 0.002, worker 0 has 0.001 (optimizer)"
#ifndef RINGZERO_ZERO_UPDATE_DESCRIBE_OPTIMIZER_H_
#define RINGZERO_ZERO_UPDATE_DESCRIBE_OPTIMIZER_H_

#include <string>

#include "zero/update/optimizer_options.h"

namespace ringzero {

// "name = value" lines; numbers read back equal. Of an update of one's own: the names of its
// states.
std::string DescribeOptimizer(const OptimizerOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_UPDATE_DESCRIBE_OPTIMIZER_H_
