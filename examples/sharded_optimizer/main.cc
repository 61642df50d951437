// An ordinary LibTorch loop, on one process or several: which of three spirals is a point on?
// All that shards its optimizer is in the lines that name a worker, the optimizer, RingZero or
// absl.
#include <torch/torch.h>

#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "integrations/torch/run_loop.h"

namespace {

using namespace ringzero;  // NOLINT(google-build-using-namespace): a small program

constexpr int kUpdates = 400;
constexpr int kMicroBatches = 6;  // of an update; 1, 2, 3 or 6 workers share them
constexpr int kSpirals = 3;

struct Batch {
  at::Tensor points, spirals;
};

// Depends on its number alone, not on who computes it.
Batch MakeBatch(int number) {
  const at::Generator random = at::detail::createCPUGenerator(static_cast<uint64_t>(number));
  const at::Tensor spirals = at::randint(kSpirals, {64}, random);
  const at::Tensor radius = at::rand({64}, random);
  const at::Tensor angle = 4 * radius + spirals * (2 * M_PI / kSpirals);
  const at::Tensor points = at::stack({radius * angle.cos(), radius * angle.sin()}, 1);
  return {points + 0.02 * at::randn({64, 2}, random), spirals};
}

// The bits of all values, in short (FNV-1a).
uint64_t Fingerprint(const torch::nn::Module& model) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const at::Tensor& parameter : model.parameters()) {
    const auto* const bytes = static_cast<const uint8_t*>(parameter.const_data_ptr());
    for (size_t i = 0; i < parameter.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
  }
  return hash;
}

absl::Status Train(LoopWorker& worker) {
  if (kMicroBatches % worker.workers() != 0) {
    return absl::InvalidArgumentError("6 micro-batches need 1, 2, 3 or 6 workers");
  }
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, kSpirals));
  const ShardedOptimizerOptions options{.optimizer = {.learning_rate = 3e-3, .max_norm = 1},
                                        .micro_batches = kMicroBatches / worker.workers()};
  RZ_ASSIGN_OR_RETURN(auto* const optimizer, worker.MakeOptimizer(*model, options));
  const Batch validation = MakeBatch(kUpdates * kMicroBatches);
  for (int update = 1; update <= kUpdates; ++update) {
    for (int m = worker.self().value; m < kMicroBatches; m += worker.workers()) {
      const Batch batch = MakeBatch(kMicroBatches * (update - 1) + m);
      optimizer->ZeroGrad();
      at::cross_entropy_loss(model->forward(batch.points), batch.spirals).backward();
      RZ_RETURN_IF_ERROR(optimizer->Step());
    }
    if (update % 50 != 0 || worker.self().value != 0) continue;
    const at::NoGradGuard no_gradients;
    const at::Tensor output = model->forward(validation.points);
    std::printf("update %d: loss %.5f\n", update,
                at::cross_entropy_loss(output, validation.spirals).item<double>());
  }
  std::printf("worker %d: parameters %016" PRIx64 "\n", worker.self().value, Fingerprint(*model));
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const bool given = argc == 3 && std::strcmp(argv[1], "--workers") == 0;
  const absl::Status status =
      RunLoop({.launch = {.workers = given ? std::atoi(argv[2]) : 1}}, Train);
  if (status.ok()) return 0;
  std::fprintf(stderr, "sharded_optimizer: %s\n", std::string(status.message()).c_str());
  return 1;
}
