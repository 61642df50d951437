// The fastest of a few, by the clock.
#include "integrations/torch/machine_speed.h"

#include <ATen/Version.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

#include "integrations/torch/torch.h"

namespace ringzero {
namespace {

double FastestSeconds(const std::function<void()>& work) {
  constexpr int kTimes = 8;
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimes; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    fastest = std::min(fastest, took.count());
  }
  return std::max(fastest, 1e-9);
}

}  // namespace

double MeasureFlops() {
  const at::NoGradGuard no_grad;
  constexpr int64_t kSide = 512;
  const at::Tensor a = at::ones({kSide, kSide}), b = at::ones({kSide, kSide});
  at::Tensor product = at::empty({kSide, kSide});
  return 2.0 * kSide * kSide * kSide / FastestSeconds([&] { at::mm_out(product, a, b); });
}

MachineSpeed MeasureSpeed() {
  const at::NoGradGuard no_grad;
  constexpr int64_t kValues = int64_t{16} << 20;
  const at::Tensor from = at::ones({kValues});
  at::Tensor to = at::empty({kValues});
  const double copied = FastestSeconds([&] { to.copy_(from); });
  return {.flops_per_second = MeasureFlops(), .bytes_per_second = 2.0 * 4 * kValues / copied};
}

std::string LibTorchVersion() { return TORCH_VERSION; }

std::string LibTorchInstructions() { return at::get_cpu_capability(); }

}  // namespace ringzero
