// The loop over micro-batches.
#include "tests/support/balanced_reference.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "tests/support/reference_model.h"
#include "tests/support/reference_updates.h"

namespace ringzero {
namespace {

class BalancedTrainer {
 public:
  BalancedTrainer(const TrainingTask& task, const Plan& plan)
      : task_(task), plan_(plan), model_(task) {
    RZ_CHECK(task.precision.sums == ValueType::kFp32 && plan.clipping == Clipping::kOff,
             "the balanced reference does neither round sums nor clip");
    for (const ReferenceParameter& p : model_.parameters()) {
      ReferenceState s;
      s.now = p.initial.clone();
      s.before = p.initial.clone();
      s.sum = at::zeros_like(p.initial);
      s.first = at::zeros_like(p.initial);
      s.second = at::zeros_like(p.initial);
      states_.push_back(std::move(s));
      int stage = 0;
      while (plan.stages[stage].end_layer <= p.layer) ++stage;
      stages_.push_back(stage);
      averages_.push_back(at::zeros_like(p.initial));
    }
    for (ReferenceNorm& norm : model_.norms()) {
      norm.part.set_momentum(1.0);
      running_.push_back({norm.initial_mean.clone(), norm.initial_variance.clone()});
      counts_.push_back(norm.initial_count);
    }
  }

  TrainingResult Train() {
    for (int m = 0; m < plan_.workers * plan_.iterations; ++m) {
      const int t = m / plan_.workers, w = m % plan_.workers;
      if (w == 0) result_.losses.push_back(0);
      MicroBatch(t, w);
      Update(w);  // the stage that this worker owns
      if (w == plan_.workers - 1) Show(t + 1);
    }
    for (size_t i = 0; i < states_.size(); ++i) {
      result_.parameters[model_.parameters()[i].name] = ValuesOf(states_[i].now);
    }
    Statistics("", result_.statistics);
    return std::move(result_);
  }

 private:
  void MicroBatch(int t, int w) {
    const TaskBatch batch = task_.batch(t, w, false);
    for (size_t i = 0; i < states_.size(); ++i) {
      const bool newest = plan_.slack == 0 && stages_[i] == w;
      Load(i, newest ? states_[i].now : states_[i].before);
    }
    for (ReferenceNorm& norm : model_.norms()) {
      const at::NoGradGuard no_grad;
      norm.part.mean.zero_();
      norm.part.variance.zero_();
    }
    const at::Tensor loss = task_.loss(model_.Forward(batch.inputs, t, w, 1), batch.target);
    loss.backward();
    const at::NoGradGuard no_grad;
    result_.losses.back() += loss.item<double>();
    for (size_t i = 0; i < states_.size(); ++i) {
      const at::Tensor gradient = ReferenceModel::TakeGradient(model_.parameters()[i]);
      if (!gradient.defined()) continue;
      ReferenceState& s = states_[i];
      if (std::exchange(s.contributed, true)) {
        s.sum.add_(gradient);
      } else {
        s.sum.copy_(gradient);
      }
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      const BatchNormPart& part = model_.norms()[i].part;
      Blend(*part.momentum, part.mean, running_[i].first);
      Blend(*part.momentum, part.variance, running_[i].second);
      ++counts_[i];
    }
  }

  void Load(size_t i, const at::Tensor& values) {
    const at::NoGradGuard no_grad;
    for (at::Tensor leaf : model_.parameters()[i].leaves) leaf.copy_(values);
  }

  static void Blend(double share, const at::Tensor& batch, at::Tensor running) {
    const at::Tensor wide = batch.to(at::kFloat);
    const float* from = wide.const_data_ptr<float>();
    float* to = running.mutable_data_ptr<float>();
    for (int64_t i = 0; i < batch.numel(); ++i) {
      to[i] = float((1 - share) * double(to[i]) + share * double(from[i]));
    }
  }

  void Update(int stage) {
    const float divisor = float(plan_.workers);
    for (size_t i = 0; i < states_.size(); ++i) {
      if (stages_[i] != stage) continue;
      ReferenceState& s = states_[i];
      s.before.copy_(s.now);
      s.updated = std::exchange(s.contributed, false);
      if (!s.updated) continue;
      averages_[i] = s.sum / divisor;
      UpdateReference(task_.optimizer, model_.parameters()[i].name, divisor, s);
      ++s.updates;
    }
  }

  // All stages have this version, and none the next.
  void Show(int version) {
    const int every = plan_.evaluation.laps > 0 ? plan_.evaluation.every : 0;
    if (every > 0 && (version % every == 0 || version == plan_.iterations)) Evaluate(version);
    if (plan_.collection.every == 0 || version % plan_.collection.every != 0) return;
    auto& shown = result_.collected[version];
    for (size_t i = 0; i < states_.size(); ++i) {
      const ReferenceState& s = states_[i];
      const std::string& name = model_.parameters()[i].name;
      const auto [first, second] = ReferenceStateNames(task_.optimizer, name, s.now);
      shown["parameter " + name] = ValuesOf(s.now);
      if (!model_.parameters()[i].trainable) continue;
      if (s.updated) shown["gradient " + name] = ValuesOf(averages_[i]);
      shown["step " + name] = {float(s.updates)};
      if (!first.empty()) shown[first + " " + name] = ValuesOf(s.first);
      if (!second.empty()) shown[second + " " + name] = ValuesOf(s.second);
    }
    Statistics("statistic ", shown);
  }

  void Evaluate(int version) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < states_.size(); ++i) Load(i, states_[i].now);
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

  void Statistics(const std::string& before, std::map<std::string, std::vector<float>>& shown) {
    for (size_t i = 0; i < running_.size(); ++i) {
      const std::string prefix = before + model_.norms()[i].prefix;
      shown[prefix + "running_mean"] = ValuesOf(running_[i].first);
      shown[prefix + "running_var"] = ValuesOf(running_[i].second);
      shown[prefix + "num_batches_tracked"] = {float(counts_[i])};
    }
  }

  const TrainingTask& task_;
  const Plan& plan_;
  ReferenceModel model_;
  std::vector<ReferenceState> states_;
  std::vector<int> stages_;           // of each parameter
  std::vector<at::Tensor> averages_;  // what the last update has divided
  std::vector<std::pair<at::Tensor, at::Tensor>> running_;
  std::vector<int64_t> counts_;
  TrainingResult result_;
};

}  // namespace

TrainingResult TrainBalancedReference(const TrainingTask& task, const Plan& plan) {
  return BalancedTrainer(task, plan).Train();
}

}  // namespace ringzero
