// A whole model in one process, for tests: built and initialised layer by layer, run in order.
#ifndef RINGZERO_TESTS_TORCH_MODELS_MODEL_H_
#define RINGZERO_TESTS_TORCH_MODELS_MODEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "integrations/torch/layer.h"

namespace ringzero::testing {

class Model {
 public:
  // Computes with one thread from then on.
  Model(const std::vector<LayerFactory>& factories, uint64_t seed);

  TensorList Forward(TensorList inputs);
  at::Tensor Forward(const at::Tensor& input) { return Forward(TensorList{input})[0]; }

  Layer& layer(const std::string& name) { return *layers_.at(index_.at(name)); }
  // By full name: "stem.conv.weight".
  at::Tensor parameter(const std::string& name) const { return parameters_.at(name); }
  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }
  int64_t parameter_count() const;
  // Names of parameters that the last backward gave no gradient, or one that is all zero.
  std::vector<std::string> WithoutGradient() const;
  void Evaluate();

 private:
  std::vector<std::shared_ptr<Layer>> layers_;
  std::map<std::string, size_t> index_;
  std::map<std::string, at::Tensor> parameters_;
};

// Fixed inputs, drawn by (seed).
at::Tensor RandomInput(at::IntArrayRef shape, uint64_t seed);
at::Tensor RandomTokens(at::IntArrayRef shape, int64_t vocabulary, uint64_t seed);

}  // namespace ringzero::testing

#endif  // RINGZERO_TESTS_TORCH_MODELS_MODEL_H_
