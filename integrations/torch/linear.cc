// An autograd function like at::linear's own, which asks the thread's sink first.
#include "integrations/torch/linear.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>

#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace ringzero {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kMostRowsTried = 8192;
constexpr int64_t kFewestTried = 64;  // columns or rows: fewer values may agree by chance
constexpr int kTries = 2;

// Does a product with an addition (addmm) give the bits of a product, then an addition? Random
// values tell: if blocks of rows are added to the sum one by one, a good part of the values
// differs, in the last column as in the first.
bool TryAddsOnce(int64_t rows, int64_t out, int64_t in) {
  const at::Generator generator = at::detail::createCPUGenerator(1);  // the user's stays untouched
  const auto random = [&](int64_t n, int64_t m) {
    return at::randn({n, m}, generator, at::TensorOptions(at::kFloat));
  };
  for (int i = 0; i < kTries; ++i) {
    const at::Tensor grad = random(rows, out);
    const at::Tensor x = random(rows, in);
    at::Tensor sum = random(out, in).mul_(static_cast<double>(rows));
    const at::Tensor product = grad.t().mm(x).add_(sum);
    if (!at::equal(product, sum.addmm_(grad.t(), x))) return false;
  }
  return true;
}

bool AddsOnce(int64_t rows, int64_t out, int64_t in) {
  if (rows > kMostRowsTried || out < kFewestTried || in < kFewestTried) return false;
  static thread_local std::map<std::array<int64_t, 4>, bool> known;
  const auto [place, fresh] = known.try_emplace({rows, out, in, at::get_num_threads()}, false);
  if (fresh) place->second = TryAddsOnce(rows, out, in);
  return place->second;
}

at::Tensor Rows(const at::Tensor& t) { return t.reshape({-1, t.size(-1)}); }

// Tensors that are not plain are left to at::linear, which has its own ways for them.
bool IsPlain(const at::Tensor& x, const at::Tensor& weight) {
  return x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat && weight.dim() == 2 &&
         x.dim() >= 2 && x.is_contiguous() && weight.is_contiguous() && x.numel() > 0 &&
         weight.numel() > 0 && !at::autocast::is_autocast_enabled(at::kCPU);
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, int64_t use) {
    context->set_materialize_grads(false);  // an output that the loss does not need has no gradient
    context->save_for_backward({x, weight});
    context->saved_data["use"] = use;
    context->saved_data["bias"] = bias.has_value();
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    // Not a view: a view could not be changed in place.
    return at::_unsafe_view(at::linear(Rows(x), weight, bias), sizes);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
    const at::Tensor grad = Rows(gradients[0]);
    at::Tensor of_x, of_weight, of_bias;
    if (context->needs_input_grad(0)) of_x = grad.mm(weight).view(x.sizes());
    const bool bias = context->saved_data["bias"].toBool();
    if (bias && context->needs_input_grad(2)) of_bias = grad.sum(0);
    if (context->needs_input_grad(1)) {
      const at::Tensor rows = Rows(x);
      GradientSink* sink = at::GradMode::is_enabled() ? nullptr : CurrentGradientSink();
      const int64_t use = context->saved_data["use"].toInt();
      if (sink == nullptr || !sink->TakeProduct(use, weight, grad, rows)) {
        of_weight = grad.t().mm(rows);
      }
    }
    return {of_x, of_weight, of_bias, at::Tensor()};
  }
};

thread_local std::weak_ptr<GradientSink> current_sink;

}  // namespace

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  GradientSink* sink = CurrentGradientSink();
  // Every read counts: a weight of a segment that a backward recomputes is read twice.
  const int64_t use = sink == nullptr ? 0 : sink->OnUse(weight);
  const bool learns = at::GradMode::is_enabled() && weight.requires_grad();
  if (sink == nullptr || !learns || !IsPlain(x, weight)) return at::linear(x, weight, bias);
  const std::optional<at::Tensor> given = bias.defined() ? std::optional(bias) : std::nullopt;
  return LinearFunction::apply(x, weight, given, use);
}

bool AddProduct(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& sum) {
  if (!grad.is_contiguous() || !x.is_contiguous()) return false;
  if (!AddsOnce(grad.size(0), grad.size(1), x.size(1))) return false;
  sum.addmm_(grad.t(), x);
  return true;
}

GradientSink* CurrentGradientSink() { return current_sink.lock().get(); }

void SetCurrentGradientSink(std::weak_ptr<GradientSink> sink) { current_sink = std::move(sink); }

}  // namespace ringzero
