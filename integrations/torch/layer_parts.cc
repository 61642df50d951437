// Walks a layer's modules.
#include "integrations/torch/layer_parts.h"

#include <torch/nn/modules.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

template <typename Impl>
bool TakeBatchNorm(const std::string& name, const std::shared_ptr<torch::nn::Module>& module,
                   std::vector<BatchNormPart>& parts) {
  auto norm = std::dynamic_pointer_cast<Impl>(module);
  if (norm == nullptr) return false;
  if (!norm->running_mean.defined() || !norm->is_training()) return true;
  parts.push_back({.prefix = name.empty() ? "" : name + ".",
                   .module = module,
                   .mean = norm->running_mean,
                   .variance = norm->running_var,
                   .count = norm->num_batches_tracked,
                   .momentum = norm->options.momentum(),
                   .set_momentum = [norm](double m) { norm->options.momentum(m); }});
  return true;
}

// The probability of torch's own Dropout in `module`, if it is one.
std::optional<double> DropoutOf(const std::shared_ptr<torch::nn::Module>& module) {
  using namespace torch::nn;
  if (auto m = std::dynamic_pointer_cast<DropoutImpl>(module)) return m->options.p();
  if (auto m = std::dynamic_pointer_cast<Dropout2dImpl>(module)) return m->options.p();
  if (auto m = std::dynamic_pointer_cast<Dropout3dImpl>(module)) return m->options.p();
  if (auto m = std::dynamic_pointer_cast<AlphaDropoutImpl>(module)) return m->options.p();
  if (auto m = std::dynamic_pointer_cast<FeatureAlphaDropoutImpl>(module)) return m->options.p();
  if (auto m = std::dynamic_pointer_cast<LSTMImpl>(module)) return m->options.dropout();
  if (auto m = std::dynamic_pointer_cast<GRUImpl>(module)) return m->options.dropout();
  if (auto m = std::dynamic_pointer_cast<RNNImpl>(module)) return m->options.dropout();
  if (auto m = std::dynamic_pointer_cast<MultiheadAttentionImpl>(module)) {
    return m->options.dropout();
  }
  return std::nullopt;
}

bool TracksInstanceNorm(const std::shared_ptr<torch::nn::Module>& module) {
  using namespace torch::nn;
  const auto tracks = [](const auto& m) { return m != nullptr && m->running_mean.defined(); };
  return tracks(std::dynamic_pointer_cast<InstanceNorm1dImpl>(module)) ||
         tracks(std::dynamic_pointer_cast<InstanceNorm2dImpl>(module)) ||
         tracks(std::dynamic_pointer_cast<InstanceNorm3dImpl>(module));
}

absl::Status Refuse(const std::string& layer, const std::string& member, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("layer \"", layer, "\": ", member.empty() ? "" : member + " ", why));
}

absl::Status CheckParameters(const std::string& layer_name, const Layer& layer) {
  std::set<const void*> storages;
  for (const NamedTensor& p : ParametersOf(layer)) {
    const at::Tensor& t = p.tensor;
    if (t.scalar_type() != at::kFloat || !t.device().is_cpu() || t.layout() != at::kStrided) {
      return Refuse(layer_name, p.name, "must be a dense fp32 tensor of the CPU");
    }
    // Moving a storage moves every tensor in it.
    if (!t.is_non_overlapping_and_dense() || t.storage_offset() != 0 ||
        t.storage().nbytes() != static_cast<size_t>(t.numel()) * sizeof(float) ||
        !storages.insert(t.storage().unsafeGetStorageImpl()).second) {
      return Refuse(layer_name, p.name, "must have a storage of its own, without gaps or overlap");
    }
  }
  return absl::OkStatus();
}

}  // namespace

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

std::vector<BatchNormPart> BatchNormsOf(Layer& layer) {
  std::vector<BatchNormPart> parts;
  for (const auto& item : layer.inner()->named_modules()) {
    TakeBatchNorm<torch::nn::BatchNorm1dImpl>(item.key(), item.value(), parts) ||
        TakeBatchNorm<torch::nn::BatchNorm2dImpl>(item.key(), item.value(), parts) ||
        TakeBatchNorm<torch::nn::BatchNorm3dImpl>(item.key(), item.value(), parts);
  }
  return parts;
}

std::vector<NamedTensor> ConstantsOf(Layer& layer) {
  std::set<const void*> running;
  for (const BatchNormPart& part : BatchNormsOf(layer)) {
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

std::vector<ParameterSpec> ParameterSpecsOf(const std::string& layer_name, const Layer& layer) {
  std::vector<ParameterSpec> specs;
  for (const NamedTensor& p : ParametersOf(layer)) {
    specs.push_back({.name = absl::StrCat(layer_name, ".", p.name),
                     .shape = p.tensor.sizes().vec(),
                     .strides = p.tensor.strides().vec(),
                     .trainable = p.tensor.requires_grad()});
  }
  return specs;
}

std::vector<StatisticSpec> StatisticSpecsOf(const std::string& layer_name, Layer& layer) {
  std::vector<StatisticSpec> specs;
  for (const BatchNormPart& part : BatchNormsOf(layer)) {
    const std::string prefix = absl::StrCat(layer_name, ".", part.prefix);
    const double blend = part.momentum.value_or(0.1);
    specs.push_back({.name = prefix + "running_mean", .numel = part.mean.numel(), .blend = blend});
    specs.push_back(
        {.name = prefix + "running_var", .numel = part.variance.numel(), .blend = blend});
    specs.push_back(
        {.name = prefix + "num_batches_tracked", .kind = StatisticSpec::Kind::kCount, .numel = 1});
  }
  return specs;
}

absl::Status CheckLayer(const std::string& layer_name, Layer& layer) {
  RZ_RETURN_IF_ERROR(CheckParameters(layer_name, layer));
  for (const BatchNormPart& part : BatchNormsOf(layer)) {
    if (!part.momentum) {
      return Refuse(layer_name, part.prefix + "running_mean",
                    "has momentum None: a cumulative average depends on more than its own value; "
                    "give a momentum");
    }
  }
  for (const auto& item : layer.inner()->named_modules()) {
    const std::string name = item.key().empty() ? "module" : item.key();
    if (TracksInstanceNorm(item.value())) {
      return Refuse(layer_name, name,
                    "is an InstanceNorm with running statistics: only BatchNorm's are kept");
    }
    if (!item.value()->is_training()) continue;
    if (const std::optional<double> p = DropoutOf(item.value()); p && *p > 0) {
      return Refuse(layer_name, name,
                    "uses torch's Dropout, whose random numbers belong to the process and not to "
                    "the micro-batch: take ringzero's Dropout, or p = 0");
    }
  }
  return absl::OkStatus();
}

}  // namespace ringzero
