// Builds layers under keyed generators, walks their modules, copies their values out; moves
// BatchNorm's statistics between the modules and messages.
#include "integrations/torch/layer_parts.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "integrations/torch/stage_marks.h"

namespace ringzero {
namespace {

// Guards at::detail::getDefaultCPUGenerator(). The generator is a global of torch's, which no
// annotation of ours could name.
Mutex default_generator_mutex;

template <typename Spec>
const Spec* Find(const std::vector<Spec>& specs, const std::string& name) {
  const auto found = std::ranges::find(specs, name, &Spec::name);
  return found == specs.end() ? nullptr : &*found;
}

// True if `preset` gave the values of `name`, numel of them.
absl::StatusOr<bool> TakePreset(const Preset& preset, const std::string& name, int64_t numel,
                                std::vector<float>& values) {
  if (!preset) return false;
  RZ_ASSIGN_OR_RETURN(const bool given, preset(name, values));
  if (given && static_cast<int64_t>(values.size()) != numel) {
    return InvalidArgument("initial values of \"", name, "\": wanted ", numel, " of them, found ",
                           values.size());
  }
  return given;
}

absl::Status FillParameter(const InitializationRequest& request, const LayerFactory& factory,
                           const NamedTensor& parameter, std::byte* stage) {
  const std::string name = absl::StrCat(factory.name, ".", parameter.name);
  const ParameterSpec* spec = Find(request.layout.parameters, name);
  if (stage == nullptr || spec == nullptr) return absl::OkStatus();  // tied: its first layer's
  at::Tensor place = at::from_blob(stage + spec->master_offset_bytes, spec->shape, spec->strides,
                                   at::TensorOptions(at::kFloat));
  std::vector<float> values;
  RZ_ASSIGN_OR_RETURN(const bool given, TakePreset(request.preset, name, spec->numel, values));
  if (given) {
    place.copy_(at::from_blob(values.data(), spec->shape, at::TensorOptions(at::kFloat)));
  } else if (factory.initialize) {
    place.zero_();
    factory.initialize(parameter.name, place,
                       at::detail::createCPUGenerator(InitializationKey(request.seed, name)));
  } else if (const auto kept = request.kept.find(name); kept != request.kept.end()) {
    place.copy_(kept->second);
  } else {
    place.copy_(parameter.tensor);
  }
  return absl::OkStatus();
}

absl::Status FillStatistic(const InitializationRequest& request, const NamedTensor& statistic,
                           std::byte* stage) {
  if (stage == nullptr) return absl::OkStatus();
  const std::string& name = statistic.name;
  const StatisticSpec* spec = Find(request.layout.statistics, name);
  if (spec == nullptr) return Internal("no place for \"", name, "\"");
  std::vector<float> values;
  RZ_ASSIGN_OR_RETURN(const bool given, TakePreset(request.preset, name, spec->numel, values));
  if (spec->kind == StatisticSpec::Kind::kCount) {
    const int64_t count =
        given ? static_cast<int64_t>(values[0]) : statistic.tensor.item<int64_t>();
    std::memcpy(stage + spec->offset_bytes, &count, sizeof(count));
    return absl::OkStatus();
  }
  const auto kept = request.kept.find(name);
  const at::Tensor dense =
      (kept == request.kept.end() ? statistic.tensor : kept->second).contiguous();
  std::memcpy(stage + spec->offset_bytes, given ? values.data() : dense.const_data_ptr<float>(),
              static_cast<size_t>(spec->numel) * sizeof(float));
  return absl::OkStatus();
}

// The probability of the Dropout in `module`, if it has one; else 0.
double DropoutOf(const std::shared_ptr<torch::nn::Module>& module) {
  using namespace torch::nn;
  double probability = 0;
  AsOneOf<DropoutImpl, Dropout2dImpl, Dropout3dImpl, AlphaDropoutImpl, FeatureAlphaDropoutImpl>(
      module, [&](const auto& m) { probability = m->options.p(); });
  AsOneOf<LSTMImpl, GRUImpl, RNNImpl, MultiheadAttentionImpl>(
      module, [&](const auto& m) { probability = m->options.dropout(); });
  return probability;
}

bool TracksInstanceNorm(const std::shared_ptr<torch::nn::Module>& module) {
  using namespace torch::nn;
  bool tracks = false;
  AsOneOf<InstanceNorm1dImpl, InstanceNorm2dImpl, InstanceNorm3dImpl>(
      module, [&](const auto& m) { tracks = m->running_mean.defined(); });
  return tracks;
}

absl::Status CheckParameters(const std::string& layer_name, const Layer& layer) {
  std::set<const void*> storages;
  for (const NamedTensor& p : ParametersOf(layer)) {
    const at::Tensor& t = p.tensor;
    if (t.scalar_type() != at::kFloat || !t.device().is_cpu() || t.layout() != at::kStrided) {
      return InLayer(layer_name, p.name, " must be a dense fp32 tensor of the CPU");
    }
    // Moving a storage moves every tensor in it.
    if (!t.is_non_overlapping_and_dense() || t.storage_offset() != 0 ||
        t.storage().nbytes() != static_cast<size_t>(t.numel()) * sizeof(float) ||
        !storages.insert(t.storage().unsafeGetStorageImpl()).second) {
      return InLayer(layer_name, p.name,
                     " must have a storage of its own, without gaps or overlap");
    }
  }
  return absl::OkStatus();
}

// Buffers that belong to no BatchNormPart.
std::vector<NamedTensor> ConstantsOf(Layer& layer) {
  std::set<const void*> running;
  for (const BatchNormPart& part : layer.batch_norms()) {
    for (const at::Tensor& t : {part.mean, part.variance, part.count}) {
      running.insert(t.unsafeGetTensorImpl());
    }
  }
  std::vector<NamedTensor> constants;
  for (const auto& item : layer.named_buffers(/*recurse=*/true)) {
    if (!item.value().defined() || running.count(item.value().unsafeGetTensorImpl()) > 0) continue;
    constants.push_back({item.key(), item.value()});
  }
  return constants;
}

// A statistic in a message: fp32, whatever its module computes in.
at::Tensor At(const StatisticSpec& spec, const std::byte* message) {
  return at::from_blob(const_cast<std::byte*>(message) + spec.offset_bytes, {spec.numel},
                       at::TensorOptions(at::kFloat));
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ForLoss : torch::autograd::Function<ForLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double scale) {
    context->set_materialize_grads(false);  // an output that the loss does not need has no gradient
    context->saved_data["scale"] = scale;
    context->saved_data["type"] = static_cast<int64_t>(x.scalar_type());
    return x.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor()};
    const auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    return {gradients[0].mul(context->saved_data["scale"].toDouble()).to(type), at::Tensor()};
  }
};

void Cast(const at::Tensor& tensor, at::ScalarType type) {
  if (!tensor.defined() || !tensor.is_floating_point()) return;
  at::Tensor(tensor).set_data(tensor.detach().to(type));
}

}  // namespace

SeededScope::SeededScope(uint64_t key)
    : lock_(default_generator_mutex), generator_(at::detail::getDefaultCPUGenerator()) {
  state_ = generator_.get_state();
  generator_.set_current_seed(key);
}
SeededScope::~SeededScope() { generator_.set_state(state_); }

uint64_t InitializationKey(uint64_t seed, const std::string& name) {
  return MixKeys({seed, HashName(name)});
}

absl::StatusOr<std::shared_ptr<Layer>> BuildLayer(const LayerFactory& factory, uint64_t seed) {
  if (!factory.build) return InvalidArgument("layer \"", factory.name, "\" has no build");
  try {
    SeededScope scope(InitializationKey(seed, factory.name));
    std::shared_ptr<Layer> layer = factory.build();
    if (layer != nullptr) return layer;
  } catch (const std::exception& error) {
    return InvalidArgument("building layer \"", factory.name, "\": ", error.what());
  }
  return InLayer(factory.name, "build gave null");
}

absl::Status InitializeStage(const InitializationRequest& request, std::byte* parameters,
                             std::byte* statistics) {
  const at::NoGradGuard no_grad;
  std::shared_ptr<Layer> whole;  // keeps a ready module until its last part is read
  for (const LayerFactory& factory : request.layers) {
    RZ_ASSIGN_OR_RETURN(const std::shared_ptr<Layer> layer, BuildLayer(factory, request.seed));
    if (dynamic_cast<const MarkedLayer*>(layer.get()) != nullptr) whole = layer;
    for (const NamedTensor& parameter : ParametersOf(*layer)) {
      RZ_RETURN_IF_ERROR(FillParameter(request, factory, parameter, parameters));
    }
    for (const BatchNormPart& part : layer->batch_norms()) {
      for (const NamedTensor& statistic : StatisticsOf(factory.name, part)) {
        RZ_RETURN_IF_ERROR(FillStatistic(request, statistic, statistics));
      }
    }
  }
  return absl::OkStatus();
}

std::vector<BatchNormPart> Layer::batch_norms() {
  using namespace torch::nn;
  std::vector<BatchNormPart> parts;
  for (const auto& item : inner()->named_modules()) {
    const std::string prefix = item.key().empty() ? "" : item.key() + ".";
    const auto take = [&](const auto& norm) {
      if (!norm->running_mean.defined() || !norm->is_training()) return;
      parts.push_back({.prefix = prefix,
                       .mean = norm->running_mean,
                       .variance = norm->running_var,
                       .count = norm->num_batches_tracked,
                       .momentum = norm->options.momentum(),
                       .set_momentum = [norm](double m) { norm->options.momentum(m); }});
    };
    AsOneOf<BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl>(item.value(), take);
  }
  return parts;
}

bool Layer::draws() {
  return std::ranges::any_of(inner()->modules(),
                             [](const auto& m) { return m->is_training() && DropoutOf(m) > 0; });
}

std::vector<NamedTensor> ParametersOf(const torch::nn::Module& layer) {
  std::vector<NamedTensor> parameters;
  std::set<const void*> seen;
  for (const auto& item : layer.named_parameters(/*recurse=*/true)) {
    if (!item.value().defined()) continue;
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) {
      parameters.push_back({item.key(), item.value()});
    }
  }
  return parameters;
}

std::array<NamedTensor, 3> StatisticsOf(const std::string& layer_name, const BatchNormPart& part) {
  const std::string prefix = absl::StrCat(layer_name, ".", part.prefix);
  return {{{prefix + "running_mean", part.mean},
           {prefix + "running_var", part.variance},
           {prefix + "num_batches_tracked", part.count}}};
}

absl::Status CheckLayer(const std::string& layer_name, Layer& layer) {
  RZ_RETURN_IF_ERROR(CheckParameters(layer_name, layer));
  for (const BatchNormPart& part : layer.batch_norms()) {
    if (!part.momentum) {
      return InLayer(layer_name, part.prefix,
                     "running_mean has momentum None: a cumulative average "
                     "depends on more than its own value; give a momentum");
    }
  }
  for (const auto& item : layer.inner()->named_modules()) {
    const std::string name = item.key().empty() ? "module" : item.key();
    if (TracksInstanceNorm(item.value())) {
      return InLayer(layer_name, name,
                     " is an InstanceNorm with running statistics: only BatchNorm's are kept");
    }
  }
  return absl::OkStatus();
}

StageStatistics::~StageStatistics() {
  for (const BatchNormPart& norm : norms_) norm.set_momentum(*norm.momentum);
}

absl::Status StageStatistics::Add(const std::string& layer_name, Layer& layer) {
  for (BatchNormPart& norm : layer.batch_norms()) {
    const size_t at = 3 * norms_.size();
    const std::string name = StatisticsOf(layer_name, norm)[0].name;
    if (at + 2 >= layout_.statistics.size() || layout_.statistics[at].name != name) {
      return InvalidArgument("\"", name, "\" is not in the plan: was the layer built differently?");
    }
    norm.set_momentum(1.0);
    norms_.push_back(std::move(norm));
  }
  for (const auto& [name, tensor] : ConstantsOf(layer)) {
    constants_.push_back({{absl::StrCat(layer_name, ".", name), tensor}, tensor._version()});
  }
  return absl::OkStatus();
}

void StageStatistics::BeginForward() {
  const at::NoGradGuard no_grad;
  for (BatchNormPart& norm : norms_) {
    // Zeros: with momentum 1 the old value still enters, times 0, which is NaN if it is infinite.
    norm.mean.zero_();
    norm.variance.zero_();
    norm.count.zero_();
  }
}

absl::StatusOr<Buffer> StageStatistics::TakeBatch() {
  for (const auto& [constant, version] : constants_) {
    if (constant.tensor._version() != version) {
      return FailedPrecondition(
          "the forward wrote to the buffer \"", constant.name,
          "\": only BatchNorm's running statistics may change, as they travel with their stage");
    }
  }
  if (norms_.empty()) return Buffer();
  Buffer batch = MakeHeapBuffer(static_cast<size_t>(layout_.statistics_bytes));
  for (size_t i = 0; i < norms_.size(); ++i) {
    const StatisticSpec* specs = &layout_.statistics[3 * i];
    const int64_t runs = norms_[i].count.item<int64_t>();
    if (runs != 1) {
      return FailedPrecondition("\"", specs[2].name,
                                "\": a BatchNorm must run once per micro-batch, but it ran ", runs,
                                " times");
    }
    At(specs[0], batch.data()).copy_(norms_[i].mean);
    At(specs[1], batch.data()).copy_(norms_[i].variance);
  }
  return batch;
}

void StageStatistics::Load(const std::byte* statistics) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < norms_.size(); ++i) {
    const StatisticSpec* specs = &layout_.statistics[3 * i];
    norms_[i].mean.copy_(At(specs[0], statistics));
    norms_[i].variance.copy_(At(specs[1], statistics));
    int64_t count;
    std::memcpy(&count, statistics + specs[2].offset_bytes, sizeof(count));
    norms_[i].count.fill_(count);
  }
}

at::ScalarType ScalarTypeOf(ValueType type) {
  switch (type) {
    case ValueType::kFp32: return at::kFloat;
    case ValueType::kBf16: return at::kBFloat16;
    case ValueType::kFp16: return at::kHalf;
  }
  return at::kFloat;
}

void CastLayer(Layer& layer, at::ScalarType type) {
  for (const NamedTensor& parameter : ParametersOf(layer)) Cast(parameter.tensor, type);
  for (const BatchNormPart& norm : layer.batch_norms()) {
    Cast(norm.mean, type);
    Cast(norm.variance, type);
  }
  for (const NamedTensor& constant : ConstantsOf(layer)) Cast(constant.tensor, type);
}

TensorList CastFloating(TensorList tensors, at::ScalarType type) {
  for (at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.to(type);
  }
  return tensors;
}

TensorList OutputsForLoss(TensorList outputs, double scale) {
  for (at::Tensor& output : outputs) {
    if (!output.defined() || !output.is_floating_point()) continue;
    const bool learns = at::GradMode::is_enabled() && output.requires_grad();
    output = learns ? ForLoss::apply(output, scale) : output.to(at::kFloat);
  }
  return outputs;
}

}  // namespace ringzero
