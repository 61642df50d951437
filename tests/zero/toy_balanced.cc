// Stage by stage, micro-batch after micro-batch.
#include "tests/zero/toy_balanced.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

namespace ringzero {
namespace {

class BalancedToy {
 public:
  explicit BalancedToy(const ToyOptions& options) : o_(options), layouts_(ToyLayouts(options)) {
    for (int j = 0; j < o_.stages; ++j) {
      Stage stage;
      for (int i = 0; i < o_.width; ++i) stage.now.push_back(ToyInitialValue(j, i));
      stage.before = stage.now;
      stage.sum = MakeHeapBuffer(static_cast<size_t>(std::max<int64_t>(1, layouts_[j].sum_bytes)));
      stage.optimizer = std::make_unique<StageOptimizer>(o_.optimizer, layouts_[j]);
      stages_.push_back(std::move(stage));
    }
  }

  ToyResult Run() {
    for (int m = 0; m < o_.iterations * o_.workers; ++m) {
      const int t = m / o_.workers, w = m % o_.workers;
      if (w == 0) {
        if (IsDue(o_.evaluation.every, t) && t > 0) Evaluate(t);
        result_.losses.push_back(0);
      }
      MicroBatch(t, w);
      if (w == o_.workers - 1 && IsDue(o_.collection.every, t + 1)) Collect();
    }
    if (o_.evaluation.every > 0) Evaluate(o_.iterations);
    for (const Stage& stage : stages_) {
      Append(result_.parameters, stage.now);
      result_.statistics.push_back(stage.running);
    }
    return std::move(result_);
  }

 private:
  struct Stage {
    std::vector<float> now, before;  // and before the last update
    Buffer sum;
    int summed = 0;  // gradients since the last update
    std::vector<float> average;
    std::unique_ptr<StageOptimizer> optimizer;
    float running = 0;
  };
  static bool IsDue(int every, int number) { return every > 0 && number % every == 0; }
  static void Append(std::vector<float>& to, const std::vector<float>& values) {
    to.insert(to.end(), values.begin(), values.end());
  }
  bool Tied(int j) const { return o_.tied && j == o_.stages - 1 && j > 0; }

  float Forward(int j, const std::vector<std::vector<float>>& theta, float a) const {
    const float out = 0.9f * a + theta[j][0] + theta[j].back();
    return Tied(j) ? out + 0.5f * theta[0][1] : out;
  }

  void MicroBatch(int t, int w) {
    std::vector<std::vector<float>> theta;
    std::vector<float> a = {ToyData(t, w)};
    for (int j = 0; j < o_.stages; ++j) {
      Stage& stage = stages_[j];
      theta.push_back(w == j && o_.slack == 0 ? stage.now : stage.before);
      a.push_back(Forward(j, theta, a[j]));
      stage.running = float(0.75 * double(stage.running) + 0.25 * double(a[j]));
    }
    result_.losses.back() += double(a.back());
    for (int j = o_.frozen_prefix; j < o_.stages; ++j) {
      float* sum = stages_[j].sum.as<float>().data();
      const bool first = stages_[j].summed++ == 0;
      for (int i = 0; i < o_.width; ++i) {
        float gradient = 0.1f * theta[j][i] + a[j] / static_cast<float>(1 + i);
        if (Tied(j)) gradient += 0.01f * theta[0][i];
        sum[i] = first ? gradient : sum[i] + gradient;
      }
      if (w == j) Update(j);
    }
  }

  // Divided by the number of workers, however many have contributed to the first.
  void Update(int j) {
    Stage& stage = stages_[j];
    const float* sum = stage.sum.as<float>().data();
    double squares = 0;  // of 16 values at most
    stage.average.assign(sum, sum + o_.width);
    for (const float value : stage.average) squares += double(value) * double(value);
    for (float& value : stage.average) value /= static_cast<float>(o_.workers);
    const double norm = std::sqrt(squares) / o_.workers, most = o_.optimizer.max_norm;
    const bool clips = o_.clipping == Clipping::kPerStage && norm + 1e-6 > most;
    stage.sum.data()[layouts_[j].trailer_offset_bytes] = std::byte{1};  // the first parameter
    Buffer theta = MakeHeapBuffer(layouts_[j].parameter_bytes);
    Buffer made = MakeHeapBuffer(layouts_[j].parameter_bytes);
    std::memset(theta.data(), 0, theta.size());
    std::memcpy(theta.data(), stage.now.data(), stage.now.size() * sizeof(float));
    stage.optimizer->Update({.divisor = double(o_.workers),
                             .clip = clips ? float(most / (norm + 1e-6)) : 1.0f,
                             .theta = theta.data(),
                             .sum = stage.sum.data()},
                            made.data());
    stage.before = stage.now;
    std::memcpy(stage.now.data(), made.data(), stage.now.size() * sizeof(float));
    stage.summed = 0;
  }

  void Evaluate(int version) {
    std::vector<std::vector<float>> theta;
    for (const Stage& stage : stages_) theta.push_back(stage.now);
    double sum = 0;
    for (int m = 0; m < o_.workers * o_.evaluation.laps; ++m) {
      float a = ToyData(1000000 + version, m);
      for (int j = 0; j < o_.stages; ++j) a = Forward(j, theta, a) + stages_[j].running;
      sum += double(a);
    }
    result_.evaluations.push_back(sum);
  }

  void Collect() {
    for (int j = 0; j < o_.stages; ++j) {
      const Stage& stage = stages_[j];
      Append(result_.collected, stage.now);
      result_.collected.push_back(stage.running);
      if (j < o_.frozen_prefix) continue;
      Append(result_.collected, stage.average);
      for (int parameter = 0; parameter < 2; ++parameter) {
        const StageOptimizer::ParameterState state = stage.optimizer->state(parameter);
        result_.collected.push_back(static_cast<float>(state.updates));
        Append(result_.collected, {state.first.begin(), state.first.end()});
        Append(result_.collected, {state.second.begin(), state.second.end()});
      }
    }
  }

  const ToyOptions& o_;
  const std::vector<StageLayout> layouts_;
  std::vector<Stage> stages_;
  ToyResult result_;
};

}  // namespace

ToyResult RunBalancedToyReference(const ToyOptions& options) { return BalancedToy(options).Run(); }

}  // namespace ringzero
