// Cross entropy, and what is counted beside it.
#include "integrations/torch/configured/lap_runner.h"

#include "integrations/torch/configured/batch.h"
#include "integrations/torch/torch.h"

namespace ringzero {

LapRunner::LapRunner(const Dataset& data, const BatchesOptions& options)
    : tokens_(data.shape().kind == SampleShape::Kind::kTokens), batches_(data, options) {}

// Mean cross entropy over all samples, or all tokens.
at::Tensor LapRunner::Loss(const at::Tensor& logits, const at::Tensor& targets) const {
  return at::cross_entropy_loss(tokens_ ? logits.flatten(0, 1) : logits,
                                tokens_ ? targets.flatten() : targets);
}

std::vector<double> LapRunner::Quality(const Batch& batch, const at::Tensor& logits,
                                       const at::Tensor& loss) const {
  if (batch.counted == 0) return {0, 0, 0};
  const double count = static_cast<double>(batch.targets.numel());
  double correct = 0;
  if (!tokens_) {
    at::NoGradGuard no_grad;
    correct =
        static_cast<double>(logits.detach().argmax(-1).eq(batch.targets).sum().item<int64_t>());
  }
  return {static_cast<double>(loss.item<float>()) * count, correct, count};
}

std::vector<double> LapRunner::Train(RingModel& ring, const LapTask& lap) {
  const Batch batch = batches_.Train(lap.iteration, lap.micro_batch, lap.samples);
  const at::Tensor logits = ring.Forward({batch.inputs})[0];
  const at::Tensor loss = Loss(logits, batch.targets);
  loss.backward();
  return Quality(batch, logits, loss);
}

std::vector<double> LapRunner::Evaluate(RingModel& ring, int micro_batch) {
  const Batch batch = batches_.Evaluate(micro_batch);
  const at::Tensor logits = ring.Forward({batch.inputs})[0];
  at::NoGradGuard no_grad;
  const at::Tensor loss = Loss(logits, batch.targets);
  return Quality(batch, logits, loss);
}

}  // namespace ringzero
