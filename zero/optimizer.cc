// Which values of a stage an update reads and writes, block by block.
#include "zero/optimizer.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "zero/gradient_norm.h"
#include "zero/gradient_sum.h"
#include "zero/update/kernels.h"

namespace ringzero {
namespace {

// Without a gradient.
void CarryOver(const UpdateSpan& span) {
  if (span.out != span.theta) std::memcpy(span.out, span.theta, span.count * sizeof(float));
  if (span.predicted != nullptr) {
    std::memcpy(span.predicted, span.theta, span.count * sizeof(float));
  }
  if (span.wire != nullptr) NarrowPass(span.wire_type, span.out, span.wire, span.count);
}

}  // namespace

StageOptimizer::StageOptimizer(const OptimizerOptions& options, const StageLayout& layout,
                               std::span<std::byte> moments)
    : options_(options), layout_(layout), states_(layout.parameters.size()) {
  struct Part {
    float** values;
    size_t offset_bytes;
    int64_t count;
    float initial;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < states_.size(); ++i) {
    const ParameterSpec& parameter = layout_.parameters[i];
    const size_t bytes = static_cast<size_t>(parameter.numel) * sizeof(float);
    const OptimizerOptions own = OptionsFor(options, parameter);
    states_[i].update = MakeUpdate(own, parameter);
    states_[i].rate_factor = own.rate_factor;
    const std::vector<UpdateState>& states = states_[i].update->states();
    float** const of[kMaxUpdateStates] = {&states_[i].first, &states_[i].second};
    for (size_t s = 0; parameter.trainable && s < states.size(); ++s) {
      const auto offset = static_cast<size_t>(moment_bytes_);
      parts.push_back({of[s], offset, parameter.numel, states[s].initial});
      moment_bytes_ += static_cast<int64_t>(AlignPayload(bytes));
    }
    AddBlocks(static_cast<int>(i));
  }
  std::stable_sort(blocks_.begin(), blocks_.end(),
                   [](const UpdateBlock& a, const UpdateBlock& b) { return a.round < b.round; });
  if (moments.empty() && moment_bytes_ > 0) {
    own_moments_ = MakeHeapBuffer(static_cast<size_t>(moment_bytes_));
    moments = own_moments_.as<std::byte>();
  }
  RZ_CHECK(static_cast<int64_t>(moments.size()) >= moment_bytes_, "the state has its memory");
  for (const Part& part : parts) {
    *part.values = reinterpret_cast<float*>(moments.data() + part.offset_bytes);
    if (part.initial != 0) std::fill_n(*part.values, part.count, part.initial);
  }
}

// One phase runs in round 0, with all others of its kind. The others have rounds of their own, one
// parameter after the other: they share the scratch.
void StageOptimizer::AddBlocks(int parameter) {
  const ParameterSpec& spec = layout_.parameters[parameter];
  const ParameterUpdate& update = *states_[parameter].update;
  std::vector<UpdatePhase> phases = update.Phases(spec.numel);
  if (!spec.trainable) phases = {{.items = spec.numel, .block_items = kUpdateBlockValues}};
  if (spec.trainable) scratch_bytes_ = std::max(scratch_bytes_, update.ScratchBytes(spec.numel));
  for (int phase = 0; phase < static_cast<int>(phases.size()); ++phase) {
    const int round = phases.size() == 1 ? 0 : rounds_++;
    const auto [items, step] = phases[phase];
    for (int64_t begin = 0; begin < items; begin += step) {
      blocks_.push_back({.parameter = parameter,
                         .begin = begin,
                         .end = std::min(begin + step, items),
                         .phase = phase,
                         .round = round});
    }
  }
}

void StageOptimizer::Begin(const UpdateInput& input) {
  for (size_t i = 0; i < states_.size(); ++i) {
    const ParameterSpec& parameter = layout_.parameters[i];
    states_[i].contributed =
        parameter.trainable && HasContribution(layout_, input.sum, parameter.sum_index);
    if (states_[i].contributed) ++states_[i].updates;
  }
}

double StageOptimizer::SumOfSquares(const UpdateBlock& block, const UpdateInput& input) const {
  if (block.phase > 0 || !states_[block.parameter].contributed) return 0;
  return SquaresOf(layout_, layout_.parameters[block.parameter], input.sum, block.begin, block.end);
}

void StageOptimizer::Block(const UpdateBlock& block, const UpdateInput& input, std::byte* out) {
  const ParameterSpec& parameter = layout_.parameters[block.parameter];
  const State& state = states_[block.parameter];
  const auto at = [](auto* base, int64_t offset_bytes) {
    return reinterpret_cast<float*>(const_cast<std::byte*>(base) + offset_bytes);
  };
  UpdateSpan whole{.theta = at(input.theta, parameter.master_offset_bytes),
                   .out = at(out, parameter.master_offset_bytes),
                   .first = state.first,
                   .second = state.second,
                   .count = parameter.numel};
  if (input.wire != nullptr) {
    whole.wire = reinterpret_cast<uint16_t*>(input.wire + parameter.offset_bytes);
    whole.wire_type = WireTypeOf(layout_.parameter_type);
  }
  if (input.predicted != nullptr) {
    whole.predicted = at(input.predicted, parameter.offset_bytes);
    whole.momentum = static_cast<float>(options_.sgd.momentum);
  }
  if (!state.contributed) {
    if (block.phase == 0) CarryOver(PartOf(whole, block.begin, block.end));
    return;
  }
  const UpdateRate rate = RateAt(options_.curve, options_.learning_rate, input.iteration);
  const UpdateMoment moment{.rate = state.rate_factor * rate.rate,
                            .betas = rate.betas,
                            .updates = state.updates,
                            .divisor = input.divisor,
                            .loss_scale = input.loss_scale,
                            .clip = input.clip};
  const UpdatePart part{.phase = block.phase, .begin = block.begin, .end = block.end};
  if (block.phase > 0) return state.update->Run(part, moment, whole, input.scratch);
  ForSumValues(layout_, parameter, input.sum, block.begin, block.end,
               [&](const float* values, int64_t offset, int64_t count) {
                 const int64_t begin = block.begin + offset;
                 UpdateSpan summed = whole;
                 summed.sum = values;
                 state.update->Run({.begin = begin, .end = begin + count}, moment, summed,
                                   input.scratch);
               });
}

void StageOptimizer::Update(const UpdateInput& input, std::byte* out) {
  UpdateInput with_scratch = input;
  Buffer scratch;
  if (input.scratch == nullptr && scratch_bytes_ > 0) {
    scratch = MakeHeapBuffer(static_cast<size_t>(scratch_bytes_));
    with_scratch.scratch = scratch.data();
  }
  Begin(with_scratch);
  for (const UpdateBlock& block : blocks_) Block(block, with_scratch, out);
}

StageOptimizer::ParameterState StageOptimizer::state(int parameter) const {
  const State& state = states_[parameter];
  const size_t count = static_cast<size_t>(layout_.parameters[parameter].numel);
  const auto values = [count](const float* part) {
    return std::span<const float>(part, part == nullptr ? 0 : count);
  };
  return {.updates = state.updates, .first = values(state.first), .second = values(state.second)};
}

StageOptimizer::MutableState StageOptimizer::mutable_state(int parameter) {
  State& state = states_[parameter];
  const size_t count = static_cast<size_t>(layout_.parameters[parameter].numel);
  const auto values = [count](float* part) {
    return std::span<float>(part, part == nullptr ? 0 : count);
  };
  return {.updates = &state.updates, .first = values(state.first), .second = values(state.second)};
}

}  // namespace ringzero
