// The sequential loop.
#include "tests/support/reference_trainer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "tests/support/reference_model.h"

namespace ringzero {
namespace {

std::vector<float> ValuesOf(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().to(at::kFloat).contiguous();
  const float* data = dense.const_data_ptr<float>();
  return {data, data + dense.numel()};
}

// θ_t, θ_{t-1}, the sum and the optimizer's state of one parameter, in the parameter's own strides.
struct State {
  at::Tensor now, before, sum, first, second;
  bool contributed = false;
  bool updated = false;  // by the last update
  float clip = 1;        // what its averaged gradient is multiplied by
  int updates = 0;
};

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

// Plain loops over memory, with the roundings that docs/decisions/0008 asks for.
void UpdateSgd(const OptimizerOptions& options, float divisor, State& s) {
  const SgdOptions& sgd = options.sgd;
  const float rate = float(options.learning_rate), momentum = float(sgd.momentum);
  const float decay = float(sgd.weight_decay), undamped = float(1 - sgd.dampening);
  float* theta = s.now.mutable_data_ptr<float>();
  float* moment = s.first.mutable_data_ptr<float>();
  const float* sum = s.sum.const_data_ptr<float>();
  for (int64_t i = 0; i < s.now.numel(); ++i) {
    float g = sum[i] / divisor * s.clip;
    if (decay != 0) g = std::fma(decay, theta[i], g);
    if (momentum != 0) {
      moment[i] = s.updates == 0 ? g : std::fma(undamped, g, moment[i] * momentum);
      g = sgd.nesterov == SgdOptions::Nesterov::kOn ? std::fma(momentum, moment[i], g) : moment[i];
    }
    theta[i] = std::fma(-rate, g, theta[i]);
  }
}

void UpdateAdam(const OptimizerOptions& options, float divisor, State& s) {
  const AdamWOptions& adamw = options.adamw;
  const double correction1 = 1 - std::pow(adamw.beta1, double(s.updates + 1));
  const double correction2 = 1 - std::pow(adamw.beta2, double(s.updates + 1));
  const float beta1 = float(adamw.beta1), beta2 = float(adamw.beta2);
  const float rest1 = float(1 - adamw.beta1), rest2 = float(1 - adamw.beta2);
  const bool decoupled = options.type == OptimizerOptions::Type::kAdamW;
  const float keep = decoupled ? float(1 - options.learning_rate * adamw.weight_decay) : 1;
  const float decay = decoupled ? 0 : float(adamw.weight_decay);
  const float step = float(options.learning_rate / correction1);
  const float root = float(std::sqrt(correction2)), epsilon = float(adamw.epsilon);
  float* theta = s.now.mutable_data_ptr<float>();
  float* m = s.first.mutable_data_ptr<float>();
  float* v = s.second.mutable_data_ptr<float>();
  const float* sum = s.sum.const_data_ptr<float>();
  for (int64_t i = 0; i < s.now.numel(); ++i) {
    float g = sum[i] / divisor * s.clip;
    if (decay != 0) g = std::fma(decay, theta[i], g);
    const float decayed = theta[i] * keep;
    m[i] = std::fma(rest1, g, m[i] * beta1);
    v[i] = std::fma(rest2 * g, g, v[i] * beta2);
    theta[i] = decayed - step * m[i] / (std::sqrt(v[i]) / root + epsilon);
  }
}

void UpdateLion(const OptimizerOptions& options, float divisor, State& s) {
  const LionOptions& lion = options.lion;
  const float rate = float(options.learning_rate);
  const float keep = float(1 - options.learning_rate * lion.weight_decay);
  const float beta1 = float(lion.beta1), rest1 = float(1 - lion.beta1);
  const float beta2 = float(lion.beta2), rest2 = float(1 - lion.beta2);
  float* theta = s.now.mutable_data_ptr<float>();
  float* m = s.first.mutable_data_ptr<float>();
  const float* sum = s.sum.const_data_ptr<float>();
  for (int64_t i = 0; i < s.now.numel(); ++i) {
    const float g = sum[i] / divisor * s.clip;
    const float direction = std::fma(rest1, g, m[i] * beta1);
    const float sign = float((direction > 0) - (direction < 0));
    theta[i] = theta[i] * keep - sign * rate;
    m[i] = std::fma(rest2, g, m[i] * beta2);
  }
}

void UpdateAdagrad(const OptimizerOptions& options, float divisor, State& s) {
  const AdagradOptions& adagrad = options.adagrad;
  const float rate = float(options.learning_rate / (1 + s.updates * adagrad.rate_decay));
  const float decay = float(adagrad.weight_decay), epsilon = float(adagrad.epsilon);
  float* theta = s.now.mutable_data_ptr<float>();
  float* squares = s.first.mutable_data_ptr<float>();
  const float* sum = s.sum.const_data_ptr<float>();
  for (int64_t i = 0; i < s.now.numel(); ++i) {
    float g = sum[i] / divisor * s.clip;
    if (decay != 0) g = std::fma(decay, theta[i], g);
    squares[i] = std::fma(g, g, squares[i]);
    theta[i] -= rate * g / (std::sqrt(squares[i]) + epsilon);
  }
}

void UpdateOne(const OptimizerOptions& options, float divisor, State& s) {
  switch (options.type) {
    case OptimizerOptions::Type::kSgd: return UpdateSgd(options, divisor, s);
    case OptimizerOptions::Type::kAdamW:
    case OptimizerOptions::Type::kAdam: return UpdateAdam(options, divisor, s);
    case OptimizerOptions::Type::kLion: return UpdateLion(options, divisor, s);
    case OptimizerOptions::Type::kAdagrad: return UpdateAdagrad(options, divisor, s);
    case OptimizerOptions::Type::kCustom: break;
  }
  RZ_CHECK(false, "an optimizer that the reference does not have");
}

// What torch calls the states of an optimizer: its first, its second; empty: none.
std::pair<std::string, std::string> StateNames(const OptimizerOptions& options) {
  switch (options.type) {
    case OptimizerOptions::Type::kSgd:
      return {options.sgd.momentum != 0 ? "momentum_buffer" : "", ""};
    case OptimizerOptions::Type::kAdamW:
    case OptimizerOptions::Type::kAdam: return {"exp_avg", "exp_avg_sq"};
    case OptimizerOptions::Type::kLion: return {"exp_avg", ""};
    case OptimizerOptions::Type::kAdagrad: return {"sum", ""};
    case OptimizerOptions::Type::kCustom: break;
  }
  return {};
}

class Trainer {
 public:
  Trainer(const TrainingTask& task, const Plan& plan, const ReferenceOptions& options)
      : task_(task), plan_(plan), options_(options), model_(task) {
    for (const ReferenceParameter& p : model_.parameters()) {
      State s;
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
    LoadParameters(m);
    ZeroNorms();
    const TaskBatch batch = task_.batch(t, m, false);
    const at::Tensor loss = task_.loss(model_.Forward(batch.inputs, t, m), batch.target);
    if (loss.requires_grad()) loss.backward();
    const int failed = options_.failed_stage ? options_.failed_stage(t, m) : -1;
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < states_.size(); ++i) {
      const ReferenceParameter& parameter = model_.parameters()[i];
      const at::Tensor gradient = ReferenceModel::TakeGradient(parameter);
      if (!gradient.defined() || StageOf(parameter.layer) <= failed) continue;
      State& s = states_[i];
      if (!std::exchange(s.contributed, true)) {
        s.sum.copy_(gradient);
      } else {
        s.sum.add_(gradient);
      }
    }
    ApplyNorms();
    return loss.item<double>();
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
    const float* from = batch.const_data_ptr<float>();
    float* to = running.mutable_data_ptr<float>();
    for (int64_t i = 0; i < batch.numel(); ++i) {
      to[i] = float((1 - share) * double(to[i]) + share * double(from[i]));
    }
  }

  // As torch.nn.utils.clip_grad_norm_, by the norm that the plan names.
  void SetClips() {
    if (plan_.clipping == Clipping::kOff) return;
    std::vector<double> squares(plan_.stage_count(), 0.0);  // undivided
    double all = 0;
    for (size_t i = 0; i < states_.size(); ++i) {
      if (!states_[i].contributed) continue;
      const double own = SquaresOf(states_[i].sum);
      squares[StageOf(model_.parameters()[i].layer)] += own;
      all += own;
    }
    const auto clip = [&](double sum) {
      const double norm = std::sqrt(sum) / (plan_.workers * plan_.laps);
      const double wanted = task_.optimizer.max_norm / (norm + 1e-6);
      return wanted < 1 ? float(wanted) : 1.0f;
    };
    for (size_t i = 0; i < states_.size(); ++i) {
      const int stage = StageOf(model_.parameters()[i].layer);
      states_[i].clip = plan_.clipping == Clipping::kExact      ? clip(all)
                        : plan_.clipping == Clipping::kPerStage ? clip(squares[stage])
                                                                : previous_clip_;
    }
    previous_clip_ = clip(all);
  }

  void Update() {
    const float divisor = float(plan_.workers * plan_.laps);
    SetClips();
    for (State& s : states_) {
      s.before.copy_(s.now);
      s.updated = std::exchange(s.contributed, false);
      if (!s.updated) continue;
      UpdateOne(task_.optimizer, divisor, s);
      ++s.updates;
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
      sum += task_.loss(model_.Forward(batch.inputs, version, m), batch.target).item<double>();
    }
    result_.evaluations.push_back(sum);
    model_.SetTraining(true);
  }

  // All that there is after update number `version`.
  void Show(int version) {
    auto& shown = result_.collected[version];
    const auto [first, second] = StateNames(task_.optimizer);
    const float divisor = float(plan_.workers * plan_.laps);
    for (size_t i = 0; i < states_.size(); ++i) {
      const State& s = states_[i];
      const std::string& name = model_.parameters()[i].name;
      shown["parameter " + name] = ValuesOf(s.now);
      if (!model_.parameters()[i].trainable) continue;
      if (s.updated) shown["gradient " + name] = ValuesOf(s.sum / divisor);
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
  const ReferenceOptions& options_;
  ReferenceModel model_;
  std::vector<State> states_;
  std::vector<std::pair<at::Tensor, at::Tensor>> running_;
  std::vector<int64_t> counts_;
  float previous_clip_ = 1;  // by the norm of the iteration before
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

TrainingResult TrainReference(const TrainingTask& task, const Plan& plan,
                              const ReferenceOptions& options) {
  at::set_num_threads(1);
  return Trainer(task, plan, options).Train();
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
      const at::Tensor one = task.loss(model.Forward(batch.inputs, t, m), batch.target);
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
