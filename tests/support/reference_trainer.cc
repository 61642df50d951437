// The sequential loop.
#include "tests/support/reference_trainer.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/philox.h"
#include "tests/support/reference_model.h"
#include "tests/support/reference_updates.h"

namespace ringzero {
namespace {

// In double, in blocks of 65,536 values, of which each has 16 sums of every sixteenth value.
double SquaresOf(const at::Tensor& tensor) {
  const float* values = tensor.const_data_ptr<float>();
  double squares = 0;
  for (int64_t begin = 0; begin < tensor.numel(); begin += 65536) {
    double parts[16] = {};
    for (int64_t i = begin; i < std::min<int64_t>(tensor.numel(), begin + 65536); ++i) {
      parts[(i - begin) % 16] += double(values[i]) * double(values[i]);
    }
    double block = 0;
    for (const double part : parts) block += part;
    squares += block;
  }
  return squares;
}

class Trainer {
 public:
  Trainer(const TrainingTask& task, const Plan& plan) : task_(task), plan_(plan), model_(task) {
    for (const ReferenceParameter& p : model_.parameters()) {
      ReferenceState s;
      s.now = p.initial.clone();
      s.before = p.initial.clone();
      s.sum = at::zeros_like(p.initial);
      s.first = at::zeros_like(p.initial);
      s.second = at::zeros_like(p.initial);
      states_.push_back(std::move(s));
    }
    for (ReferenceNorm& norm : model_.norms()) {
      norm.part.set_momentum(1.0);
      running_.push_back({norm.initial_mean.clone(), norm.initial_variance.clone()});
      counts_.push_back(norm.initial_count);
    }
  }

  TrainingResult Train() {
    const int every = plan_.evaluation.laps > 0 ? plan_.evaluation.every : 0;
    for (int t = 0; t < plan_.iterations; ++t) {
      double loss = 0;
      weight_of_all_ = 0;
      SetScale(t);
      if (samples_left_ == 0) samples_left_ = task_.epoch_samples;
      for (int m = 0; m < plan_.workers * plan_.laps; ++m) loss += MicroBatch(t, m);
      result_.losses.push_back(loss);
      Update();
      const int version = t + 1;
      if (every > 0 && (version % every == 0 || version == plan_.iterations)) Evaluate(version);
      const CollectionPlan& collection = plan_.collection;
      const bool named =
          std::count(collection.versions.begin(), collection.versions.end(), version) > 0;
      if (named || (collection.every > 0 && version % collection.every == 0)) Show(version);
    }
    Collect();
    return std::move(result_);
  }

 private:
  int StageOf(int layer) const {
    int j = 0;
    while (plan_.stages[j].end_layer <= layer) ++j;
    return j;
  }

  // algorithm.md section 4, in exact integers: everything times N·S.
  bool Fresh(int m, int j) const {
    if (plan_.rule == Rule::kDp || m >= plan_.workers) return true;
    if (plan_.rule == Rule::kCdpV1) return false;
    __int128 total = 0, before = 0;
    for (int i = 0; i < plan_.stage_count(); ++i) {
      const StagePlan& stage = plan_.stages[i];
      const int64_t cost = stage.forward_cost + (stage.has_backward ? stage.backward_cost : 0);
      total += cost;
      if (i < j) before += plan_.strict ? stage.forward_cost : cost;
    }
    const __int128 n = plan_.workers, s = plan_.stage_count();
    const __int128 slack = std::min<__int128>(plan_.slack * total * n, total * s);
    return before * n * s >= (n - 1 - m) * total * s + slack;
  }

  double MicroBatch(int t, int m) {
    TaskBatch batch = task_.batch(t, m, false);
    float weight = 1;
    double counted = 1;
    if (task_.epoch_samples > 0) {
      const int64_t samples = std::min(task_.micro_batch, samples_left_);
      if (samples == 0) return 0;
      samples_left_ -= samples;
      batch = FirstSamples(batch, samples, task_.micro_batch);
      weight = float(samples) / float(task_.micro_batch);
      counted = double(samples);
    }
    weight_of_all_ += int64_t(counted);
    LoadParameters(m);
    ZeroNorms();
    const at::Tensor loss = task_.loss(model_.Forward(batch.inputs, t, m, scale_), batch.target);
    if (loss.requires_grad()) loss.backward();
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < states_.size(); ++i) {
      const ReferenceParameter& parameter = model_.parameters()[i];
      at::Tensor gradient = ReferenceModel::TakeGradient(parameter);
      if (!gradient.defined()) continue;
      if (weight != 1) gradient = gradient.to(at::kFloat).mul(weight);
      ReferenceState& s = states_[i];
      if (task_.precision.sums == ValueType::kBf16) {
        AddByChance(parameter.name, t, m, gradient, s);
      } else if (!std::exchange(s.contributed, true)) {
        s.sum.copy_(gradient);
      } else {
        s.sum.add_(gradient);
      }
    }
    ApplyNorms();
    return counted * loss.item<double>();
  }

  // What the sum of an iteration is divided by: the micro-batches, smaller ones by their share,
  // times the loss's scale.
  double Divisor() const {
    const double full = task_.epoch_samples > 0 ? double(task_.micro_batch) : 1;
    return double(weight_of_all_) / full * scale_;
  }

  // The loss's scale of iteration t: DeepSpeed's recurrence over what is known when t begins, which
  // in dp is all before it, under the other rules all but the last.
  void SetScale(int t) {
    const LossScaleOptions& o = task_.precision.loss_scale;
    scale_ = o.initial;
    const int known = plan_.rule == Rule::kDp ? t : t - 1;
    int patience = o.hysteresis, last = -1;
    for (int i = 0; o.dynamic && i < known; ++i) {
      if (overflowed_[i]) {
        last = i;
        if (patience <= 1) scale_ = std::max(scale_ / 2, o.minimum);
        if (patience > 1) --patience;
        continue;
      }
      const bool doubled = i - last > 1 && (i - last - 1) % o.window == 0;
      if (doubled) scale_ *= 2;
      if (doubled || o.consecutive_hysteresis) patience = o.hysteresis;
    }
  }

  // Whether no update is made: any value of any sum is infinite or none.
  bool Overflowed() const {
    return std::any_of(states_.begin(), states_.end(), [](const ReferenceState& s) {
      return s.contributed && !at::isfinite(s.sum).all().item<bool>();
    });
  }

  // fp32 in memory, of values that bf16 has: the exact result goes up where 16 random bits, those
  // of the value's place, and the bits that bf16 lacks exceed 16 bits.
  void AddByChance(const std::string& name, int t, int m, const at::Tensor& gradient,
                   ReferenceState& s) {
    const at::Tensor ordered = at::empty_like(s.sum).copy_(gradient);
    const float* g = ordered.const_data_ptr<float>();
    float* sum = s.sum.mutable_data_ptr<float>();
    const uint64_t key = MixKeys({task_.seed, HashName("sum"), HashName(name)});
    const uint64_t stream = (uint64_t(t) << 32) + uint64_t(m);
    const bool first = !std::exchange(s.contributed, true);
    for (int64_t i = 0; i < s.sum.numel(); ++i) {
      const PhiloxBlock block = PhiloxAt(key, stream, uint64_t(i / 8));
      const uint32_t word = block[i % 8 / 2], random = i % 2 == 0 ? word & 0xffff : word >> 16;
      const float value = first ? g[i] : sum[i] + g[i];
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      if (std::isfinite(value)) bits = (bits + random) & 0xffff0000;
      std::memcpy(&sum[i], &bits, sizeof(bits));
    }
  }

  void LoadParameters(int m) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < states_.size(); ++i) {
      const ReferenceParameter& parameter = model_.parameters()[i];
      const bool fresh = m < 0 || Fresh(m, StageOf(parameter.layer));
      for (at::Tensor leaf : parameter.leaves) {
        leaf.copy_(fresh ? states_[i].now : states_[i].before);
      }
    }
  }

  void ZeroNorms() {
    const at::NoGradGuard no_grad;
    for (ReferenceNorm& norm : model_.norms()) {
      norm.part.mean.zero_();
      norm.part.variance.zero_();
    }
  }

  void ApplyNorms() {
    for (size_t i = 0; i < running_.size(); ++i) {
      const BatchNormPart& part = model_.norms()[i].part;
      Blend(*part.momentum, part.mean, running_[i].first);
      Blend(*part.momentum, part.variance, running_[i].second);
      ++counts_[i];
    }
  }

  static void Blend(double share, const at::Tensor& batch, at::Tensor running) {
    const at::Tensor wide = batch.to(at::kFloat);
    const float* from = wide.const_data_ptr<float>();
    float* to = running.mutable_data_ptr<float>();
    for (int64_t i = 0; i < batch.numel(); ++i) {
      to[i] = float((1 - share) * double(to[i]) + share * double(from[i]));
    }
  }

  // As torch.nn.utils.clip_grad_norm_.
  void SetClips() {
    if (plan_.clipping == Clipping::kOff) return;
    double squares = 0;  // undivided
    for (const ReferenceState& s : states_) squares += s.contributed ? SquaresOf(s.sum) : 0;
    const double wanted = task_.optimizer.max_norm / (std::sqrt(squares) / Divisor() + 1e-6);
    for (ReferenceState& s : states_) s.clip = wanted < 1 ? float(wanted) : 1.0f;
  }

  void Update() {
    overflowed_.push_back(task_.precision.skip_overflows && Overflowed());
    if (overflowed_.back()) {
      ++result_.skipped;
      for (ReferenceState& s : states_) {
        s.before.copy_(s.now);
        s.updated = std::exchange(s.contributed, false);  // it is shown what was not updated with
      }
      return;
    }
    SetClips();
    const float divisor = float(Divisor());
    for (size_t i = 0; i < states_.size(); ++i) {
      ReferenceState& s = states_[i];
      s.before.copy_(s.now);
      s.updated = std::exchange(s.contributed, false);
      if (s.updated) {
        UpdateReference(task_.optimizer, model_.parameters()[i].name, divisor, s);
        ++s.updates;
      }
    }
  }

  void Evaluate(int version) {
    const at::NoGradGuard no_grad;
    LoadParameters(-1);
    model_.SetTraining(false);
    for (size_t i = 0; i < running_.size(); ++i) {
      model_.norms()[i].part.mean.copy_(running_[i].first);
      model_.norms()[i].part.variance.copy_(running_[i].second);
    }
    double sum = 0;
    for (int m = 0; m < plan_.workers * plan_.evaluation.laps; ++m) {
      const TaskBatch batch = task_.batch(version, m, true);
      sum += task_.loss(model_.Forward(batch.inputs, version, m, 1), batch.target).item<double>();
    }
    result_.evaluations.push_back(sum);
    model_.SetTraining(true);
  }

  // All that there is after update number `version`.
  void Show(int version) {
    auto& shown = result_.collected[version];
    const bool narrow = task_.precision.sums == ValueType::kBf16;
    for (size_t i = 0; i < states_.size(); ++i) {
      const ReferenceState& s = states_[i];
      const std::string& name = model_.parameters()[i].name;
      const auto [first, second] = ReferenceStateNames(task_.optimizer, name, s.now);
      shown["parameter " + name] = ValuesOf(s.now);
      if (!model_.parameters()[i].trainable) continue;
      if (s.updated) {
        const at::Tensor average = s.sum / float(Divisor());
        shown["gradient " + name] = ValuesOf(narrow ? average.to(at::kBFloat16) : average);
      }
      shown["step " + name] = {float(s.updates)};
      if (!first.empty()) shown[first + " " + name] = ValuesOf(s.first);
      if (!second.empty()) shown[second + " " + name] = ValuesOf(s.second);
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      const std::string prefix = "statistic " + model_.norms()[i].prefix;
      shown[prefix + "running_mean"] = ValuesOf(running_[i].first);
      shown[prefix + "running_var"] = ValuesOf(running_[i].second);
      shown[prefix + "num_batches_tracked"] = {float(counts_[i])};
    }
  }

  void Collect() {
    for (size_t i = 0; i < states_.size(); ++i) {
      result_.parameters[model_.parameters()[i].name] = ValuesOf(states_[i].now);
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      const std::string& prefix = model_.norms()[i].prefix;
      result_.statistics[prefix + "running_mean"] = ValuesOf(running_[i].first);
      result_.statistics[prefix + "running_var"] = ValuesOf(running_[i].second);
      result_.statistics[prefix + "num_batches_tracked"] = {float(counts_[i])};
    }
  }

  const TrainingTask& task_;
  const Plan& plan_;
  ReferenceModel model_;
  std::vector<ReferenceState> states_;
  std::vector<std::pair<at::Tensor, at::Tensor>> running_;
  std::vector<int64_t> counts_;
  int64_t samples_left_ = 0;      // of the epoch
  int64_t weight_of_all_ = 0;     // of this iteration: its samples or, uncounted, its micro-batches
  double scale_ = 1;              // of this iteration's loss
  std::vector<bool> overflowed_;  // by iteration
  TrainingResult result_;
};

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(const OptimizerOptions& options,
                                                       std::vector<at::Tensor> parameters) {
  if (options.type == OptimizerOptions::Type::kSgd) {
    torch::optim::SGDOptions sgd(options.learning_rate);
    sgd.momentum(options.sgd.momentum).dampening(options.sgd.dampening);
    sgd.weight_decay(options.sgd.weight_decay);
    sgd.nesterov(options.sgd.nesterov == SgdOptions::Nesterov::kOn);
    return std::make_unique<torch::optim::SGD>(std::move(parameters), sgd);
  }
  torch::optim::AdamWOptions adamw(options.learning_rate);
  adamw.betas({options.adamw.beta1, options.adamw.beta2}).eps(options.adamw.epsilon);
  adamw.weight_decay(options.adamw.weight_decay);
  return std::make_unique<torch::optim::AdamW>(std::move(parameters), adamw);
}

}  // namespace

TrainingResult TrainReference(const TrainingTask& task, const Plan& plan) {
  at::set_num_threads(1);
  return Trainer(task, plan).Train();
}

void ExpectReferenceBits(const TrainingTask& task, const absl::StatusOr<PlannedTask>& planned,
                         const RingOptions& options) {
  ASSERT_TRUE(planned.ok()) << planned.status();
  SCOPED_TRACE(PlanToString(planned->plan()));
  const absl::StatusOr<TrainingResult> ring = RunRing(task, *planned, options);
  ASSERT_TRUE(ring.ok()) << ring.status();
  const TrainingResult reference = TrainReference(task, planned->plan());
  EXPECT_EQ(ring->losses, reference.losses);
  EXPECT_EQ(ring->evaluations, reference.evaluations);
  EXPECT_EQ(ring->parameters, reference.parameters);
  EXPECT_EQ(ring->statistics, reference.statistics);
  EXPECT_EQ(ring->collected, reference.collected);
}

TrainingResult TrainOrdinaryLoop(const TrainingTask& task, int accumulation, int iterations) {
  at::set_num_threads(1);
  ReferenceModel model(task);
  std::vector<at::Tensor> trained;
  for (ReferenceParameter& p : model.parameters()) {
    const at::NoGradGuard no_grad;
    for (at::Tensor leaf : p.leaves) leaf.copy_(p.initial);
    if (p.trainable) trained.push_back(p.leaves[0]);
  }
  const std::unique_ptr<torch::optim::Optimizer> optimizer = MakeOptimizer(task.optimizer, trained);
  TrainingResult result;
  for (int t = 0; t < iterations; ++t) {
    double loss = 0;
    std::vector<at::Tensor> sums(model.parameters().size());
    for (int m = 0; m < accumulation; ++m) {
      const TaskBatch batch = task.batch(t, m, false);
      const at::Tensor one = task.loss(model.Forward(batch.inputs, t, m, 1), batch.target);
      one.backward();
      loss += one.item<double>();
      // What one .grad of a tied parameter would have accumulated.
      for (size_t i = 0; i < sums.size(); ++i) {
        const at::Tensor gradient = ReferenceModel::TakeGradient(model.parameters()[i]);
        if (gradient.defined()) sums[i] = sums[i].defined() ? sums[i] + gradient : gradient;
      }
    }
    result.losses.push_back(loss);
    for (size_t i = 0; i < sums.size(); ++i) {
      if (!sums[i].defined()) continue;
      model.parameters()[i].leaves[0].mutable_grad() = sums[i].div_(accumulation);
    }
    if (task.optimizer.max_norm > 0) {
      torch::nn::utils::clip_grad_norm_(trained, task.optimizer.max_norm);
    }
    optimizer->step();
    optimizer->zero_grad();
    const at::NoGradGuard no_grad;
    for (const ReferenceParameter& p : model.parameters()) {
      for (at::Tensor leaf : p.leaves) {
        if (!leaf.is_same(p.leaves[0])) leaf.copy_(p.leaves[0]);
      }
    }
  }
  for (const ReferenceParameter& p : model.parameters()) {
    result.parameters[p.name] = ValuesOf(p.leaves[0]);
  }
  for (const ReferenceNorm& norm : model.norms()) {
    result.statistics[norm.prefix + "running_mean"] = ValuesOf(norm.part.mean);
    result.statistics[norm.prefix + "running_var"] = ValuesOf(norm.part.variance);
    result.statistics[norm.prefix + "num_batches_tracked"] = ValuesOf(norm.part.count);
  }
  return result;
}

}  // namespace ringzero
