// RingModel: a model whose parameters come around the ring; the ordinary loop trains it.
//
//   RZ_ASSIGN_OR_RETURN(auto ring, RingModel::Create(std::move(options)));
//   … the loop of train_model.h, which makes all of this …
//   RZ_RETURN_IF_ERROR(ring->Finish());
//
// One RingModel per worker, used by one thread. Forward and backward throw RingError (a carrier of
// an absl::Status: an autograd hook has no other way out); Guard turns it back into a Status. After
// such an exception the run has to end: other workers may have the gradients of some stages. One
// backward per micro-batch, on the thread of its forward, without retain_graph or create_graph; no
// input of the model may require a gradient; autocast only without its cache. A stage's parameters
// may be read in its own forward and backward only: at any other time a read ends the process and
// names the stage.
#ifndef RINGZERO_INTEGRATIONS_TORCH_RING_MODEL_H_
#define RINGZERO_INTEGRATIONS_TORCH_RING_MODEL_H_

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/torch/layer_factory.h"
#include "zero/engine.h"
#include "zero/model_plan.h"

namespace ringzero {

class RingError : public std::runtime_error {
 public:
  explicit RingError(absl::Status status)
      : std::runtime_error(std::string(status.message())), status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw RingError(status);
}

// The exception that is being handled (RingError, c10::Error, std::exception) as a Status.
absl::Status CaughtStatus();

// Runs `body`, which returns a Status or a StatusOr. What `body` throws becomes a Status, too: the
// one place where exceptions end.
template <typename Body>
auto Guard(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    return CaughtStatus();
  }
}

struct StageDone {
  StageId stage;
  int64_t gradient_bytes = 0;          // of a backward: handed over, to be freed by another thread
  std::vector<const void*> gradients;  // where these are, or were
};

struct RingModelOptions {
  std::vector<LayerFactory> layers;
  PlannedModel planned;
  // RingModel sets plan, layouts, loss scale and initial values from the two members above.
  // transport: null when the plan has one worker or no exchange. parameter_memory: if it is set,
  // parameters have no initial values.
  EngineOptions engine;
  Preset preset;
  // True: Linear's weight gradient is always a product first, which is then added to its sum.
  // False: the product adds itself if the sum has come, on shapes where a trial gave the same bits.
  bool products_first = false;
  // For measuring: after each stage's forward and backward in training, on the computing thread.
  std::function<void(const StageDone&)> on_stage_done;
};

// One tensor of the training state, full and fp32, row-major.
struct NamedValues {
  enum class Kind {
    kParameter,
    kStatistic,  // a running statistic of a BatchNorm
    kGradient,   // the averaged gradient of the update that made this version; not shown if none
    kState,      // the optimizer's state after the update that made this version
  } kind = Kind::kParameter;
  std::string name;   // the full name of the parameter or statistic
  std::string state;  // kState: torch's name: "exp_avg", "exp_avg_sq", "momentum_buffer", "step"
  std::vector<int64_t> shape;
  std::vector<float> values;  // empty if `count` has the value
  int64_t count = -1;         // of counters (shape {}): batches or steps; otherwise -1
};
using Visitor = std::function<absl::Status(const NamedValues&)>;

// Layers compute in planned.precision.compute: floating inputs of the first stage are cast to it.
// Outputs of the last stage are fp32 again, and their gradients are multiplied by the loss scale.
class RingModel {
 public:
  static absl::StatusOr<std::unique_ptr<RingModel>> Create(RingModelOptions options);
  virtual ~RingModel() = default;

  virtual absl::StatusOr<LapTask> NextLap() = 0;
  // Runs all stages; in an evaluation without autograd and in eval mode. Throws RingError.
  virtual TensorList Forward(TensorList inputs) = 0;
  // After loss.backward() (training) or Forward (evaluation): closes the micro-batch.
  virtual absl::Status EndMicroBatch(const std::vector<double>& metrics) = 0;
  // In place of Forward, backward and EndMicroBatch for a micro-batch without samples
  // (LapTask::missing): the last ones of an epoch's incomplete batch, if the plan counts samples
  // (PlanRequest::epoch_samples). A micro-batch with some of its samples is an ordinary one: its
  // loss is the mean over them, and its gradients weigh as many (sharding/rules/schedule.h). If the
  // plan counts, the first dimension of a forward's first input must be their number:
  // InvalidArgument.
  virtual absl::Status SkipMicroBatch(const std::vector<double>& metrics) = 0;
  // When NextLap says kCollect: shows version lap.iteration, by stage in model order: parameters
  // and running statistics, then gradients, then optimizer states. plan.collection says on which
  // worker and at which versions; at the end worker 0 is shown the last version's parameters and
  // statistics in any case. No worker ever holds the whole model: stages are streamed. An empty
  // visitor sees nothing. An error of the visitor's is returned and ends the run.
  virtual absl::Status Collect(const Visitor& visit) = 0;
  virtual absl::Status Finish() = 0;

  virtual Engine& engine() = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_RING_MODEL_H_
