// A layer as built: what it holds (parameters, BatchNorm's statistics), its initial values, and
// what RingZero cannot train.
//
//   RZ_ASSIGN_OR_RETURN(std::shared_ptr<Layer> layer, BuildLayer(factory, seed));
//   RZ_RETURN_IF_ERROR(CheckLayer("block1", *layer));
//   for (const NamedTensor& parameter : ParametersOf(*layer)) …   // each once
//   RZ_RETURN_IF_ERROR(InitializeStage(request, buffer, nullptr));   // one layer at a time
//
// Initial values are keyed by (seed, name): every worker, worker count and stage cut has the same.
#ifndef RINGZERO_INTEGRATIONS_TORCH_LAYER_PARTS_H_
#define RINGZERO_INTEGRATIONS_TORCH_LAYER_PARTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/mutex.h"
#include "base/status.h"
#include "integrations/torch/layer.h"
#include "zero/layout.h"

namespace ringzero {

struct NamedTensor {
  std::string name;  // in the layer: "conv1.weight"
  at::Tensor tensor;
};

// InvalidArgument "layer "block1": …".
template <typename... What>
absl::Status InLayer(const std::string& name, const What&... what) {
  return InvalidArgument("layer \"", name, "\": ", what...);
}

// Calls `use` with `module` as that one of these classes which it is. False: it is none of them.
template <typename... Impls, typename Use>
bool AsOneOf(const std::shared_ptr<torch::nn::Module>& module, const Use& use) {
  const auto as = [&use](const auto& impl) { return impl != nullptr && (use(impl), true); };
  return (as(std::dynamic_pointer_cast<Impls>(module)) || ...);
}

// In the order of registration; a tensor registered twice stands under its first name only.
std::vector<NamedTensor> ParametersOf(const torch::nn::Module& layer);

// Mean, variance and count by their full names, in the order that they have in a StageLayout.
std::array<NamedTensor, 3> StatisticsOf(const std::string& layer_name, const BatchNormPart& part);

// InvalidArgument naming layer and member: parameters that are not dense fp32 of the CPU or share
// one storage, BatchNorm with momentum None, and InstanceNorm with running statistics.
absl::Status CheckLayer(const std::string& layer_name, Layer& layer);

// The running statistics of a stage's BatchNorms, which belong to the stage and not to this worker.
// While this object lives, the modules' momentum is 1 and their buffers start at zero, so that a
// forward leaves exactly the batch's mean and unbiased variance in them; the engine blends them
// with the momentum that the module was built with (zero/engine/statistics.h). Used by one thread.
class StageStatistics {
 public:
  // `layout`: the stage's; must outlive it.
  explicit StageStatistics(const StageLayout& layout) : layout_(layout) {}
  ~StageStatistics();  // the modules get their momentum back

  // The stage's layers in order.
  absl::Status Add(const std::string& layer_name, Layer& layer);

  void BeginForward();  // of training: the buffers will hold this batch's
  // The batch's statistics, as in the layout; empty if there are none. FailedPrecondition names the
  // module: a BatchNorm ran more or less than once, or the forward wrote to another buffer.
  absl::StatusOr<Buffer> TakeBatch();
  void Load(const std::byte* statistics);  // for an evaluation: the running ones

 private:
  const StageLayout& layout_;
  std::vector<BatchNormPart> norms_;  // their specs stand at 3·i in layout_.statistics
  std::vector<std::pair<NamedTensor, int64_t>> constants_;  // and how often torch saw them written
};

// The type in which layers compute, as in DeepSpeed: parameters and floating buffers have this
// type, and floating inputs of the first stage are cast to it. Outputs of the last stage are fp32
// again, so that losses are computed in fp32.
at::ScalarType ScalarTypeOf(ValueType type);

// In place: the tensor objects stay the same. Integers are not cast.
void CastLayer(Layer& layer, at::ScalarType type);

TensorList CastFloating(TensorList tensors, at::ScalarType type);

// Floating outputs in fp32. Their gradients are multiplied by `scale` in fp32 and then rounded to
// the outputs' own type: values too small for fp16 are not lost on the way into the model.
TensorList OutputsForLoss(TensorList outputs, double scale);

// Seeds torch's default generator of the CPU for a scope and puts its old state back. A process has
// one such generator, so scopes of several threads take turns.
class SeededScope {
 public:
  explicit SeededScope(uint64_t key);
  ~SeededScope();
  SeededScope(const SeededScope&) = delete;
  SeededScope& operator=(const SeededScope&) = delete;

 private:
  const MutexLock lock_;
  at::Generator generator_;
  at::Tensor state_;
};

// The seed of the generator that draws values for `name`.
uint64_t InitializationKey(uint64_t seed, const std::string& name);

// Builds in a SeededScope of (seed, layer name). Errors of the user's code become InvalidArgument
// and name the layer.
absl::StatusOr<std::shared_ptr<Layer>> BuildLayer(const LayerFactory& factory, uint64_t seed);

struct InitializationRequest {
  std::span<const LayerFactory> layers;  // of the stage
  const StageLayout& layout;
  uint64_t seed = 0;
  const Preset& preset;
  const std::map<std::string, at::Tensor>& kept;  // values of ready modules, by full name
};

// Fills a stage's parameters, each in its own strides, and its running statistics with what the
// built modules hold; null: not these. Holds one layer at a time.
absl::Status InitializeStage(const InitializationRequest& request, std::byte* parameters,
                             std::byte* statistics);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_LAYER_PARTS_H_
