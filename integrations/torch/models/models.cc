// What the models share: parameters without initial values, costs, and masks by counter.
#include "integrations/torch/models/models.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "base/status.h"

namespace ringzero {
namespace {

// The key of the context's next draw.
uint64_t NextKey(MicroBatchContext& context) {
  return MixKeys({HashName("dropout"), context.seed, static_cast<uint64_t>(context.iteration),
                  static_cast<uint64_t>(context.micro_batch), static_cast<uint64_t>(context.layer),
                  static_cast<uint64_t>(context.call++)});
}

// Writes `count` values: 0 with the given probability, else 1 / (1 - probability).
void FillMask(float* mask, int64_t count, uint64_t key, double probability) {
  const auto threshold = static_cast<uint64_t>(std::llround(probability * 0x1p32));
  const float kept = static_cast<float>(1.0 / (1.0 - probability));
  for (int64_t block = 0; block * 4 < count; ++block) {
    const PhiloxBlock bits = PhiloxAt(key, 0, static_cast<uint64_t>(block));
    const int64_t end = std::min<int64_t>(4, count - block * 4);
    for (int64_t i = 0; i < end; ++i) mask[block * 4 + i] = bits[i] < threshold ? 0.0f : kept;
  }
}

}  // namespace

void StartAsIdentity(const std::string& parameter, const at::Tensor& values) {
  // The last part of a dotted name. npos + 1 is 0: the whole name.
  values.fill_(parameter.substr(parameter.rfind('.') + 1) == "weight" ? 1.0 : 0.0);
}

LayerCost ProductCost(int64_t multiply_adds, InputGradient inputs) {
  const int64_t products = inputs == InputGradient::kNeeded ? 2 : 1;
  return {.forward = 2 * multiply_adds, .backward = 2 * multiply_adds * products};
}

LayerCost NormCost(int64_t elements) {
  return {.forward = 8 * elements, .backward = 16 * elements};
}

LayerCost ElementwiseCost(int64_t elements) { return {.forward = elements, .backward = elements}; }

LayerCost operator+(LayerCost a, LayerCost b) {
  return {.forward = a.forward + b.forward, .backward = a.backward + b.backward};
}

Dropout::Dropout(double probability) : probability_(probability) {
  TORCH_CHECK(probability >= 0 && probability < 1, "Dropout's probability is ", probability,
              ": wanted 0 to below 1");
}

at::Tensor Dropout::forward(const at::Tensor& x) {
  if (!is_training() || probability_ == 0) return x;
  MicroBatchContext* context = CurrentContext();
  TORCH_CHECK(
      context != nullptr,
      "Dropout in training outside of a micro-batch: its mask is keyed by (seed, iteration, "
      "micro-batch, layer), so call it within a MicroBatchScope, or call eval() first");
  at::Tensor mask = at::empty(x.sizes(), at::TensorOptions().dtype(at::kFloat).device(at::kCPU));
  FillMask(mask.mutable_data_ptr<float>(), mask.numel(), NextKey(*context), probability_);
  return x * mask.to(x.options());
}

absl::Status CheckRange(absl::string_view key, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidArgument(key, " is ", value, ": wanted ", least, " to ", most);
}

}  // namespace ringzero
