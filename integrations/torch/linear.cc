// An autograd function like at::linear's own, which asks the sink first.
#include "integrations/torch/linear.h"

#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <map>
#include <optional>

#include "integrations/torch/gradient_sink.h"

namespace ringzero {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kMostRowsTried = 8192;
constexpr int64_t kFewestTried =
    64;  // columns or rows of a weight: fewer values may agree by chance
constexpr int kTries = 2;

// Does one product with an addition give the bits of a product and an addition? Values in random
// order tell: where blocks of rows are added to the sum one by one, a good part of them differs, in
// the last column as in the first.
bool TryAddsOnce(int64_t rows, int64_t out, int64_t in) {
  const at::Generator generator = at::detail::createCPUGenerator(1);  // the user's stays untouched
  for (int i = 0; i < kTries; ++i) {
    const at::Tensor grad = at::randn({rows, out}, generator);
    const at::Tensor x = at::randn({rows, in}, generator);
    const at::Tensor sum = at::randn({out, in}, generator).mul_(static_cast<double>(rows));
    const at::Tensor added = sum + grad.t().mm(x);
    if (!at::equal(added, sum.clone().addmm_(grad.t(), x))) return false;
  }
  return true;
}

bool AddsOnce(int64_t rows, int64_t out, int64_t in) {
  if (rows > kMostRowsTried || out < kFewestTried || in < kFewestTried) return false;
  static thread_local std::map<std::array<int64_t, 3>, bool> known;
  const auto [place, fresh] = known.try_emplace({rows, out, in}, false);
  if (fresh) place->second = TryAddsOnce(rows, out, in);
  return place->second;
}

at::Tensor Rows(const at::Tensor& t) { return t.reshape({-1, t.size(-1)}); }

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, int64_t use) {
    context->save_for_backward({x, weight});
    context->saved_data["use"] = use;
    context->saved_data["bias"] = bias.has_value();
    return at::linear(x, weight, bias);
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

}  // namespace

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  GradientSink* sink = at::GradMode::is_enabled() ? CurrentGradientSink() : nullptr;
  if (sink == nullptr || !weight.requires_grad()) return at::linear(x, weight, bias);
  const std::optional<at::Tensor> given = bias.defined() ? std::optional(bias) : std::nullopt;
  return LinearFunction::apply(x, weight, given, sink->OnUse(weight));
}

bool AddProduct(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& sum) {
  if (!AddsOnce(grad.size(0), grad.size(1), x.size(1))) return false;
  sum.addmm_(grad.t(), x);
  return true;
}

}  // namespace ringzero
