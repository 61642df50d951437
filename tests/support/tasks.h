// Small tasks to train: each has one of the things that are hard for a ring.
#ifndef RINGZERO_TESTS_SUPPORT_TASKS_H_
#define RINGZERO_TESTS_SUPPORT_TASKS_H_

#include "tests/support/training_task.h"

namespace ringzero {

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
