// Moves BatchNorm's statistics between modules and messages.
#include "integrations/torch/statistics.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

// A statistic in a message: fp32, whatever its module computes in.
at::Tensor At(const StatisticSpec& spec, const std::byte* message) {
  return at::from_blob(const_cast<std::byte*>(message) + spec.offset_bytes, {spec.numel},
                       at::TensorOptions(at::kFloat));
}

}  // namespace

StageStatistics::~StageStatistics() {
  for (const BatchNormPart& norm : norms_) norm.set_momentum(*norm.momentum);
}

absl::Status StageStatistics::Add(const std::string& layer_name, Layer& layer) {
  for (BatchNormPart& norm : BatchNormsOf(layer)) {
    const size_t at = 3 * norms_.size();
    const std::string name = absl::StrCat(layer_name, ".", norm.prefix, "running_mean");
    if (at + 2 >= layout_.statistics.size() || layout_.statistics[at].name != name) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", name, "\" is not in the plan: was the layer built differently?"));
    }
    norm.set_momentum(1.0);
    norms_.push_back(std::move(norm));
  }
  for (NamedTensor& constant : ConstantsOf(layer)) {
    constants_.push_back({absl::StrCat(layer_name, ".", constant.name), constant.tensor,
                          static_cast<int64_t>(constant.tensor._version())});
  }
  return absl::OkStatus();
}

void StageStatistics::BeginForward() {
  const at::NoGradGuard no_grad;
  for (BatchNormPart& norm : norms_) {
    // Zeros: with momentum 1 the old value still enters as 0 times itself, and it may be infinite.
    norm.mean.zero_();
    norm.variance.zero_();
    norm.count.zero_();
  }
}

absl::StatusOr<Buffer> StageStatistics::TakeBatch() {
  for (const Constant& constant : constants_) {
    if (static_cast<int64_t>(constant.tensor._version()) != constant.version) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the forward wrote to the buffer \"", constant.name,
          "\": only BatchNorm's running statistics may change, as they travel with their stage"));
    }
  }
  if (norms_.empty()) return Buffer();
  Buffer batch = MakeHeapBuffer(static_cast<size_t>(layout_.statistics_bytes));
  for (size_t i = 0; i < norms_.size(); ++i) {
    const StatisticSpec* specs = &layout_.statistics[3 * i];
    const int64_t runs = norms_[i].count.item<int64_t>();
    if (runs != 1) {
      return absl::FailedPreconditionError(absl::StrCat(
          "\"", specs[2].name, "\": a BatchNorm must run once per micro-batch, but it ran ", runs,
          " times"));
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

}  // namespace ringzero
