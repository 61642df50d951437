// A model, data and loop of one's own: three workers, each a process, learn a function of two
// numbers.
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

#include "integrations/torch/train_model.h"

namespace {

using namespace ringzero;  // NOLINT(google-build-using-namespace): a small program

// The model: any torch modules, cut into layers. A layer is the smallest thing that a stage can
// begin or end with; what it maps is a list of tensors, of which MakeLayer takes the first.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t size)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({size})))),
        wide(register_module("wide", torch::nn::Linear(size, 4 * size))),
        narrow(register_module("narrow", torch::nn::Linear(4 * size, size))) {}
  at::Tensor forward(const at::Tensor& x) { return x + narrow(wide(norm(x)).relu()); }

  torch::nn::LayerNorm norm;
  torch::nn::Linear wide, narrow;
};
TORCH_MODULE(Block);

Model MakeModel() {
  std::vector<LayerFactory> layers = {
      {.name = "in", .build = [] { return MakeLayer(torch::nn::Linear(2, 32)); }}};
  for (int i = 0; i < 4; ++i) {
    layers.push_back(
        {.name = "block" + std::to_string(i), .build = [] { return MakeLayer(Block(32)); }});
  }
  layers.push_back({.name = "out", .build = [] { return MakeLayer(torch::nn::Linear(32, 1)); }});
  return {.layers = layers, .example = {at::zeros({1, 2})}};
}

// The data: whatever you like, as long as it depends on (iteration, micro-batch), not on a worker.
std::pair<at::Tensor, at::Tensor> MakeBatch(const LapTask& lap) {
  const uint64_t seed =
      1000 * static_cast<uint64_t>(lap.iteration.value) + static_cast<uint64_t>(lap.micro_batch);
  const at::Tensor x = at::rand({32, 2}, at::detail::createCPUGenerator(seed));
  return {x, (3 * x.select(1, 0)).sin() * (2 * x.select(1, 1)).cos()};
}

// The loop of one worker.
absl::Status Train(RingModel& ring) {
  while (true) {
    RZ_ASSIGN_OR_RETURN(const LapTask lap, ring.NextLap());
    if (lap.kind == LapTask::Kind::kDone) return absl::OkStatus();
    if (lap.kind == LapTask::Kind::kCollect) {  // worker 0, at the end: the trained parameters
      RZ_RETURN_IF_ERROR(ring.Collect([](const NamedValues& values) {
        std::printf("%s: %zu values\n", values.name.c_str(), values.values.size());
        return absl::OkStatus();
      }));
      continue;
    }
    const auto [x, y] = MakeBatch(lap);
    const at::Tensor loss = at::mse_loss(ring.Forward({x})[0].squeeze(1), y);
    loss.backward();
    RZ_RETURN_IF_ERROR(ring.EndMicroBatch({loss.item<double>()}));
  }
}

}  // namespace

int main() {
  TrainOptions options{
      .plan = {.workers = 3, .rule = Rule::kCdpV2, .micro_batch = 32, .iterations = 301},
      .optimizer = {.learning_rate = 1e-3}};
  options.on_report = [](Iteration t, LapTask::Kind, const std::vector<double>& sums) {
    if (t.value % 50 == 0) std::printf("iteration %d: loss %.5f\n", t.value, sums[0] / 3);
  };
  const absl::Status status = TrainModel(options, MakeModel, Train);
  if (!status.ok())
    std::fprintf(stderr, "custom_model: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
