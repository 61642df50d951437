// Builds layers under keyed generators and copies their values out.
#include "integrations/torch/initialization.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "base/status.h"
#include "integrations/torch/layer_parts.h"
#include "integrations/torch/stage_marks.h"

namespace ringzero {
namespace {

// Guards at::detail::getDefaultCPUGenerator(). The generator is a global of torch's, which no
// annotation of ours could name.
Mutex default_generator_mutex;

template <typename Spec>
const Spec* Find(const std::vector<Spec>& specs, const std::string& name) {
  for (const Spec& spec : specs) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
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
  if (spec == nullptr) return absl::OkStatus();  // tied: its first layer fills it
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

absl::Status FillStatistic(const InitializationRequest& request, const std::string& name,
                           const at::Tensor& initial, std::byte* stage) {
  const StatisticSpec* spec = Find(request.layout.statistics, name);
  if (spec == nullptr) return Internal("no place for \"", name, "\"");
  std::vector<float> values;
  RZ_ASSIGN_OR_RETURN(const bool given, TakePreset(request.preset, name, spec->numel, values));
  if (spec->kind == StatisticSpec::Kind::kCount) {
    const int64_t count = given ? static_cast<int64_t>(values[0]) : initial.item<int64_t>();
    std::memcpy(stage + spec->offset_bytes, &count, sizeof(count));
    return absl::OkStatus();
  }
  const auto kept = request.kept.find(name);
  const at::Tensor dense = (kept == request.kept.end() ? initial : kept->second).contiguous();
  std::memcpy(stage + spec->offset_bytes, given ? values.data() : dense.const_data_ptr<float>(),
              static_cast<size_t>(spec->numel) * sizeof(float));
  return absl::OkStatus();
}

// Calls `fill` with each of the stage's layers as built.
absl::Status ForLayers(const InitializationRequest& request,
                       const std::function<absl::Status(const LayerFactory&, Layer&)>& fill) {
  const at::NoGradGuard no_grad;
  std::shared_ptr<Layer> whole;  // keeps a ready module until its last part is read
  for (const LayerFactory& factory : request.layers) {
    RZ_ASSIGN_OR_RETURN(const std::shared_ptr<Layer> layer, BuildLayer(factory, request.seed));
    if (dynamic_cast<const MarkedLayer*>(layer.get()) != nullptr) whole = layer;
    RZ_RETURN_IF_ERROR(fill(factory, *layer));
  }
  return absl::OkStatus();
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
  if (!factory.build) {
    return InvalidArgument("layer \"", factory.name, "\" has no build");
  }
  try {
    SeededScope scope(InitializationKey(seed, factory.name));
    std::shared_ptr<Layer> layer = factory.build();
    if (layer != nullptr) return layer;
  } catch (const std::exception& error) {
    return InvalidArgument("building layer \"", factory.name, "\": ", error.what());
  }
  return InvalidArgument("layer \"", factory.name, "\": build gave null");
}

absl::Status InitializeParameters(const InitializationRequest& request, std::byte* parameters) {
  return ForLayers(request, [&](const LayerFactory& factory, Layer& layer) -> absl::Status {
    for (const NamedTensor& parameter : ParametersOf(layer)) {
      RZ_RETURN_IF_ERROR(FillParameter(request, factory, parameter, parameters));
    }
    return absl::OkStatus();
  });
}

absl::Status InitializeStatistics(const InitializationRequest& request, std::byte* statistics) {
  return ForLayers(request, [&](const LayerFactory& factory, Layer& layer) -> absl::Status {
    for (const BatchNormPart& part : layer.batch_norms()) {
      const std::string prefix = absl::StrCat(factory.name, ".", part.prefix);
      RZ_RETURN_IF_ERROR(FillStatistic(request, prefix + "running_mean", part.mean, statistics));
      RZ_RETURN_IF_ERROR(FillStatistic(request, prefix + "running_var", part.variance, statistics));
      RZ_RETURN_IF_ERROR(
          FillStatistic(request, prefix + "num_batches_tracked", part.count, statistics));
    }
    return absl::OkStatus();
  });
}

}  // namespace ringzero
