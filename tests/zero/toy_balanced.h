// The toy model with balanced sum windows, in one plain loop over all micro-batches of the run.
//
//   ToyOptions o{.workers = 3, .stages = 3, .slack = 0};
//   o.sum_windows = SumWindows::kBalanced;
//   EXPECT_EQ(*RunToyRing(o, LocalTransports()), RunBalancedToyReference(o));
//
// In fp32. It knows no windows: a stage is updated when the micro-batch of its worker is over, from
// all gradients since it was the last time. Everybody reads what was there before that stage's last
// update, but (slack 0) the worker whose turn it is.
#ifndef RINGZERO_TESTS_ZERO_TOY_BALANCED_H_
#define RINGZERO_TESTS_ZERO_TOY_BALANCED_H_

#include "tests/zero/toy_ring.h"

namespace ringzero {

ToyResult RunBalancedToyReference(const ToyOptions& options);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_ZERO_TOY_BALANCED_H_
