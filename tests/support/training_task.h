// TrainingTask: what is trained, said once for the ring and for the reference.
#ifndef RINGZERO_TESTS_SUPPORT_TRAINING_TASK_H_
#define RINGZERO_TESTS_SUPPORT_TRAINING_TASK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "integrations/torch/layer.h"
#include "zero/engine.h"
#include "zero/model_plan.h"
#include "zero/optimizer.h"

namespace ringzero {

struct TaskBatch {
  TensorList inputs;
  at::Tensor target;
};

struct TrainingTask {
  std::vector<LayerFactory> layers;
  TensorList example;  // one sample, to count costs with
  // A pure function: micro-batch `micro_batch` of an iteration, or of an evaluation.
  std::function<TaskBatch(int64_t iteration, int64_t micro_batch, bool evaluation)> batch;
  std::function<at::Tensor(const TensorList& outputs, const at::Tensor& target)> loss;
  OptimizerOptions optimizer;
  Precision precision;
  uint64_t seed = 1;
  // Samples of an epoch whose last, incomplete batch is trained on, and of a full micro-batch; a
  // smaller one has the first samples of its batch. 0: all are full.
  int64_t epoch_samples = 0;
  int64_t micro_batch = 1;
};

// The first `samples` of a batch of `full`.
TaskBatch FirstSamples(const TaskBatch& batch, int64_t samples, int64_t full);

struct TrainingResult {
  // By iteration: folded in double over its micro-batches; where samples are counted, each loss
  // times its own.
  std::vector<double> losses;
  int skipped = 0;                                       // iterations that updated nothing
  std::vector<double> evaluations;                       // one per evaluated version
  std::map<std::string, std::vector<float>> parameters;  // final, row-major
  std::map<std::string, std::vector<float>> statistics;  // final; counts as one float
  // By version, what a collection shows: "parameter NAME", "statistic NAME", "gradient NAME",
  // "exp_avg NAME" and so on; counts as one float.
  std::map<int, std::map<std::string, std::vector<float>>> collected;
  bool operator==(const TrainingResult&) const = default;
};

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SUPPORT_TRAINING_TASK_H_
