// Stage marks: a ready torch module whose forward says where its parts begin and end.
//
//   MarkedModule net{.build = [] { return std::make_shared<Net>(); },
//                    .forward = [](torch::nn::Module& module, StageMarks& marks, TensorList x) {
//                      Net& net = static_cast<Net&>(module);
//                      x = marks.Enter(0, x);
//                      x[0] = net.conv(x[0]).relu();
//                      x = marks.Leave(0, x);
//                      x = marks.Enter(1, x);
//                      x[0] = net.head(x[0].flatten(1));
//                      return marks.Leave(1, x); },
//                    .marks = {{.name = "features", .modules = {"conv"}},
//                              {.name = "head", .modules = {"head"}}}};
//   RZ_ASSIGN_OR_RETURN(std::vector<LayerFactory> layers, LayersOf(net, {example}));
//
// A mark is a layer: a stage is a run of marks, and RingModel takes these layers like any others.
// All that a later mark needs goes through Leave and Enter; between two marks nothing may be
// computed from parameters. Start-up peak: every worker holds the whole module while RingModel
// takes the module's memory away, and again, for each stage that the worker owns, while the stage
// is initialised. With a list of factories a worker never holds more than one layer.
#ifndef RINGZERO_INTEGRATIONS_TORCH_STAGE_MARKS_H_
#define RINGZERO_INTEGRATIONS_TORCH_STAGE_MARKS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "integrations/torch/describe_model.h"
#include "integrations/torch/layer.h"

namespace ringzero {

// Handed to the module's forward, which calls it at each mark; valid during that forward. Marks are
// passed in order, each once. Use the returned tensors in place of the given ones.
class StageMarks {
 public:
  virtual ~StageMarks() = default;
  virtual TensorList Enter(int mark, TensorList inputs) = 0;
  virtual TensorList Leave(int mark, TensorList outputs) = 0;
};

// For a forward of one sample: the cost of each mark, and which tensors it reads.
class CountingMarks final : public StageMarks {
 public:
  explicit CountingMarks(size_t marks) : costs_(marks), reads_(marks) {}
  TensorList Enter(int mark, TensorList inputs) override;
  TensorList Leave(int mark, TensorList outputs) override;
  const std::vector<LayerCost>& costs() const { return costs_; }
  // The marks whose operations have read the very tensor, which lives since before the forward.
  std::vector<int> ReadersOf(const at::Tensor& tensor) const;
  bool complete() const { return next_ == static_cast<int>(costs_.size()); }

 private:
  std::vector<LayerCost> costs_;
  std::vector<CostMeter::Reads> reads_;
  std::unique_ptr<CostMeter> meter_;
  int next_ = 0;
};

struct StageMark {
  std::string name;
  std::vector<std::string> modules;  // that run between its Enter and Leave: "blocks.3"
  std::optional<LayerCost> cost = std::nullopt;
  std::vector<TiedParameter> tied = {};  // "head.weight" to "<mark>.embedding.weight"
};

struct MarkedModule {
  std::function<std::shared_ptr<torch::nn::Module>()> build;
  std::function<TensorList(torch::nn::Module&, StageMarks&, TensorList)> forward;
  std::vector<StageMark> marks;
  uint64_t seed = 0;  // seeds torch's generator for `build`
};

// A parameter's full name is "<mark>.<submodule>.<parameter>", where dots of the submodule's name
// become underscores ("blocks_3"). Costs that are not given are counted by one forward of `example`
// (one sample). InvalidArgument: a submodule that does not exist or stands in two marks, a
// parameter or buffer in none.
absl::StatusOr<std::vector<LayerFactory>> LayersOf(const MarkedModule& module,
                                                   const TensorList& example);

// A part of a ready module. Its maker registers what belongs to it. For RingModel, and for what
// makes parts in another way than LayersOf.
class MarkedLayer : public Layer {
 public:
  using Forward = std::function<TensorList(torch::nn::Module&, StageMarks&, TensorList)>;

  MarkedLayer(std::shared_ptr<torch::nn::Module> whole, Forward forward)
      : whole_(std::move(whole)), forward_(std::move(forward)) {}
  const std::shared_ptr<torch::nn::Module>& whole() const { return whole_; }
  // The whole module's forward.
  TensorList RunWhole(StageMarks& marks, TensorList inputs) {
    return forward_(*whole_, marks, std::move(inputs));
  }
  // Never called.
  TensorList forward(TensorList) final {
    TORCH_CHECK(false, "a part of a marked module has no forward of its own");
  }

 private:
  std::shared_ptr<torch::nn::Module> whole_;
  Forward forward_;
};

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_STAGE_MARKS_H_
