// The whole model in one place, and the sequential loop.
#include "tests/support/reference_trainer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "integrations/torch/layer.h"
#include "integrations/torch/layer_parts.h"
#include "sharding/rules/schedule.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer/optimizer.h"
#include "zero/precision.h"

namespace ringzero {
namespace {

// As fp32, row-major.
std::vector<float> ValuesOf(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().to(at::kFloat).contiguous();
  const float* data = dense.const_data_ptr<float>();
  return {data, data + dense.numel()};
}

struct ReferenceParameter {
  std::string name;
  int layer = 0;
  bool trainable = true;
  std::vector<at::Tensor> leaves;  // tied ones: the first layer's first
  at::Tensor initial;
};

struct ReferenceNorm {
  std::string prefix;  // full: "bn1."
  BatchNormPart part;
  at::Tensor mean, variance;  // running, at first as built
  int64_t count = 0;          // of micro-batches
};

// All layers in one process, with ordinary parameters that are written before use.
class ReferenceModel {
 public:
  // Built as the ring builds it; dies (RZ_CHECK) if a factory fails.
  explicit ReferenceModel(const TrainingTask& task)
      : seed_(task.seed), type_(ScalarTypeOf(task.precision.compute)) {
    for (size_t i = 0; i < task.layers.size(); ++i) AddLayer(task.layers[i], static_cast<int>(i));
  }

  // iteration and micro_batch key the random numbers of the layers. Inputs are cast to the type
  // that computes; what comes out is fp32. Outputs' gradients are multiplied by `scale`.
  TensorList Forward(TensorList inputs, int64_t iteration, int64_t micro_batch, double scale) {
    const MicroBatchScope scope(
        {.seed = seed_, .iteration = iteration, .micro_batch = micro_batch});
    for (at::Tensor& input : inputs) {
      if (input.is_floating_point()) input = input.to(type_);
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
      EnterLayer(static_cast<int64_t>(i));
      inputs = layers_[i]->forward(std::move(inputs));
    }
    for (at::Tensor& output : inputs) {
      if (!output.is_floating_point()) continue;
      output = output.to(at::kFloat);
      if (scale == 1 || !output.requires_grad()) continue;
      output.register_hook([scale](const at::Tensor& gradient) { return gradient * scale; });
    }
    return inputs;
  }

  void SetTraining(bool on) {
    for (const std::shared_ptr<Layer>& layer : layers_) layer->train(on);
  }

  // The gradient of all its leaves, or undefined; the leaves' .grad is cleared.
  static at::Tensor TakeGradient(const ReferenceParameter& parameter) {
    at::Tensor gradient;
    // The last use's gradient comes first, as in a backward.
    for (auto leaf = parameter.leaves.rbegin(); leaf != parameter.leaves.rend(); ++leaf) {
      at::Tensor own = std::move(leaf->mutable_grad());
      leaf->mutable_grad().reset();
      if (!own.defined()) continue;
      gradient = gradient.defined() ? gradient + own : own;
    }
    return gradient;
  }

  std::vector<ReferenceParameter>& parameters() { return parameters_; }
  std::vector<ReferenceNorm>& norms() { return norms_; }

 private:
  void AddLayer(const LayerFactory& factory, int index) {
    absl::StatusOr<std::shared_ptr<Layer>> layer = BuildLayer(factory, seed_);
    RZ_CHECK(layer.ok(), layer.status().ToString());
    for (const auto& item : (*layer)->named_parameters()) {
      AddParameter(factory, index, item.key(), item.value());
    }
    for (BatchNormPart& part : (*layer)->batch_norms()) {
      norms_.push_back({factory.name + "." + part.prefix, part, part.mean.clone(),
                        part.variance.clone(), part.count.item<int64_t>()});
    }
    const auto cast = [this](at::Tensor tensor) {
      if (tensor.is_floating_point()) tensor.set_data(tensor.detach().to(type_));
    };
    for (const auto& item : (*layer)->named_parameters()) cast(item.value());
    for (const auto& item : (*layer)->named_buffers()) cast(item.value());
    layers_.push_back(*std::move(layer));
  }

  void AddParameter(const LayerFactory& factory, int index, const std::string& key,
                    const at::Tensor& leaf) {
    const std::string name = factory.name + "." + key;
    std::string target = name;
    for (const TiedParameter& tie : factory.tied) {
      if (tie.parameter == key) target = tie.target;
    }
    for (ReferenceParameter& known : parameters_) {
      if (known.name == target) return known.leaves.push_back(leaf);
    }
    const at::NoGradGuard no_grad;
    ReferenceParameter parameter{name, index, leaf.requires_grad(), {leaf}, leaf.detach().clone()};
    if (factory.initialize) {
      factory.initialize(key, parameter.initial,
                         at::detail::createCPUGenerator(InitializationKey(seed_, name)));
    }
    parameters_.push_back(std::move(parameter));
  }

  uint64_t seed_;
  at::ScalarType type_;
  std::vector<std::shared_ptr<Layer>> layers_;
  std::vector<ReferenceParameter> parameters_;
  std::vector<ReferenceNorm> norms_;
};

// One parameter as its owner has it: alone in a stage, in its own strides. What its sum, its update
// and its state are is proven without autograd (tests/zero) and beside torch's optimizers
// (optimizer_torch_test.cc).
struct Owned {
  Owned(const TrainingTask& task, const ReferenceParameter& p)
      : layout(StageLayout::Make({{.name = p.name,
                                   .shape = p.initial.sizes().vec(),
                                   .strides = p.initial.strides().vec(),
                                   .trainable = p.trainable}},
                                 {}, {.sums = task.precision.sums})),
        states(StateLayout::Make(task.optimizer, layout)),
        now(p.initial.clone()),
        before(p.initial.clone()),
        sum(MakeHeapBuffer(std::max<int64_t>(1, layout.sum_bytes))),
        optimizer(task.optimizer, layout) {}
  bool contributed() const {
    return layout.trainable_count > 0 && HasContribution(layout, sum.data(), 0);
  }
  // Row-major, of fp32 in the parameter's own order.
  std::vector<float> Shown(const float* values) const {
    at::Tensor tensor = at::empty_like(now);
    std::memcpy(tensor.mutable_data_ptr<float>(), values, tensor.nbytes());
    return ValuesOf(tensor);
  }
  StageLayout layout;
  StateLayout states;
  at::Tensor now, before;  // θ_t and θ_{t-1}
  Buffer sum;
  StageOptimizer optimizer;
};

class Trainer {
 public:
  Trainer(const TrainingTask& task, const Plan& plan, const Plan* before)
      : task_(task),
        plan_(plan),
        before_(before),
        model_(task),
        scale_(task.precision.loss_scale, {.lag = plan.scale_lag(Iteration(plan.warmup_updates)),
                                           .warmup = plan.warmup_updates}) {
    RZ_CHECK(task.epoch_samples == 0, "the reference has complete micro-batches only");
    RZ_CHECK(before == nullptr || before->workers * before->laps == plan.workers * plan.laps,
             "both plans have as many micro-batches");
    for (const ReferenceParameter& p : model_.parameters()) owned_.emplace_back(task, p);
    for (ReferenceNorm& norm : model_.norms()) norm.part.set_momentum(1.0);
  }

  TrainingResult Train() {
    for (int t = 0; t < plan_.iterations; ++t) {
      double loss = 0;
      for (Owned& own : owned_) StartSum(own.layout, own.sum.data());
      for (int m = 0; m < plan_.workers * plan_.laps; ++m) loss += MicroBatch(t, m);
      if (t >= plan_.first_iteration) result_.losses.push_back(loss);
      Update(t);
      const Version version(t + 1);
      if (IsEvaluated(plan_, version)) Evaluate(version.value);
      if (IsCollected(plan_, version)) Show(version.value, scale_.Of(t));
    }
    for (size_t i = 0; i < owned_.size(); ++i) {
      result_.parameters[model_.parameters()[i].name] = ValuesOf(owned_[i].now);
    }
    result_.statistics = Statistics();
    return std::move(result_);
  }

 private:
  // Only the first lap reads what is not fresh; in which stages: tests/sharding/schedule_test.cc.
  bool Fresh(int t, int m, int layer) const {
    const Plan& plan = before_ != nullptr && t < plan_.first_iteration ? *before_ : plan_;
    int j = 0;
    while (plan.stages[j].end_layer <= layer) ++j;
    return m >= plan.workers || ReadsFresh(plan, WorkerId(m), StageId(j));
  }

  double MicroBatch(int t, int m) {
    const TaskBatch batch = task_.batch(t, m, false);
    LoadParameters([&](int layer) { return Fresh(t, m, layer); });
    ZeroNorms();
    const at::Tensor loss =
        task_.loss(model_.Forward(batch.inputs, t, m, scale_.Of(t)), batch.target);
    if (loss.requires_grad()) loss.backward();
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < owned_.size(); ++i) {
      Owned& own = owned_[i];
      const at::Tensor gradient = ReferenceModel::TakeGradient(model_.parameters()[i]);
      if (!gradient.defined()) continue;
      const at::Tensor ordered =
          at::empty_strided(own.now.sizes(), own.now.strides(), gradient.options()).copy_(gradient);
      AddContribution(own.layout, 0, {ordered.const_data_ptr(), task_.precision.compute},
                      {task_.seed, t, m}, own.sum.data());
    }
    ApplyNorms();
    return loss.item<double>();
  }

  // What the sum of an iteration is divided by, but for the loss's scale.
  double MicroBatches() const { return plan_.workers * plan_.laps; }

  void LoadParameters(const std::function<bool(int layer)>& fresh) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < owned_.size(); ++i) {
      const ReferenceParameter& parameter = model_.parameters()[i];
      const Owned& own = owned_[i];
      const at::Tensor& values = fresh(parameter.layer) ? own.now : own.before;
      for (at::Tensor leaf : parameter.leaves) leaf.copy_(values);
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
    for (ReferenceNorm& norm : model_.norms()) {
      Blend(*norm.part.momentum, norm.part.mean, norm.mean);
      Blend(*norm.part.momentum, norm.part.variance, norm.variance);
      ++norm.count;
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

  // Of the averaged gradient of all parameters.
  double Norm(int t) const {
    std::vector<SumSquares> all;
    std::vector<std::span<const double>> squares;
    for (const Owned& own : owned_) {
      SumSquares& one = all.emplace_back(own.layout, own.sum.data(), nullptr);
      while (one.Step()) {
      }
    }
    for (const SumSquares& one : all) squares.push_back(one.values());
    return NormOf(squares, MicroBatches() * scale_.Of(t));
  }

  void Update(int t) {
    const double norm = Norm(t);
    const bool skips = task_.precision.skip_overflows && !std::isfinite(norm);
    RZ_CHECK(scale_.Note(t, skips).ok(), "the loss scale is at its minimum");
    result_.skipped += skips;
    const bool clips = plan_.clipping != Clipping::kOff;
    for (Owned& own : owned_) {
      own.before.copy_(own.now);
      if (skips || !own.contributed()) continue;
      own.optimizer.Update({.iteration = scale_.UpdatesBefore(t),
                            .divisor = MicroBatches(),
                            .loss_scale = scale_.Of(t),
                            .clip = clips ? ClipFactor(norm, task_.optimizer.max_norm) : 1,
                            .theta = static_cast<const std::byte*>(own.before.const_data_ptr()),
                            .sum = own.sum.data()},
                           static_cast<std::byte*>(own.now.mutable_data_ptr()));
    }
  }

  void Evaluate(int version) {
    const at::NoGradGuard no_grad;
    LoadParameters([](int) { return true; });
    model_.SetTraining(false);
    for (ReferenceNorm& norm : model_.norms()) {
      norm.part.mean.copy_(norm.mean);
      norm.part.variance.copy_(norm.variance);
    }
    double sum = 0;
    for (int m = 0; m < plan_.workers * plan_.evaluation.laps; ++m) {
      const TaskBatch batch = task_.batch(version, m, true);
      sum += task_.loss(model_.Forward(batch.inputs, version, m, 1), batch.target).item<double>();
    }
    result_.evaluations.push_back(sum);
    model_.SetTraining(true);
  }

  // All that there is after update number `version`, of gradients of a loss times `scale`.
  void Show(int version, double scale) {
    auto& shown = result_.collected[version];
    for (size_t i = 0; i < owned_.size(); ++i) {
      const Owned& own = owned_[i];
      const std::string& name = model_.parameters()[i].name;
      shown["parameter " + name] = ValuesOf(own.now);
      if (own.contributed()) {
        const Buffer average = MakeHeapBuffer(own.layout.sum_bytes);
        AverageSum(own.layout, own.sum.data(), float(MicroBatches() * scale), average.data());
        std::vector<float> values;
        ForSumValues(own.layout, own.layout.parameters[0], average.data(), 0, own.now.numel(),
                     [&](const float* from, int64_t, int64_t count) {
                       values.insert(values.end(), from, from + count);
                     });
        shown["gradient " + name] = own.Shown(values.data());
      }
      const StageOptimizer::ParameterState state = own.optimizer.state(0);
      for (const StateSpec& spec : own.states.specs) {
        const auto& moment = spec.kind == StateSpec::Kind::kFirst ? state.first : state.second;
        shown[spec.name + " " + name] = spec.kind == StateSpec::Kind::kStep
                                            ? std::vector<float>{float(state.updates)}
                                            : own.Shown(moment.data());
      }
    }
    for (const auto& [name, values] : Statistics()) shown["statistic " + name] = values;
  }

  std::map<std::string, std::vector<float>> Statistics() {
    std::map<std::string, std::vector<float>> statistics;
    for (const ReferenceNorm& norm : model_.norms()) {
      statistics[norm.prefix + "running_mean"] = ValuesOf(norm.mean);
      statistics[norm.prefix + "running_var"] = ValuesOf(norm.variance);
      statistics[norm.prefix + "num_batches_tracked"] = {float(norm.count)};
    }
    return statistics;
  }

  const TrainingTask& task_;
  const Plan& plan_;
  const Plan* const before_;
  ReferenceModel model_;
  std::vector<Owned> owned_;  // by parameter of the model
  LossScale scale_;
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

TrainingResult TrainReference(const TrainingTask& task, const Plan& plan, const Plan* before) {
  at::set_num_threads(1);
  return Trainer(task, plan, before).Train();
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

double LargestDifferenceInUlps(const at::Tensor& a, const at::Tensor& b, const at::Tensor& before) {
  const at::Tensor scale =
      at::maximum(at::maximum(a.abs(), b.abs()), at::maximum(before.abs(), (b - before).abs()));
  const at::Tensor ulp = at::nextafter(scale, at::full_like(scale, INFINITY)) - scale;
  const double largest = ((a.to(at::kDouble) - b.to(at::kDouble)).abs() / ulp).max().item<double>();
  return std::isnan(largest) ? INFINITY : largest;  // callers take the largest of several
}

}  // namespace ringzero
