// RingModel's inside: the stages' modules and memory, and how far the micro-batch has come.
//
// ring_model.cc   creation, the public calls, and what a collection brings
// ring_pass.cc    a micro-batch: forward or evaluation, what the autograd graph calls back, its end
#ifndef RINGZERO_INTEGRATIONS_TORCH_RING_MODEL_IMPL_H_
#define RINGZERO_INTEGRATIONS_TORCH_RING_MODEL_IMPL_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "integrations/torch/layer_parts.h"
#include "integrations/torch/linear.h"
#include "integrations/torch/parameter_memory.h"
#include "integrations/torch/ring_model.h"
#include "integrations/torch/stage_marks.h"

namespace ringzero {

// Which pass of which stage an edge (EdgeNode, ring_pass.cc) belongs to.
struct EdgePlace {
  int stage = 0;
  int64_t pass = 0;  // number of the forward in this model: tells a graph of an earlier forward
};

// A stage's modules and the state of its pass.
struct RingStage {
  std::vector<std::shared_ptr<Layer>> layers;
  std::vector<bool> draws;  // by layer
  std::unique_ptr<StageStatistics> statistics;
  std::unique_ptr<ParameterMemory> memory;
  std::vector<at::Tensor> parameters;  // by index in the layout

  uint64_t fingerprint = 0;  // of the version that the forward read
  bool begun = false;        // its backward has begun
  bool closed = false;       // its backward is over; its gradients are handed over
  StageGradient taken;  // gradients to hand over: products that did not go into the sum at once, …
};

class RingModelImpl final : public RingModel, private StageMarks, private GradientSink {
 public:
  static absl::StatusOr<std::unique_ptr<RingModel>> Create(RingModelOptions options);
  ~RingModelImpl() override;

  absl::StatusOr<LapTask> NextLap() override { return engine_->NextLap(); }
  TensorList Forward(TensorList inputs) override;
  absl::Status EndMicroBatch(const std::vector<double>& metrics) override {
    return Guard([&] { return CloseMicroBatch(metrics); });
  }
  absl::Status SkipMicroBatch(const std::vector<double>& metrics) override;
  absl::Status Collect(const Visitor& visit) override {
    return Guard([&] { return ShowCollection(visit); });
  }
  absl::Status Finish() override { return engine_->Finish(); }
  Engine& engine() override { return *engine_; }

  // Called from inside backward, on the thread that runs it; may throw.
  void OnStageBegin(EdgePlace place);
  void OnStageEnd(EdgePlace place);
  // `parameter`: index in the stage's layout; its .grad is complete.
  void OnGradient(int stage, int parameter);

 private:
  enum class State { kIdle, kForward, kForwarded, kFailed };

  explicit RingModelImpl(RingModelOptions options);
  absl::Status BuildStages();
  absl::Status BuildLayerOf(int j, int layer);
  void KeepStatistics(const std::string& layer, Layer& built);
  absl::Status BindParameter(int j, const LayerFactory& factory, const NamedTensor& parameter,
                             at::Tensor as_built);
  // From here on OnGradient is called whenever the gradient of `tensor` has been accumulated, by a
  // hook of the node that accumulates: a tensor has one slot for hooks of its own, and a user may
  // take it (register_post_accumulate_grad_hook).
  void HookGradient(int stage, int parameter, const at::Tensor& tensor);
  absl::Status StartEngine();
  InitializationRequest InitialValuesOf(StageId stage) const;
  // The first version has the initial statistics: no snapshot is made of them.
  absl::StatusOr<SharedBuffer> OrInitial(StageId stage, SharedBuffer statistics) const;
  absl::Status CheckBeforePass(const TensorList& inputs);
  absl::Status CheckSamples(const TensorList& inputs) const;
  void SetTraining(bool on);
  absl::Status Show(const CollectedPart& part, const Visitor& visit) const;
  absl::Status ShowCollection(const Visitor& visit);

  // A pass over the stages: BeginPass, then EnterStage and LeaveStage of each in order. Throw
  // RingError.
  void BeginPass(const TensorList& inputs);
  TensorList EnterStage(int j, TensorList inputs);
  TensorList LeaveStage(int j, TensorList outputs);
  absl::Status EnterTraining(int j);
  absl::Status EnterEvaluation(int j);
  absl::Status LeaveTraining(int j);
  void ReleaseStage(int j);

  absl::Status CheckGraph(EdgePlace place) const;
  absl::Status BeginBackward(int j);
  absl::Status CloseStage(int j);
  absl::Status CheckBackwardDone() const;
  absl::Status CloseMicroBatch(const std::vector<double>& metrics);
  bool Evaluates() const { return lap_.kind == LapTask::Kind::kEvaluate; }

  void FindWeights();
  void StopTaking();
  int64_t OnUse(const at::Tensor& weight) override;
  bool TakeProduct(int64_t use, const at::Tensor& weight, const at::Tensor& grad,
                   const at::Tensor& x) override;
  absl::StatusOr<StageGradient> TakeGradients(int j);
  absl::Status CheckGradient(int j, size_t parameter, const at::Tensor& gradient) const;
  void DropGradients(int j);

  TensorList RunLayers(TensorList inputs);
  void BeginLayer(int layer);
  // For a ready module, in which a mark is a layer.
  TensorList Enter(int layer, TensorList inputs) override;
  TensorList Leave(int layer, TensorList outputs) override;

  std::string NameOf(int j) const;  // "stage 3 (block2)"
  // Adds stage j's name to `status`; not to what has ended the whole run, which says enough itself.
  absl::Status AtStage(int j, const absl::Status& status) const;
  int stage_count() const { return static_cast<int>(stages_.size()); }
  at::ScalarType compute_type() const { return ScalarTypeOf(options_.planned.precision.compute); }
  const StagePlan& plan_of(int j) const { return options_.planned.plan.stages[j]; }

  RingModelOptions options_;
  std::vector<StageLayout> layouts_;
  const OptimizerOptions optimizer_;  // kept, like seed_, after options_.engine has moved away
  const uint64_t seed_;
  std::vector<RingStage> stages_;
  struct Place {
    int stage;
    int parameter;
  };
  std::map<std::string, Place> places_;     // by full name, tied names too
  std::map<std::string, at::Tensor> kept_;  // values of ready modules, until the engine has them
  // With hooks, or shared by tied parameters: autograd keeps them only while in use.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  struct Weight {
    Place place;
    // In this micro-batch:
    int uses = 0;  // by Linear
    bool taken = false;
  };
  std::map<const void*, Weight> weights_;  // matrices that are tied to nothing, by TensorImpl
  // Whether it trains, of every module as built, parents first.
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
  bool training_ = true;
  // Owns nothing: autograd graphs and threads, which may outlive this, see that it is gone.
  std::shared_ptr<RingModelImpl> self_{this, [](RingModelImpl*) {}};
  std::unique_ptr<Engine> engine_;

  State state_ = State::kIdle;
  LapTask lap_;
  int64_t pass_ = 0;
  int next_stage_ = 0;                 // of the forward
  int next_layer_ = 0;                 // of a ready module's forward
  std::optional<SeededScope> random_;  // of the layer that runs, if it draws
  bool stage_open_ = false;
  int next_backward_ = 0;  // its backward is begun or begins next; all stages above it are closed
  std::shared_ptr<bool> backward_done_;  // set by the graph that is running; new in each pass
  bool backward_begun_ = false;
  std::thread::id thread_;
  absl::Status failure_;  // the first, told to the other workers
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_RING_MODEL_IMPL_H_
