// Turns a marked module into layers.
#include "integrations/torch/stage_marks.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "base/status.h"
#include "integrations/torch/layer_parts.h"

namespace ringzero {
namespace {

using Module = torch::nn::Module;

template <typename... What>
absl::Status Refuse(const What&... what) {
  return InvalidArgument("marked module: ", what...);
}

// The module instances behind the factories. Layers that one thread builds in order from the first,
// as RingModel does, are parts of one instance. An instance lives as long as any of its parts.
// Builds take turns (BuildLayer), which also guards this class.
class Instances {
 public:
  explicit Instances(MarkedModule module) : module_(std::move(module)) {}

  std::shared_ptr<Layer> Part(int mark) {
    Instance& instance = by_thread_[std::this_thread::get_id()];  // workers may be threads
    std::shared_ptr<Module> whole = instance.whole.lock();
    if (whole == nullptr || mark == 0 || instance.taken.count(mark) > 0) {
      // The seed must not depend on which mark comes first: the values belong to the whole module.
      at::Generator generator = at::detail::getDefaultCPUGenerator();
      generator.set_current_seed(InitializationKey(module_.seed, "marked module"));
      whole = module_.build();
      TORCH_CHECK(whole != nullptr, "build gave null");
      instance = {.whole = whole};
    }
    instance.taken.insert(mark);
    const auto part = std::make_shared<MarkedLayer>(whole, module_.forward);
    const auto submodules = whole->named_modules("", /*include_self=*/false);
    for (std::string name : module_.marks[mark].modules) {
      const std::shared_ptr<Module> submodule = submodules[name];
      std::replace(name.begin(), name.end(), '.', '_');  // torch allows no dot in a member's name
      part->register_module(name, submodule);
    }
    return part;
  }

 private:
  struct Instance {
    std::weak_ptr<Module> whole;
    std::set<int> taken;
  };
  MarkedModule module_;
  std::map<std::thread::id, Instance> by_thread_;
};

// Every parameter and buffer must be in exactly one mark.
absl::Status CheckMarks(const MarkedModule& module, const Module& whole) {
  std::map<const void*, std::string> marked;  // tensor -> mark
  const auto submodules = whole.named_modules("", /*include_self=*/false);
  for (const StageMark& mark : module.marks) {
    for (const std::string& name : mark.modules) {
      const auto* part = submodules.find(name);
      if (part == nullptr) {
        return Refuse("mark \"", mark.name, "\" names the submodule \"", name,
                      "\", which does not exist");
      }
      std::vector<at::Tensor> tensors = (*part)->parameters();
      for (const at::Tensor& buffer : (*part)->buffers()) tensors.push_back(buffer);
      for (const at::Tensor& tensor : tensors) {
        if (!tensor.defined()) continue;
        const auto [known, fresh] = marked.emplace(tensor.unsafeGetTensorImpl(), mark.name);
        if (!fresh && known->second != mark.name) {
          return Refuse("\"", name, "\" stands in the marks \"", known->second, "\" and \"",
                        mark.name, "\"");
        }
      }
    }
  }
  const auto check = [&](const auto& items) -> absl::Status {
    for (const auto& item : items) {
      if (!item.value().defined() || marked.count(item.value().unsafeGetTensorImpl()) > 0) continue;
      return Refuse("\"", item.key(), "\" belongs to no mark");
    }
    return absl::OkStatus();
  };
  RZ_RETURN_IF_ERROR(check(whole.named_parameters()));
  return check(whole.named_buffers());
}

absl::StatusOr<std::vector<LayerCost>> CountMarks(const MarkedModule& module, MarkedLayer& layer,
                                                  const TensorList& example) {
  CountingMarks counting(module.marks.size());
  try {
    const at::NoGradGuard no_grad;
    layer.RunWhole(counting, example);
  } catch (const std::exception& error) {
    return Refuse("running one sample to count costs: ", error.what());
  }
  if (!counting.complete()) return Refuse("the forward did not pass all marks");
  return counting.costs();
}

}  // namespace

TensorList CountingMarks::Enter(int mark, TensorList inputs) {
  TORCH_CHECK(meter_ == nullptr && mark == next_ && mark < int(costs_.size()),
              "the forward entered mark ", mark, ", but mark ", next_, " comes next");
  meter_ = std::make_unique<CostMeter>(inputs);
  return inputs;
}

TensorList CountingMarks::Leave(int mark, TensorList outputs) {
  TORCH_CHECK(meter_ != nullptr && mark == next_, "the forward left mark ", mark,
              " without having entered it");
  costs_[next_] = meter_->cost();
  reads_[next_++] = meter_->reads();
  meter_.reset();
  return outputs;
}

std::vector<int> CountingMarks::ReadersOf(const at::Tensor& tensor) const {
  std::vector<int> marks;
  for (int mark = 0; mark < next_; ++mark) {
    if (reads_[mark].count(tensor.unsafeGetTensorImpl()) > 0) marks.push_back(mark);
  }
  return marks;
}

absl::StatusOr<std::vector<LayerFactory>> LayersOf(const MarkedModule& module,
                                                   const TensorList& example) {
  if (module.marks.empty() || !module.build || !module.forward) {
    return Refuse("build, forward and at least one mark must be given");
  }
  // Built like a layer, so that it waits for its turn at torch's generator.
  std::shared_ptr<Module> whole;
  const auto build = [&]() -> std::shared_ptr<Layer> {
    whole = module.build();
    TORCH_CHECK(whole != nullptr, "build gave null");
    return std::make_shared<MarkedLayer>(whole, module.forward);
  };
  RZ_ASSIGN_OR_RETURN(const std::shared_ptr<Layer> runner,
                      BuildLayer({.name = "marked module", .build = build}, module.seed));
  RZ_RETURN_IF_ERROR(CheckMarks(module, *whole));
  std::vector<LayerCost> costs(module.marks.size());
  if (std::ranges::any_of(module.marks, [](const StageMark& mark) { return !mark.cost; })) {
    if (example.empty()) return Refuse("marks without a cost need an example to count it with");
    whole->eval();
    RZ_ASSIGN_OR_RETURN(costs, CountMarks(module, static_cast<MarkedLayer&>(*runner), example));
  }
  const auto instances = std::make_shared<Instances>(module);  // shared by the factories
  std::vector<LayerFactory> layers;
  for (int i = 0; i < static_cast<int>(module.marks.size()); ++i) {
    const StageMark& mark = module.marks[i];
    if (!mark.cost) {
      const auto submodules = whole->named_modules("", /*include_self=*/false);
      for (const std::string& name : mark.modules) {
        RZ_RETURN_IF_ERROR(CheckCountable(mark.name, *submodules[name]));
      }
    }
    layers.push_back({.name = mark.name,
                      .build = [instances, i] { return instances->Part(i); },
                      .cost = mark.cost ? *mark.cost : costs[i],
                      .tied = mark.tied});
  }
  return layers;
}

}  // namespace ringzero
