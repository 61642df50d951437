// Times each piece of work a few times by the clock, and takes the fastest.
#include "integrations/torch/machine_speed.h"

#include <ATen/Version.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

#include "integrations/torch/layer_parts.h"
#include "integrations/torch/torch.h"

namespace ringzero {
namespace {

// The fastest of at most 8 calls, none of which begins after `most` seconds. A first call is not
// counted: in it the library makes what it keeps.
double FastestSeconds(const std::function<void()>& work, double most) {
  work();
  constexpr int kTimes = 8;
  double fastest = std::numeric_limits<double>::infinity(), all = 0;
  for (int i = 0; i < kTimes && all < most; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    fastest = std::min(fastest, took.count());
    all += took.count();
  }
  return std::max(fastest, 1e-9);
}

double SecondsOfProduct(ValueType type, int64_t side, double most) {
  const at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({side, side}, ScalarTypeOf(type)), b = at::ones_like(a);
  at::Tensor product = at::empty_like(a);
  return FastestSeconds([&] { at::mm_out(product, a, b); }, most);
}

}  // namespace

double MeasureFlops(ValueType type) {
  constexpr int64_t kSide = 512;
  return 2.0 * kSide * kSide * kSide / SecondsOfProduct(type, kSide, /*most=*/0.05);
}

double SlownessOf(ValueType type) {
  constexpr int64_t kSide = 128;
  constexpr double kHalf = 0.025;
  const double plain = SecondsOfProduct(ValueType::kFp32, kSide, kHalf);
  return SecondsOfProduct(type, kSide, kHalf) / plain;
}

MachineSpeed MeasureSpeed() {
  const at::NoGradGuard no_grad;
  constexpr int64_t kValues = int64_t{16} << 20;
  const at::Tensor from = at::ones({kValues});
  at::Tensor to = at::empty({kValues});
  const double copied = FastestSeconds([&] { to.copy_(from); }, /*most=*/1);
  return {.flops_per_second = MeasureFlops(), .bytes_per_second = 2.0 * 4 * kValues / copied};
}

std::string LibTorchVersion() { return TORCH_VERSION; }

std::string LibTorchInstructions() { return at::get_cpu_capability(); }

}  // namespace ringzero
