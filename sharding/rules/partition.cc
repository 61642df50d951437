// Cuts layers into contiguous stages and gives each stage an owner.
#include "sharding/rules/partition.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

using Wide = __int128;

bool HasGradient(const LayerInfo& layer) { return layer.trainable && layer.sum_bytes > 0; }

// The first layer whose backward is computed; the number of layers if there is none.
int FirstBackward(std::span<const LayerInfo> layers) {
  return static_cast<int>(std::ranges::find_if(layers, HasGradient) - layers.begin());
}

absl::Status CheckLayers(std::span<const LayerInfo> layers) {
  const int count = static_cast<int>(layers.size());
  for (int i = 0; i < count; ++i) {
    const LayerInfo& layer = layers[i];
    const std::string name = absl::StrCat("layer ", i, " (", layer.name, ")");
    if (layer.parameter_bytes < 0 || layer.sum_bytes < 0 || layer.buffer_bytes < 0 ||
        layer.forward_cost < 0 || layer.backward_cost < 0) {
      return InvalidArgument("partition: ", name, " has negative bytes or costs");
    }
    if (layer.last_use != -1 && (layer.last_use < i || layer.last_use >= count)) {
      return InvalidArgument("partition: last_use of ", name, " must be ", i, " to ", count - 1,
                             " or -1, found ", layer.last_use);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGiven(const std::vector<int>& first_layers, int layer_count) {
  if (first_layers[0] != 0) {
    return absl::InvalidArgumentError("partition: the first stage must begin at layer 0");
  }
  for (size_t j = 0; j < first_layers.size(); ++j) {
    if (j > 0 && first_layers[j] <= first_layers[j - 1]) {
      return InvalidArgument("partition: stage ", j, " must begin after layer ",
                             first_layers[j - 1], " where stage ", j - 1, " begins, found ",
                             first_layers[j]);
    }
    if (first_layers[j] >= layer_count) {
      return InvalidArgument("partition: stage ", j, " begins at layer ", first_layers[j],
                             ", but there are only ", layer_count);
    }
  }
  return absl::OkStatus();
}

// before[i] = weight of layers [0, i).
std::vector<int64_t> WeightsBefore(std::span<const LayerInfo> layers, Balance balance) {
  const int first_backward = FirstBackward(layers);
  std::vector<int64_t> before(layers.size() + 1, 0);
  for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
    const LayerInfo& layer = layers[i];
    const int64_t cost = layer.forward_cost + (i >= first_backward ? layer.backward_cost : 0);
    before[i + 1] = before[i] + (balance == Balance::kCost ? cost : layer.parameter_bytes);
  }
  return before;
}

// Stages needed when none may weigh more than `bound`; nullopt if one layer alone does.
std::optional<int> StagesWithin(const std::vector<int64_t>& before, int64_t bound) {
  const int count = static_cast<int>(before.size()) - 1;
  int stages = 0;
  for (int i = 0; i < count; ++stages) {
    const int first = i;
    while (i < count && before[i + 1] - before[first] <= bound) ++i;
    if (i == first) return std::nullopt;
  }
  return stages;
}

// The smallest weight of the heaviest of `stages` stages. Fewer stages than allowed may always be
// cut further without growing, so the bound is met with exactly `stages`, all non-empty.
int64_t SmallestBound(const std::vector<int64_t>& before, int stages) {
  int64_t low = 0, high = before.back();
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const std::optional<int> needed = StagesWithin(before, middle);
    if (needed && *needed <= stages) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Among all cuts within the bound: the least sum of squares, then the latest cuts.
std::vector<int> BestCuts(const std::vector<int64_t>& before, int stages) {
  const int count = static_cast<int>(before.size()) - 1;
  const int64_t bound = SmallestBound(before, stages);
  constexpr Wide kImpossible = -1;
  std::vector<Wide> best(count + 1, kImpossible), next(count + 1);
  std::vector<std::vector<int>> cut(stages + 1, std::vector<int>(count + 1, 0));
  best[0] = 0;
  for (int s = 1; s <= stages; ++s) {
    std::fill(next.begin(), next.end(), kImpossible);
    for (int end = s; end <= count - (stages - s); ++end) {
      for (int first = end - 1; first >= s - 1; --first) {
        const Wide weight = before[end] - before[first];
        if (weight > bound) break;
        if (best[first] == kImpossible) continue;
        const Wide squares = best[first] + weight * weight;
        if (next[end] != kImpossible && squares >= next[end]) continue;
        next[end] = squares;
        cut[s][end] = first;
      }
    }
    std::swap(best, next);
  }
  std::vector<int> first_layers(stages);
  for (int s = stages, end = count; s >= 1; --s) end = first_layers[s - 1] = cut[s][end];
  return first_layers;
}

StagePlan MakeStage(std::span<const LayerInfo> layers, int first, int end) {
  const int first_backward = FirstBackward(layers);
  StagePlan stage;
  stage.first_layer = first;
  stage.end_layer = end;
  stage.forward_cost = stage.backward_cost = 0;
  stage.name = end - first == 1 ? layers[first].name
                                : absl::StrCat(layers[first].name, "..", layers[end - 1].name);
  stage.has_backward = first_backward < end;
  for (int i = first; i < end; ++i) {
    const LayerInfo& layer = layers[i];
    stage.parameter_bytes += layer.parameter_bytes;
    stage.sum_bytes += HasGradient(layer) ? layer.sum_bytes : 0;
    stage.buffer_bytes += layer.buffer_bytes;
    stage.forward_cost += layer.forward_cost;
    if (i >= first_backward) stage.backward_cost += layer.backward_cost;
  }
  return stage;
}

// A stage is held until the last stage that reads parameters of any of its layers.
void SetLastUses(std::span<const LayerInfo> layers, std::vector<StagePlan>& stages) {
  for (StagePlan& stage : stages) {
    int last = -1;
    for (int i = stage.first_layer; i < stage.end_layer; ++i) {
      last = std::max(last, layers[i].last_use);
    }
    if (last < stage.end_layer) continue;
    const auto reader = std::ranges::upper_bound(stages, last, {}, &StagePlan::end_layer);
    stage.last_use = StageId(static_cast<int>(reader - stages.begin()));
  }
}

int64_t OwnedBytes(const StagePlan& stage) {
  return stage.parameter_bytes + stage.master_bytes + stage.sum_bytes;
}

// Hands out stages, largest first, and keeps count of what each owner holds.
class OwnerAssignment {
 public:
  explicit OwnerAssignment(const Plan& plan)
      : plan_(plan), owners_(plan.stages.size()), order_(plan.stages.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, std::greater(), [this](int j) { return bytes(j); });
  }

  // Each to the emptiest owner; of equally empty ones the nearest to the stage's home.
  int64_t LongestFirst() {
    held_.assign(plan_.workers, 0);
    for (const int j : order_) Give(j, EmptiestOwner(j));
    return *std::max_element(held_.begin(), held_.end());
  }

  // Each to its home or, where that would exceed `bound`, to the nearest owner to the right of it
  // with room. False if some stage finds no room.
  bool NearHome(int64_t bound) {
    held_.assign(plan_.workers, 0);
    for (const int j : order_) {
      int tried = 0;
      int owner = Home(j);
      while (held_[owner] + bytes(j) > bound) {
        if (++tried == plan_.workers) return false;
        owner = (owner + 1) % plan_.workers;
      }
      Give(j, owner);
    }
    return true;
  }

  const std::vector<int>& owners() const { return owners_; }

 private:
  int64_t bytes(int j) const { return OwnedBytes(plan_.stages[j]); }
  int Home(int j) const {
    return plan_.workers - 1 - static_cast<int>(int64_t{j} * plan_.workers / plan_.stage_count());
  }
  int EmptiestOwner(int j) const {
    int best = Home(j);
    for (int i = 1; i < plan_.workers; ++i) {
      const int owner = (Home(j) + i) % plan_.workers;
      if (held_[owner] < held_[best]) best = owner;
    }
    return best;
  }
  void Give(int j, int owner) {
    owners_[j] = owner;
    held_[owner] += bytes(j);
  }

  const Plan& plan_;
  std::vector<int> owners_;
  std::vector<int> order_;  // stages, largest first
  std::vector<int64_t> held_;
};

}  // namespace

int DefaultStageCount(std::span<const LayerInfo> layers, int workers) {
  const auto owned = [](const LayerInfo& layer) { return layer.parameter_bytes > 0; };
  const int count = static_cast<int>(std::ranges::count_if(layers, owned));
  if (count < workers) return std::max(count, 1);
  return std::min(count / workers, 4) * workers;
}

absl::StatusOr<std::vector<StagePlan>> PartitionLayers(std::span<const LayerInfo> layers,
                                                       const PartitionOptions& options) {
  const int count = static_cast<int>(layers.size());
  if (count == 0) return absl::InvalidArgumentError("partition: the model has no layers");
  RZ_RETURN_IF_ERROR(CheckLayers(layers));
  std::vector<int> first_layers = options.first_layers;
  if (!first_layers.empty()) {
    RZ_RETURN_IF_ERROR(CheckGiven(first_layers, count));
  } else {
    if (options.stages < 1 || options.stages > count) {
      return InvalidArgument("partition: stages must be 1 to ", count,
                             " (the layers of the model), found ", options.stages);
    }
    first_layers = BestCuts(WeightsBefore(layers, options.balance), options.stages);
  }
  std::vector<StagePlan> stages;
  for (size_t j = 0; j < first_layers.size(); ++j) {
    const int end = j + 1 < first_layers.size() ? first_layers[j + 1] : count;
    stages.push_back(MakeStage(layers, first_layers[j], end));
  }
  SetLastUses(layers, stages);
  return stages;
}

void AssignOwners(Plan& plan) {
  OwnerAssignment assignment(plan);
  const int64_t bound = assignment.LongestFirst();
  if (!assignment.NearHome(bound)) assignment.LongestFirst();
  for (int j = 0; j < plan.stage_count(); ++j) {
    plan.stages[j].owner = WorkerId(assignment.owners()[j]);
  }
}

OwnerBytes BytesPerOwner(const Plan& plan) {
  OwnerBytes owners;
  owners.bytes.assign(plan.workers, 0);
  for (const StagePlan& stage : plan.stages) owners.bytes[stage.owner.value] += OwnedBytes(stage);
  owners.max = *std::max_element(owners.bytes.begin(), owners.bytes.end());
  const int64_t total = std::accumulate(owners.bytes.begin(), owners.bytes.end(), int64_t{0});
  owners.mean = static_cast<double>(total) / plan.workers;
  return owners;
}

}  // namespace ringzero
