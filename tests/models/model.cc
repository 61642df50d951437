// Runs models for tests.
#include "tests/models/model.h"

#include <ATen/Parallel.h>

#include "base/philox.h"

namespace ringzero::testing {

Model::Model(const std::vector<LayerFactory>& factories, uint64_t seed) {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  for (const LayerFactory& factory : factories) {
    index_[factory.name] = layers_.size();
    layers_.push_back(factory.build());
    for (auto& item : layers_.back()->named_parameters()) {
      const std::string name = factory.name + "." + item.key();
      item.value().fill_(NAN);  // what initialize forgets is seen
      factory.initialize(item.key(), item.value(),
                         at::detail::createCPUGenerator(MixKeys({seed, HashName(name)})));
      parameters_[name] = item.value();
    }
  }
}

TensorList Model::Forward(TensorList inputs) {
  for (auto& layer : layers_) inputs = layer->forward(std::move(inputs));
  return inputs;
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const auto& [name, tensor] : parameters_) count += tensor.numel();
  return count;
}

std::vector<std::string> Model::WithoutGradient() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parameters_) {
    if (!tensor.grad().defined() || tensor.grad().abs().max().item<float>() == 0) {
      names.push_back(name);
    }
  }
  return names;
}

void Model::Evaluate() {
  for (auto& layer : layers_) layer->eval();
}

at::Tensor RandomInput(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

at::Tensor RandomTokens(at::IntArrayRef shape, int64_t vocabulary, uint64_t seed) {
  return at::randint(vocabulary, shape, at::detail::createCPUGenerator(seed),
                     at::TensorOptions().dtype(at::kLong));
}

}  // namespace ringzero::testing
