// Layer factories: how a model is handed to RingZero, one layer at a time, never whole.
//
//   std::vector<LayerFactory> model = {
//       {.name = "in",  .build = [] { return MakeLayer(torch::nn::Linear(784, 256)); }},
//       {.name = "act", .build = [] { return MakeLayer([](at::Tensor x) { return x.relu(); }); }},
//       {.name = "out", .build = [] { return MakeLayer(torch::nn::Linear(256, 10)); }}};
//
// Building a layer must be cheap and repeatable: every worker builds every layer, and keeps no
// memory for the parameters that it does not own. This header includes no header of torch; to write
// a `build`, include layer.h.
#ifndef RINGZERO_INTEGRATIONS_TORCH_LAYER_FACTORY_H_
#define RINGZERO_INTEGRATIONS_TORCH_LAYER_FACTORY_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "zero/model_plan.h"

namespace at {
class Tensor;
struct Generator;
}  // namespace at

namespace ringzero {

class Layer;
using TensorList = std::vector<at::Tensor>;

// Says that a parameter of this layer *is* a parameter of an earlier one (an LM head's embedding).
struct TiedParameter {
  std::string parameter;  // in this layer: "weight"
  std::string target;     // full name of the earlier parameter: "embedding.weight"
};

// Initial values that replace the drawn ones, e.g. from a file: returns true if it filled `values`
// (numel fp32, row-major) for the parameter or statistic of that full name. May be empty.
using Preset =
    std::function<absl::StatusOr<bool>(const std::string& name, std::vector<float>& values)>;

struct LayerFactory {
  std::string name;  // unique; a parameter's full name is "<name>.<its name in the layer>"
  std::function<std::shared_ptr<Layer>()> build;
  // Absent: counted for Linear, Conv, Embedding, norms and attention; anything else is an error.
  std::optional<LayerCost> cost = std::nullopt;
  std::vector<TiedParameter> tied = {};
  // Fills one parameter with its initial values, drawing only from `generator`, which is seeded by
  // (seed, full name). Absent: what `build` gave, under torch's generator seeded by (seed, layer
  // name).
  std::function<void(const std::string& parameter, at::Tensor values, at::Generator generator)>
      initialize = nullptr;
  // `build` gives a module that exists only once, and always the same one (it is the user's own).
  // Then what it holds at first are its initial values: RingModel takes the memory out of the
  // module and keeps it until the stage's owner has read it.
  bool ready = false;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_LAYER_FACTORY_H_
