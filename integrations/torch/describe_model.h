// DescribeModel: a model's layers as plain values, which is all that a plan is made from.
//
//   RZ_ASSIGN_OR_RETURN(const ModelDescription model, DescribeModel(layers, {example}));
//   RZ_ASSIGN_OR_RETURN(const PlannedModel planned, PlanModel(model, {.workers = 4}));
#ifndef RINGZERO_INTEGRATIONS_TORCH_DESCRIBE_MODEL_H_
#define RINGZERO_INTEGRATIONS_TORCH_DESCRIBE_MODEL_H_

#include <vector>

#include "absl/status/statusor.h"
#include "integrations/torch/layer_factory.h"
#include "zero/model_plan.h"

namespace ringzero {

// Builds one layer at a time, on this thread, and frees it again. `example`: the model's inputs for
// one sample (batch size 1), used only to count costs where a factory gives none; may be empty
// otherwise. InvalidArgument names the layer: a cost that cannot be counted, a duplicate name, a
// tie to nothing, a buffer that is neither constant nor a BatchNorm's running statistic, BatchNorm
// with momentum None.
absl::StatusOr<ModelDescription> DescribeModel(const std::vector<LayerFactory>& layers,
                                               const TensorList& example);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_DESCRIBE_MODEL_H_
