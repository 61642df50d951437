// DescribeModel: a model's layers as plain values, which is all that a plan is made from.
//
//   RZ_ASSIGN_OR_RETURN(const ModelDescription model, DescribeModel(layers, {example}));
//   RZ_ASSIGN_OR_RETURN(const PlannedModel planned, PlanModel(model, {.workers = 4}));
#ifndef RINGZERO_INTEGRATIONS_TORCH_DESCRIBE_MODEL_H_
#define RINGZERO_INTEGRATIONS_TORCH_DESCRIBE_MODEL_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/torch/layer.h"
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

// Counting FLOPs: one sample runs through the layers, and known operations are counted by shape.
// Analytic and integer, never timed: every worker and every machine must get the same numbers.

// InvalidArgument, asking for a cost, if a part of the module has parameters of its own and is no
// Linear, Bilinear, Conv, ConvTranspose, Embedding, norm or MultiheadAttention.
absl::Status CheckCountable(const std::string& layer_name, torch::nn::Module& module);

// Counts the operations this thread runs while the meter lives; one meter per thread at a time.
// Matrix products, convolutions and attention count 2 per multiply-add, embeddings and norms by the
// size of what they read and write. In the backward all of these count twice. Each input value
// adds 1.
class CostMeter {
 public:
  // `inputs`: of the layer that is going to run.
  explicit CostMeter(const TensorList& inputs);
  ~CostMeter();
  LayerCost cost() const;
  // What operations were given, by the tensors' implementations.
  using Reads = std::set<const void*>;
  const Reads& reads() const;

  struct Tally;

 private:
  const std::unique_ptr<Tally> tally_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_DESCRIBE_MODEL_H_
