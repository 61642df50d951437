// ReferenceModel: all layers in one process, with ordinary parameters that are written before use.
#ifndef RINGZERO_TESTS_SUPPORT_REFERENCE_MODEL_H_
#define RINGZERO_TESTS_SUPPORT_REFERENCE_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "integrations/torch/layer_parts.h"
#include "tests/support/training_task.h"

namespace ringzero {

struct ReferenceParameter {
  std::string name;
  int layer = 0;
  bool trainable = true;
  std::vector<at::Tensor> leaves;  // tied ones: the first layer's first
  at::Tensor initial;
};

// As fp32, row-major.
std::vector<float> ValuesOf(const at::Tensor& tensor);

struct ReferenceNorm {
  std::string prefix;  // full: "bn1."
  BatchNormPart part;
  at::Tensor initial_mean, initial_variance;
  int64_t initial_count = 0;
};

class ReferenceModel {
 public:
  // Built as the ring builds it; dies (RZ_CHECK) if a factory fails.
  explicit ReferenceModel(const TrainingTask& task);

  // iteration and micro_batch key the random numbers of the layers. Inputs are cast to the type
  // that computes; what comes out is fp32, its gradients times the loss scale.
  // Outputs' gradients are multiplied by `scale`.
  TensorList Forward(TensorList inputs, int64_t iteration, int64_t micro_batch, double scale);
  void SetTraining(bool on);
  // The gradient of all its leaves, or undefined; the leaves' .grad is cleared.
  static at::Tensor TakeGradient(const ReferenceParameter& parameter);

  std::vector<ReferenceParameter>& parameters() { return parameters_; }
  std::vector<ReferenceNorm>& norms() { return norms_; }

 private:
  void AddLayer(const LayerFactory& factory, int index);

  void Cast(Layer& layer) const;

  uint64_t seed_;
  Precision precision_;
  at::ScalarType type_;
  std::vector<std::shared_ptr<Layer>> layers_;
  std::vector<ReferenceParameter> parameters_;
  std::vector<ReferenceNorm> norms_;
};

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SUPPORT_REFERENCE_MODEL_H_
