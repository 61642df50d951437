// What a micro-batch adds to a sum by its share of samples (sharding/samples.h).
#ifndef RINGZERO_ZERO_ENGINE_SAMPLES_H_
#define RINGZERO_ZERO_ENGINE_SAMPLES_H_

#include <cstddef>

#include "sharding/op.h"
#include "zero/engine.h"
#include "zero/gradient_sum.h"
#include "zero/layout.h"

namespace ringzero {

// Of an operation of a lap: the number of its micro-batch within the iteration.
int NumberInIteration(const EngineOptions& options, const Op& op);
// Whether that micro-batch has no samples. True of computing in training laps only.
bool IsMissing(const EngineOptions& options, const Op& op);
// What its gradients are multiplied by.
float WeightOfMicroBatch(const EngineOptions& options, const Op& op);

struct Weighing {
  float weight = 1;
  SumRounding rounding;
};

// AddContribution of the gradient, each value multiplied once by the weight, in fp32; by 1: as it
// is.
void AddWeighted(const StageLayout& layout, const GradientPart& part, const Weighing& how,
                 std::byte* sum);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_SAMPLES_H_
