// What a built layer (or any module) holds: parameters, BatchNorm's statistics, and what RingZero
// cannot train.
//
//   RZ_RETURN_IF_ERROR(CheckLayer("block1", *layer));
//   for (const NamedTensor& parameter : ParametersOf(*layer)) …   // each once
#ifndef RINGZERO_INTEGRATIONS_TORCH_LAYER_PARTS_H_
#define RINGZERO_INTEGRATIONS_TORCH_LAYER_PARTS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "integrations/torch/layer.h"
#include "zero/layout.h"

namespace ringzero {

struct NamedTensor {
  std::string name;  // in the layer: "conv1.weight"
  at::Tensor tensor;
};

// In the order of registration; a tensor registered twice stands under its first name only.
std::vector<NamedTensor> ParametersOf(const torch::nn::Module& layer);

// A BatchNorm module that tracks running statistics and is in training mode. (One that the user has
// put into eval mode is frozen: its statistics are constants.)
struct BatchNormPart {
  std::string prefix;  // in the layer: "bn1." or ""
  std::shared_ptr<torch::nn::Module> module;
  at::Tensor mean, variance, count;
  std::optional<double> momentum;
  std::function<void(double)> set_momentum;
};
std::vector<BatchNormPart> BatchNormsOf(Layer& layer);

// Buffers that are no BatchNorm's: constants.
std::vector<NamedTensor> ConstantsOf(Layer& layer);

// Full names; shapes, strides and trainable as built.
std::vector<ParameterSpec> ParameterSpecsOf(const std::string& layer_name, const Layer& layer);
// mean, variance and count of each BatchNorm, in this order.
std::vector<StatisticSpec> StatisticSpecsOf(const std::string& layer_name, Layer& layer);

// InvalidArgument naming layer and member: parameters that are not dense fp32 of the CPU or share
// one storage, BatchNorm with momentum None, InstanceNorm with running statistics, and torch's own
// Dropout with p > 0 (its generator belongs to the process, not to the micro-batch).
absl::Status CheckLayer(const std::string& layer_name, Layer& layer);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_LAYER_PARTS_H_
