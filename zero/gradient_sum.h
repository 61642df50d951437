// The arithmetic of a travelling gradient sum: the first contribution is a copy, later ones add.
//
// A sum holds the gradients of a stage's trainable parameters (StageLayout::sum_offset_bytes) and a
// trailer with one bit for each: whether any micro-batch of the iteration has contributed to it.
#ifndef RINGZERO_ZERO_GRADIENT_SUM_H_
#define RINGZERO_ZERO_GRADIENT_SUM_H_

#include <cstddef>
#include <vector>

#include "zero/layout.h"

namespace ringzero {

// Clears the trailer: no contributions yet. The values may hold anything.
void StartSum(const StageLayout& layout, std::byte* sum);

// Adds numel fp32 values for one trainable parameter: copies them if its bit is not set, and sets
// it.
void AddContribution(const StageLayout& layout, int parameter, const float* gradient,
                     std::byte* sum);

// The average that a sum stands for, in the same layout: each value divided once by `divisor`, the
// trailer as it is. What has no contribution is left unspecified.
void AverageSum(const StageLayout& layout, const std::byte* sum, int divisor, std::byte* average);

// The bit of the `sum_index`-th trainable parameter.
bool HasContribution(const StageLayout& layout, const std::byte* sum, int sum_index);
// For who writes a contribution by itself.
void MarkContribution(const StageLayout& layout, int sum_index, std::byte* sum);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_GRADIENT_SUM_H_
