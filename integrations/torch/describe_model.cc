// Builds each layer, looks at it, and frees it; counts by observing at::RecordFunction on this
// thread.
#include "integrations/torch/describe_model.h"

#include <ATen/record_function.h>
#include <c10/util/accumulate.h>
#include <torch/nn/modules.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/torch/layer_parts.h"
#include "integrations/torch/stage_marks.h"

namespace ringzero {

struct CostMeter::Tally {
  int64_t values = 0;  // in the inputs
  at::CallbackHandle handle = 0;
  int depth = 0;
  int64_t operations = 0;
  Reads reads;
};

namespace {

using Shape = std::vector<int64_t>;

int64_t Numel(const Shape& shape) { return c10::multiply_integers(shape); }

// The shape of input `i`; empty if it is no tensor.
Shape ShapeOf(const at::RecordFunction& function, size_t i) {
  const auto inputs = function.inputs();
  if (i >= inputs.size() || !inputs[i].isTensor() || !inputs[i].toTensor().defined()) return {};
  return inputs[i].toTensor().sizes().vec();
}

// Multiply-adds of [..., m, k] x [..., k, n], where a vector is a matrix with one row or column.
int64_t MatrixProduct(const Shape& a, const Shape& b) {
  if (a.empty() || b.empty()) return 0;
  if (b.size() == 1) return Numel(a);
  if (a.size() == 1) return Numel(b);
  const int64_t n = b.back();
  const int64_t batch_b = Numel(b) / std::max<int64_t>(1, n * b[b.size() - 2]);
  const int64_t rows = a[a.size() - 2];
  const int64_t batch_a = Numel(a) / std::max<int64_t>(1, rows * a.back());
  return std::max(batch_a, batch_b) * rows * a.back() * n;
}

// Positions where a convolution applies its weight once: outputs, or inputs if it is transposed.
int64_t ConvolutionPositions(const at::RecordFunction& function, const Shape& x, const Shape& w) {
  const auto inputs = function.inputs();
  const auto list = [&](size_t i, size_t dim, int64_t fallback) {
    if (i >= inputs.size() || !inputs[i].isIntList()) return fallback;
    const std::vector<int64_t> values = inputs[i].toIntVector();
    return values.empty() ? fallback : values[std::min(dim, values.size() - 1)];
  };
  const bool transposed = inputs.size() > 6 && inputs[6].isBool() && inputs[6].toBool();
  int64_t positions = x[0];
  for (size_t d = 2; d < x.size(); ++d) {
    if (transposed) {
      positions *= x[d];
      continue;
    }
    const int64_t reach = list(5, d - 2, 1) * (w[d] - 1) + 1;
    positions *= (x[d] + 2 * list(4, d - 2, 0) - reach) / list(3, d - 2, 1) + 1;
  }
  return positions;
}

int64_t Linear(const at::RecordFunction& f) {
  const Shape x = ShapeOf(f, 0), w = ShapeOf(f, 1);
  return x.empty() || w.empty() ? 0 : 2 * Numel(x) * (Numel(w) / std::max<int64_t>(1, w.back()));
}
int64_t Product(const at::RecordFunction& f) {
  return 2 * MatrixProduct(ShapeOf(f, 0), ShapeOf(f, 1));
}
int64_t AddedProduct(const at::RecordFunction& f) {
  return 2 * MatrixProduct(ShapeOf(f, 1), ShapeOf(f, 2));
}
int64_t Convolution(const at::RecordFunction& f) {
  const Shape x = ShapeOf(f, 0), w = ShapeOf(f, 1);
  if (x.size() < 3 || w.size() != x.size()) return 0;
  return 2 * ConvolutionPositions(f, x, w) * Numel(w);
}
int64_t Attention(const at::RecordFunction& f) {
  const Shape q = ShapeOf(f, 0), k = ShapeOf(f, 1);
  if (q.size() < 2 || k.size() < 2) return 0;
  return 4 * Numel(q) * k[k.size() - 2];
}
int64_t Bilinear(const at::RecordFunction& f) {
  const Shape x = ShapeOf(f, 0), w = ShapeOf(f, 2);
  return x.empty() ? 0 : 2 * (Numel(x) / std::max<int64_t>(1, x.back())) * Numel(w);
}
int64_t Gather(const at::RecordFunction& f) {
  const Shape table = ShapeOf(f, 0), index = ShapeOf(f, 1);
  return table.empty() ? 0 : Numel(index) * table.back();
}
// A norm reads twice and writes once, with a few operations each.
int64_t Norm(const at::RecordFunction& f) { return 8 * Numel(ShapeOf(f, 0)); }

using Count = int64_t (*)(const at::RecordFunction&);

// Operations as modules call them, before torch chooses a kernel. Operations nested in them are not
// counted again, so the numbers do not depend on the machine.
Count CountOf(const std::string& name) {
  static const auto* const counts =
      new std::map<std::string, Count>{{"aten::linear", Linear},
                                       {"aten::matmul", Product},
                                       {"aten::mm", Product},
                                       {"aten::bmm", Product},
                                       {"aten::addmm", AddedProduct},
                                       {"aten::baddbmm", AddedProduct},
                                       {"aten::convolution", Convolution},
                                       {"aten::bilinear", Bilinear},
                                       {"aten::embedding", Gather},
                                       {"aten::scaled_dot_product_attention", Attention},
                                       {"aten::layer_norm", Norm},
                                       {"aten::batch_norm", Norm},
                                       {"aten::group_norm", Norm},
                                       {"aten::instance_norm", Norm}};
  const auto found = counts->find(name);
  return found == counts->end() ? nullptr : found->second;
}

// Of the meter of this thread. Global: torch takes plain functions as callbacks.
thread_local CostMeter::Tally* tally = nullptr;

struct Counted final : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> OnStart(const at::RecordFunction& function) {
  if (tally == nullptr) return nullptr;
  for (const c10::IValue& input : function.inputs()) {
    if (input.isTensor()) tally->reads.insert(input.toTensor().unsafeGetTensorImpl());
    if (!input.isTensorList()) continue;
    for (const at::Tensor& tensor : input.toTensorVector()) {
      tally->reads.insert(tensor.unsafeGetTensorImpl());
    }
  }
  const Count count = CountOf(function.name());
  if (count == nullptr) return nullptr;
  if (tally->depth++ == 0) tally->operations += count(function);
  return std::make_unique<Counted>();
}

void OnEnd(const at::RecordFunction&, at::ObserverContext* context) {
  if (context != nullptr && tally != nullptr) --tally->depth;
}

bool IsCountable(const std::shared_ptr<torch::nn::Module>& module) {
  using namespace torch::nn;
  return AsOneOf<LinearImpl, BilinearImpl, EmbeddingImpl, MultiheadAttentionImpl, LayerNormImpl,
                 GroupNormImpl, BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl,
                 InstanceNorm1dImpl, InstanceNorm2dImpl, InstanceNorm3dImpl, Conv1dImpl, Conv2dImpl,
                 Conv3dImpl, ConvTranspose1dImpl, ConvTranspose2dImpl, ConvTranspose3dImpl>(
      module, [](const auto&) {});
}

std::vector<ParameterSpec> ParametersAsBuilt(const std::string& layer_name, const Layer& layer) {
  std::vector<ParameterSpec> specs;
  for (const NamedTensor& p : ParametersOf(layer)) {
    specs.push_back({.name = absl::StrCat(layer_name, ".", p.name),
                     .shape = p.tensor.sizes().vec(),
                     .strides = p.tensor.strides().vec(),
                     .trainable = p.tensor.requires_grad()});
  }
  return specs;
}

std::vector<StatisticSpec> StatisticsAsBuilt(const std::string& layer_name, Layer& layer) {
  std::vector<StatisticSpec> specs;
  for (const BatchNormPart& part : layer.batch_norms()) {
    const auto [mean, variance, count] = StatisticsOf(layer_name, part);
    const double blend = part.momentum.value_or(0.1);
    specs.push_back({.name = mean.name, .numel = mean.tensor.numel(), .blend = blend});
    specs.push_back({.name = variance.name, .numel = variance.tensor.numel(), .blend = blend});
    specs.push_back({.name = count.name, .kind = StatisticSpec::Kind::kCount, .numel = 1});
  }
  return specs;
}

// Runs the layer without autograd and in eval mode; `inputs` become its outputs.
absl::StatusOr<LayerCost> CountLayer(const std::string& layer_name, Layer& layer,
                                     TensorList& inputs) {
  try {
    const at::NoGradGuard no_grad;
    layer.eval();
    const CostMeter meter(inputs);
    inputs = layer.forward(std::move(inputs));
    return meter.cost();
  } catch (const std::exception& error) {
    return InvalidArgument("running one sample through layer \"", layer_name,
                           "\" to count its cost: ", error.what());
  }
}

// Describes layer after layer; remembers the parameters seen, for ties.
class Describer {
 public:
  explicit Describer(const TensorList& example) : values_(example), has_values_(!example.empty()) {}

  absl::StatusOr<ModelDescription> Describe(const std::vector<LayerFactory>& layers) && {
    size_t last_counted = 0;  // one past the last layer without a cost: no later one needs values
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!layers[i].cost) last_counted = i + 1;
    }
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i >= last_counted) has_values_ = false;
      RZ_RETURN_IF_ERROR(Add(layers[i]));
    }
    return std::move(model_);
  }

 private:
  struct Known {
    int layer;
    ParameterSpec spec;
  };

  absl::Status Add(const LayerFactory& factory) {
    const int index = static_cast<int>(model_.layers.size());
    if (factory.name.empty() || !names_.insert(factory.name).second) {
      return InLayer(factory.name, "names must be unique and not empty");
    }
    RZ_ASSIGN_OR_RETURN(const std::shared_ptr<Layer> layer, BuildLayer(factory, 0));
    if (dynamic_cast<const MarkedLayer*>(layer.get()) != nullptr) whole_ = layer;
    RZ_RETURN_IF_ERROR(CheckLayer(factory.name, *layer));
    LayerDescription description{.name = factory.name,
                                 .parameters = ParametersAsBuilt(factory.name, *layer),
                                 .statistics = StatisticsAsBuilt(factory.name, *layer)};
    const bool has_parameters = !description.parameters.empty();
    RZ_RETURN_IF_ERROR(RemoveTied(factory, index, description.parameters));
    RZ_ASSIGN_OR_RETURN(description.cost, CostOf(factory, *layer, has_parameters));
    for (const ParameterSpec& spec : description.parameters) {
      parameters_[spec.name] = {index, spec};
      model_.parameter_count += Numel(spec.shape);
    }
    model_.layers.push_back(std::move(description));
    return absl::OkStatus();
  }

  absl::Status RemoveTied(const LayerFactory& factory, int index,
                          std::vector<ParameterSpec>& parameters) {
    for (const TiedParameter& tie : factory.tied) {
      const std::string full = absl::StrCat(factory.name, ".", tie.parameter);
      const auto own = std::ranges::find(parameters, full, &ParameterSpec::name);
      if (own == parameters.end()) {
        return InLayer(factory.name, "ties \"", tie.parameter, "\", which it has not");
      }
      const auto target = parameters_.find(tie.target);
      if (target == parameters_.end()) {
        return InLayer(factory.name, "ties \"", tie.parameter, "\" to \"", tie.target,
                       "\", which is no parameter of an earlier layer");
      }
      const Known& known = target->second;
      if (known.spec.shape != own->shape || known.spec.strides != own->strides ||
          known.spec.trainable != own->trainable) {
        return InLayer(factory.name, "ties \"", tie.parameter, "\" to \"", tie.target,
                       "\": shape, strides and requires_grad must be equal");
      }
      int& last_use = model_.layers[known.layer].last_use;
      last_use = std::max(last_use, index);
      parameters_[full] = known;  // a later layer may tie to this name too
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

CostMeter::CostMeter(const TensorList& inputs) : tally_(std::make_unique<Tally>()) {
  for (const at::Tensor& x : inputs) tally_->values += x.defined() ? x.numel() : 0;
  tally = tally_.get();
  tally_->handle = at::addThreadLocalCallback(at::RecordFunctionCallback(OnStart, OnEnd)
                                                  .needsInputs(true)
                                                  .scopes({at::RecordScope::FUNCTION}));
}

CostMeter::~CostMeter() {
  at::removeCallback(tally_->handle);
  tally = nullptr;
}

LayerCost CostMeter::cost() const {
  const int64_t values = std::max<int64_t>(1, tally_->values);
  return {.forward = tally_->operations + values, .backward = 2 * tally_->operations + values};
}

const CostMeter::Reads& CostMeter::reads() const { return tally_->reads; }

absl::Status CheckCountable(const std::string& layer_name, torch::nn::Module& module) {
  for (const auto& item : module.named_modules()) {
    const bool has_parameters =
        std::ranges::any_of(item.value()->parameters(/*recurse=*/false), &at::Tensor::defined);
    if (!has_parameters || IsCountable(item.value())) continue;
    const std::string member =
        item.key().empty() ? "its module" : absl::StrCat("its member \"", item.key(), "\"");
    return InvalidArgument(
        "layer \"", layer_name, "\" needs a cost (LayerFactory::cost): ", member,
        " has parameters and is no Linear, Conv, Embedding, norm or attention, whose operations "
        "could be counted");
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelDescription> DescribeModel(const std::vector<LayerFactory>& layers,
                                               const TensorList& example) {
  if (layers.empty()) return absl::InvalidArgumentError("the model has no layers");
  return Describer(example).Describe(layers);
}

}  // namespace ringzero
