// The model that a configuration names: its layers, and their description.
//
//   RZ_ASSIGN_OR_RETURN(ConfiguredModel model, MakeConfiguredModel(config.model, data->shape()));
//   RZ_ASSIGN_OR_RETURN(PlannedModel planned, PlanModel(model.description, request));
//
// Uses torch on the calling thread; this header needs none of torch's. Every worker makes the same.
#ifndef RINGZERO_INTEGRATIONS_TORCH_CONFIGURED_CONFIGURED_MODEL_H_
#define RINGZERO_INTEGRATIONS_TORCH_CONFIGURED_CONFIGURED_MODEL_H_

#include <vector>

#include "absl/status/statusor.h"
#include "integrations/data/dataset.h"
#include "integrations/torch/layer_factory.h"
#include "zero/config/config.h"
#include "zero/model_plan.h"

namespace ringzero {

struct ConfiguredModel {
  std::vector<LayerFactory> layers;
  ModelDescription description;
};

// InvalidArgument names the key of the section `model`, or the layer.
absl::StatusOr<ConfiguredModel> MakeConfiguredModel(const ModelConfig& model,
                                                    const SampleShape& shape);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_CONFIGURED_CONFIGURED_MODEL_H_
