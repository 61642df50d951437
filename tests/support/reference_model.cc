// The whole model in one place.
#include "tests/support/reference_model.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "base/check.h"
#include "integrations/torch/initialization.h"
#include "integrations/torch/micro_batch_context.h"

namespace ringzero {
namespace {

at::ScalarType TypeOf(ValueType type) {
  if (type == ValueType::kFp32) return at::kFloat;
  return type == ValueType::kBf16 ? at::kBFloat16 : at::kHalf;
}

}  // namespace

std::vector<float> ValuesOf(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().to(at::kFloat).contiguous();
  const float* data = dense.const_data_ptr<float>();
  return {data, data + dense.numel()};
}

ReferenceModel::ReferenceModel(const TrainingTask& task)
    : seed_(task.seed), precision_(task.precision), type_(TypeOf(task.precision.compute)) {
  for (size_t i = 0; i < task.layers.size(); ++i) AddLayer(task.layers[i], static_cast<int>(i));
}

void ReferenceModel::AddLayer(const LayerFactory& factory, int index) {
  absl::StatusOr<std::shared_ptr<Layer>> layer = BuildLayer(factory, seed_);
  RZ_CHECK(layer.ok(), layer.status().ToString());
  for (const auto& item : (*layer)->named_parameters()) {
    const std::string name = factory.name + "." + item.key();
    std::string target = name;
    for (const TiedParameter& tie : factory.tied) {
      if (tie.parameter == item.key()) target = tie.target;
    }
    const auto known = std::find_if(parameters_.begin(), parameters_.end(),
                                    [&](const ReferenceParameter& p) { return p.name == target; });
    if (known != parameters_.end()) {
      known->leaves.push_back(item.value());
      continue;
    }
    const at::NoGradGuard no_grad;
    ReferenceParameter parameter{.name = name,
                                 .layer = index,
                                 .trainable = item.value().requires_grad(),
                                 .leaves = {item.value()}};
    parameter.initial = item.value().detach().clone();
    if (factory.initialize) {
      factory.initialize(item.key(), parameter.initial,
                         at::detail::createCPUGenerator(InitializationKey(seed_, name)));
    }
    parameters_.push_back(std::move(parameter));
  }
  for (BatchNormPart& part : (*layer)->batch_norms()) {
    norms_.push_back({.prefix = factory.name + "." + part.prefix,
                      .part = part,
                      .initial_mean = part.mean.clone(),
                      .initial_variance = part.variance.clone(),
                      .initial_count = part.count.item<int64_t>()});
  }
  Cast(**layer);
  layers_.push_back(*std::move(layer));
}

void ReferenceModel::Cast(Layer& layer) const {
  const auto cast = [this](at::Tensor tensor) {
    if (tensor.is_floating_point()) tensor.set_data(tensor.detach().to(type_));
  };
  for (const auto& item : layer.named_parameters()) cast(item.value());
  for (const auto& item : layer.named_buffers()) cast(item.value());
}

TensorList ReferenceModel::Forward(TensorList inputs, int64_t iteration, int64_t micro_batch,
                                   double scale) {
  const MicroBatchScope scope({.seed = seed_, .iteration = iteration, .micro_batch = micro_batch});
  for (at::Tensor& input : inputs) {
    if (input.is_floating_point()) input = input.to(type_);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    EnterLayer(static_cast<int64_t>(i));
    inputs = layers_[i]->forward(std::move(inputs));
  }
  for (at::Tensor& output : inputs) {
    if (!output.is_floating_point()) continue;
    output = output.to(at::kFloat);
    if (scale == 1 || !output.requires_grad()) continue;
    output.register_hook([scale](const at::Tensor& gradient) { return gradient * scale; });
  }
  return inputs;
}

void ReferenceModel::SetTraining(bool on) {
  for (const std::shared_ptr<Layer>& layer : layers_) layer->train(on);
}

at::Tensor ReferenceModel::TakeGradient(const ReferenceParameter& parameter) {
  at::Tensor gradient;
  // The last use's gradient comes first, as in a backward.
  for (auto leaf = parameter.leaves.rbegin(); leaf != parameter.leaves.rend(); ++leaf) {
    at::Tensor own = std::move(leaf->mutable_grad());
    leaf->mutable_grad().reset();
    if (!own.defined()) continue;
    gradient = gradient.defined() ? gradient + own : own;
  }
  return gradient;
}

}  // namespace ringzero
