// TrainingTask: what is trained, said once for the ring and for the reference; and small tasks, each
// of which has one of the things that are hard for a ring.
#ifndef RINGZERO_TESTS_SUPPORT_TASKS_H_
#define RINGZERO_TESTS_SUPPORT_TASKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "integrations/torch/layer.h"
#include "zero/engine.h"
#include "zero/model_plan.h"
#include "zero/optimizer/optimizer.h"

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

// Linear and ReLU, `layers` Linears.
TrainingTask MlpTask(int layers = 5);
// Convolutions with BatchNorm2d, residual blocks, channels_last weights, average pool, Linear head.
TrainingTask ConvTask();
// Embeddings, two transformer blocks, LayerNorm, a head tied to the token embedding.
TrainingTask GptTask();
// LSTM with a cost given, on sequences.
TrainingTask LstmTask();

// Deterministic values in [-1, 1), keyed; for batches.
at::Tensor KeyedValues(at::IntArrayRef shape, uint64_t key);
// Classes 0..classes-1, keyed.
at::Tensor KeyedClasses(at::IntArrayRef shape, int64_t classes, uint64_t key);
// A key for a micro-batch.
uint64_t BatchKey(int64_t iteration, int64_t micro_batch, bool evaluation);
// Batches of `shape` (samples first) and one class each.
std::function<TaskBatch(int64_t, int64_t, bool)> KeyedBatches(std::vector<int64_t> shape,
                                                              int64_t classes);
at::Tensor CrossEntropy(const TensorList& outputs, const at::Tensor& target);
// Such batches, cross-entropy, and SGD of rate 0.1.
TrainingTask MakeTask(std::vector<LayerFactory> layers, std::vector<int64_t> shape,
                      int64_t classes);
LayerFactory LinearLayer(const std::string& name, int64_t in, int64_t out);
LayerFactory OneToOne(const std::string& name, std::function<at::Tensor(at::Tensor)> f);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SUPPORT_TASKS_H_
