// Tensors in, tensors out: checks, and nothing of the update itself.
#include "integrations/torch/torch_sharded_optimizer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "p2p/rendezvous/agreement.h"

namespace ringzero {
namespace {

bool IsDenseFloat(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
         tensor.scalar_type() == at::kFloat && tensor.is_non_overlapping_and_dense();
}

std::string Describe(const at::Tensor& tensor) {
  std::string text =
      absl::StrCat(c10::toString(tensor.scalar_type()), " on ", tensor.device().str(),
                   " of shape [", absl::StrJoin(tensor.sizes(), ", "), "]");
  if (tensor.layout() != at::kStrided) return absl::StrCat("sparse ", text);
  return absl::StrCat(text, " with strides [", absl::StrJoin(tensor.strides(), ", "), "]");
}

// Does value i of one storage belong to value i of the other? A dimension of size 1 has no stride
// to speak of.
bool LaidOutAlike(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) > 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return true;
}

absl::Status Check(const std::vector<NamedTensor>& parameters) {
  struct Range {
    const float* begin;
    const float* end;
    const std::string* name;
  };
  std::vector<Range> ranges;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.defined() || !IsDenseFloat(tensor)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter \"", name, "\": wanted Float on cpu, without gaps or overlap, found ",
          tensor.defined() ? Describe(tensor) : "nothing"));
    }
    const float* const begin = tensor.const_data_ptr<float>();
    ranges.push_back({begin, begin + tensor.numel(), &name});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin >= ranges[i - 1].end) continue;
    return absl::InvalidArgumentError(absl::StrCat("parameters \"", *ranges[i - 1].name,
                                                   "\" and \"", *ranges[i].name,
                                                   "\" have memory in common"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TorchShardedOptimizer>> TorchShardedOptimizer::Create(
    const std::vector<NamedTensor>& parameters, const TorchShardedOptions& options,
    const std::optional<ShardJob>& job) {
  std::unique_ptr<TorchShardedOptimizer> made(new TorchShardedOptimizer);
  if (const absl::Status bad = Check(parameters); !bad.ok()) {
    if (job.has_value()) Disagree(job->seat, bad);
    return bad;
  }
  ShardedOptimizerOptions sharded{.optimizer = options.optimizer,
                                  .micro_batches = options.micro_batches,
                                  .threads = options.threads,
                                  .wait_timeout = options.wait_timeout};
  std::vector<float*> values;
  for (const auto& [name, tensor] : parameters) {
    made->parameters_.push_back({name, tensor, tensor.detach(), tensor.requires_grad()});
    sharded.parameters.push_back({.name = name,
                                  .shape = tensor.sizes().vec(),
                                  .strides = tensor.strides().vec(),
                                  .trainable = tensor.requires_grad()});
    values.push_back(made->parameters_.back().values.data_ptr<float>());
  }
  RZ_ASSIGN_OR_RETURN(made->sharded_,
                      ShardedOptimizer::Create(std::move(sharded), std::move(values), job));
  return made;
}

absl::StatusOr<const float*> TorchShardedOptimizer::GradientOf(const Parameter& parameter) {
  const at::Tensor& tensor = parameter.tensor;
  if (!tensor.is_same_size(parameter.values) || !tensor.is_alias_of(parameter.values)) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter \"", parameter.name,
                     "\" has got other memory since the optimizer was made (a conversion of the "
                     "model, or set_data): make it afterwards"));
  }
  const at::Tensor& gradient = tensor.grad();
  if (!gradient.defined()) return nullptr;
  if (!parameter.trainable) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter \"", parameter.name,
                     "\" has a gradient, but required none when the optimizer was made"));
  }
  if (!IsDenseFloat(gradient) || !LaidOutAlike(gradient, tensor)) {
    return absl::InvalidArgumentError(absl::StrCat("gradient of \"", parameter.name, "\": wanted ",
                                                   Describe(tensor), ", found ",
                                                   Describe(gradient)));
  }
  return gradient.const_data_ptr<float>();
}

absl::Status TorchShardedOptimizer::Step() {
  std::vector<const float*> gradients;
  for (const Parameter& parameter : parameters_) {
    RZ_ASSIGN_OR_RETURN(const float* const gradient, GradientOf(parameter));
    gradients.push_back(gradient);
  }
  RZ_RETURN_IF_ERROR(sharded_->AddGradients(gradients));
  if (!sharded_->ready()) return absl::OkStatus();
  RZ_RETURN_IF_ERROR(sharded_->Step());
  // As torch's own writing in place does: a graph of before does not go on with values of after.
  for (const Parameter& parameter : parameters_) {
    if (parameter.trainable) parameter.tensor.unsafeGetTensorImpl()->bump_version();
  }
  return absl::OkStatus();
}

void TorchShardedOptimizer::ZeroGrad() {
  for (const Parameter& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

}  // namespace ringzero
