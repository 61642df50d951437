// Builds each layer, looks at it, and frees it.
#include "integrations/torch/describe_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/torch/cost_count.h"
#include "integrations/torch/initialization.h"
#include "integrations/torch/layer_parts.h"
#include "integrations/torch/stage_marks.h"

namespace ringzero {
namespace {

absl::Status InLayer(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("layer \"", name, "\": ", what));
}

// Describes layer after layer; remembers the parameters seen, for ties.
class Describer {
 public:
  explicit Describer(const TensorList& example) : values_(example), has_values_(!example.empty()) {}

  absl::Status Add(const LayerFactory& factory) {
    const int index = static_cast<int>(model_.layers.size());
    if (factory.name.empty() || !names_.insert(factory.name).second) {
      return InLayer(factory.name, "names must be unique and not empty");
    }
    RZ_ASSIGN_OR_RETURN(const std::shared_ptr<Layer> layer, BuildLayer(factory, 0));
    if (dynamic_cast<const MarkedLayer*>(layer.get()) != nullptr) whole_ = layer;
    RZ_RETURN_IF_ERROR(CheckLayer(factory.name, *layer));
    LayerDescription description{.name = factory.name,
                                 .parameters = ParameterSpecsOf(factory.name, *layer),
                                 .statistics = StatisticSpecsOf(factory.name, *layer)};
    const bool has_parameters = !description.parameters.empty();
    RZ_RETURN_IF_ERROR(RemoveTied(factory, index, description.parameters));
    RZ_ASSIGN_OR_RETURN(description.cost, CostOf(factory, *layer, has_parameters));
    for (const ParameterSpec& spec : description.parameters) {
      parameters_[spec.name] = {index, spec};
      int64_t numel = 1;
      for (const int64_t extent : spec.shape) numel *= extent;
      model_.parameter_count += numel;
    }
    model_.layers.push_back(std::move(description));
    return absl::OkStatus();
  }

  ModelDescription Take() { return std::move(model_); }
  // Stops running the sample: no later layer needs it.
  void StopRunning() { has_values_ = false; }

 private:
  struct Known {
    int layer;
    ParameterSpec spec;
  };

  absl::Status RemoveTied(const LayerFactory& factory, int index,
                          std::vector<ParameterSpec>& parameters) {
    for (const TiedParameter& tie : factory.tied) {
      const std::string full = absl::StrCat(factory.name, ".", tie.parameter);
      const auto own = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const ParameterSpec& p) { return p.name == full; });
      if (own == parameters.end()) {
        return InLayer(factory.name,
                       absl::StrCat("ties \"", tie.parameter, "\", which it has not"));
      }
      const auto target = parameters_.find(tie.target);
      if (target == parameters_.end()) {
        return InLayer(factory.name, absl::StrCat("ties \"", tie.parameter, "\" to \"", tie.target,
                                                  "\", which is no parameter of an earlier layer"));
      }
      const Known& known = target->second;
      if (known.spec.shape != own->shape || known.spec.strides != own->strides ||
          known.spec.trainable != own->trainable) {
        return InLayer(factory.name,
                       absl::StrCat("ties \"", tie.parameter, "\" to \"", tie.target,
                                    "\": shape, strides and requires_grad must be equal"));
      }
      int& last_use = model_.layers[known.layer].last_use;
      last_use = std::max(last_use, index);
      const Known resolved = known;
      parameters_[full] = resolved;  // a later layer may tie to this name too
      parameters.erase(own);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<LayerCost> CostOf(const LayerFactory& factory, Layer& layer, bool has_parameters) {
    if (!factory.cost) {
      RZ_RETURN_IF_ERROR(CheckCountable(factory.name, *layer.inner()));
      if (!has_values_ && has_parameters) {
        return InLayer(factory.name, "needs a cost, or an example input to count it with");
      }
    }
    LayerCost counted{.forward = 1, .backward = 1};
    if (has_values_) {
      RZ_ASSIGN_OR_RETURN(counted, CountLayer(factory.name, layer, values_));
    }
    if (!factory.cost) return counted;
    if (factory.cost->forward < 0 || factory.cost->backward < 0) {
      return InLayer(factory.name, "its cost is negative");
    }
    return *factory.cost;
  }

  ModelDescription model_;
  std::shared_ptr<Layer> whole_;  // keeps a ready module until its last part is described
  std::set<std::string> names_;
  std::map<std::string, Known> parameters_;  // tied names stand for their target
  TensorList values_;
  bool has_values_;
};

}  // namespace

absl::StatusOr<ModelDescription> DescribeModel(const std::vector<LayerFactory>& layers,
                                               const TensorList& example) {
  if (layers.empty()) return absl::InvalidArgumentError("the model has no layers");
  size_t last_counted = 0;  // one past the last layer without a cost
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].cost) last_counted = i + 1;
  }
  Describer describer(example);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (i >= last_counted) describer.StopRunning();
    RZ_RETURN_IF_ERROR(describer.Add(layers[i]));
  }
  return describer.Take();
}

}  // namespace ringzero
