// Counting FLOPs: one sample runs through the layers, and known operations are counted by shape.
//
//   RZ_RETURN_IF_ERROR(CheckCountable("block1", *layer->inner()));
//   RZ_ASSIGN_OR_RETURN(LayerCost cost, CountLayer("block1", *layer, inputs));
//
// Analytic and integer, never timed: every worker and every machine must get the same numbers.
#ifndef RINGZERO_INTEGRATIONS_TORCH_COST_COUNT_H_
#define RINGZERO_INTEGRATIONS_TORCH_COST_COUNT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/torch/layer.h"

namespace ringzero {

// InvalidArgument, asking for a cost, if a part of the module has parameters of its own and is no
// Linear, Bilinear, Conv, ConvTranspose, Embedding, norm or MultiheadAttention.
absl::Status CheckCountable(const std::string& layer_name, torch::nn::Module& module);

// Counts what this thread runs while it lives. One at a time and thread.
class CostMeter {
 public:
  // `inputs`: of the layer that is going to run.
  explicit CostMeter(const TensorList& inputs);
  ~CostMeter();
  LayerCost cost() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs the layer without autograd and in eval mode; `inputs` become its outputs. What is counted:
// matrix products and convolutions 2 per multiply-add (backward twice that), attention likewise,
// embeddings and norms by the size of what they read and write; at least one per input value.
absl::StatusOr<LayerCost> CountLayer(const std::string& layer_name, Layer& layer,
                                     TensorList& inputs);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_COST_COUNT_H_
