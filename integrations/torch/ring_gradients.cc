// Gradients: products that go into the sum at once, and tensors that are handed over.
#include <string>
#include <utility>

#include "base/status.h"
#include "integrations/torch/linear.h"
#include "integrations/torch/ring_model_impl.h"
#include "zero/gradient_sum.h"

namespace ringzero {

void RingModel::Impl::FindWeights() {
  std::map<std::pair<int, int>, int> names;
  for (const auto& [name, place] : places_) ++names[{place.stage, place.parameter}];
  for (const auto& [place, count] : names) {
    const auto [j, i] = place;
    const at::Tensor& tensor = stages_[j].parameters[i];
    const bool tied = count > 1;
    if (tied || tensor.dim() != 2 || !tensor.requires_grad() || !tensor.is_contiguous()) continue;
    weights_[tensor.unsafeGetTensorImpl()] = {.place = {j, i}};
  }
}

void RingModel::Impl::StartTaking() {
  for (auto& [tensor, weight] : weights_) weight = {.place = weight.place};
  for (RingStage& stage : stages_) stage.taken.clear();
  SetCurrentGradientSink(sink_slot_);
}

void RingModel::Impl::StopTaking() {
  if (CurrentGradientSink() == this) SetCurrentGradientSink(nullptr);
}

int64_t RingModel::Impl::OnUse(const at::Tensor& weight) {
  const auto found = weights_.find(weight.unsafeGetTensorImpl());
  if (found != weights_.end()) ++found->second.uses;
  return pass_;
}

bool RingModel::Impl::TakeProduct(int64_t use, const at::Tensor& weight, const at::Tensor& grad,
                                  const at::Tensor& x) {
  const auto found = weights_.find(weight.unsafeGetTensorImpl());
  // Autograd adds up several uses of a weight: their order is autograd's own.
  if (found == weights_.end() || found->second.uses != 1 || use != pass_) return false;
  const auto [j, parameter] = found->second.place;
  RingStage& stage = stages_[j];
  const bool open = state_ == State::kForwarded && stage.begun && !stage.closed;
  if (!open || std::this_thread::get_id() != thread_) return false;
  if (grad.scalar_type() != at::kFloat || x.scalar_type() != at::kFloat) return false;
  found->second.taken = true;

  // Only into fp32 sums: narrower sums are rounded at random, and a product adds without that.
  const bool joins = layouts_[j].sum_type == ValueType::kFp32 && !options_.products_first;
  if (std::byte* sum = joins ? engine_->OpenSum(StageId(j)) : nullptr; sum != nullptr) {
    const ParameterSpec& spec = layouts_[j].parameters[parameter];
    at::Tensor values = at::from_blob(sum + spec.sum_offset_bytes, weight.sizes(), at::kFloat);
    if (!HasContribution(layouts_[j], sum, spec.sum_index)) {
      at::mm_out(values, grad.t(), x);
      MarkContribution(layouts_[j], spec.sum_index, sum);
      return true;
    }
    if (AddProduct(grad, x, values)) return true;
  }
  auto product = std::make_shared<at::Tensor>(grad.t().mm(x));
  const float* data = product->const_data_ptr<float>();
  stage.taken.push_back({.parameter = parameter, .data = data, .keep = std::move(product)});
  return true;
}

// A gradient that cannot be taken is dropped with its error.
absl::StatusOr<StageGradient> RingModel::Impl::TakeGradients(int j) {
  RingStage& stage = stages_[j];
  for (size_t i = 0; i < stage.parameters.size(); ++i) {
    at::Tensor& gradient = stage.parameters[i].mutable_grad();
    if (!layouts_[j].parameters[i].trainable || !gradient.defined()) continue;
    auto values = std::make_shared<at::Tensor>(std::move(gradient));
    gradient.reset();
    RZ_RETURN_IF_ERROR(CheckGradient(j, i, *values));
    if (values->strides() != stage.parameters[i].strides()) {
      // Gradients travel in the order of the parameter's own memory.
      const at::NoGradGuard no_grad;
      at::Tensor ordered =
          at::empty_strided(values->sizes(), stage.parameters[i].strides(), values->options());
      ordered.copy_(*values);
      *values = std::move(ordered);
    }
    const void* data = values->const_data_ptr();
    stage.taken.push_back({.parameter = static_cast<int>(i),
                           .data = data,
                           .keep = std::move(values),
                           .type = options_.planned.precision.compute});
  }
  return std::exchange(stage.taken, {});
}

absl::Status RingModel::Impl::CheckGradient(int j, size_t i, const at::Tensor& gradient) const {
  const std::string& name = layouts_[j].parameters[i].name;
  const at::Tensor& parameter = stages_[j].parameters[i];
  const auto weight = weights_.find(parameter.unsafeGetTensorImpl());
  if (weight != weights_.end() && weight->second.taken) {
    return FailedPrecondition("\"", name,
                              "\" is read by ringzero::Linear and elsewhere: its gradient has "
                              "parts, which autograd has to add up; read it by at::linear");
  }
  if (gradient.layout() != at::kStrided || gradient.scalar_type() != parameter.scalar_type() ||
      gradient.sizes() != parameter.sizes()) {
    return FailedPrecondition("the gradient of \"", name, "\" must be dense ",
                              ToString(options_.planned.precision.compute),
                              " of the parameter's shape");
  }
  return absl::OkStatus();
}

void RingModel::Impl::DropGradients(int j) {
  for (const at::Tensor& parameter : stages_[j].parameters) {
    if (parameter.requires_grad()) parameter.mutable_grad().reset();
  }
}

}  // namespace ringzero
