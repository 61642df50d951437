// Which values of a stage an update reads and writes, block by block.
#include "zero/optimizer.h"

#include <algorithm>
#include <cstring>

#include "zero/gradient_sum.h"
#include "zero/update/kernels.h"
#include "zero/update/parameter_groups.h"

namespace ringzero {
namespace {

constexpr int64_t kBlockElements = 64 * 1024;  // 256 KiB

// Value `begin` and on; null where the optimizer has no such state.
float* ValuesAt(float* state, int64_t begin) { return state != nullptr ? state + begin : nullptr; }

UpdateSpan PartOf(const UpdateSpan& span, const float* sum, int64_t offset, int64_t count) {
  UpdateSpan part = span;
  part.theta += offset;
  part.sum = sum;
  part.out += offset;
  part.first = ValuesAt(span.first, offset);
  part.second = ValuesAt(span.second, offset);
  if (span.wire != nullptr) part.wire += offset;
  part.count = count;
  return part;
}

}  // namespace

StageOptimizer::StageOptimizer(const OptimizerOptions& options, const StageLayout& layout)
    : options_(options), layout_(layout), states_(layout.parameters.size()) {
  struct Part {
    float** values;
    size_t offset_bytes;
    int64_t count;
    float initial;
  };
  std::vector<Part> parts;
  size_t end = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    const ParameterSpec& parameter = layout_.parameters[i];
    const size_t bytes = static_cast<size_t>(parameter.numel) * sizeof(float);
    const OptimizerOptions own = OptionsFor(options, parameter);
    states_[i].update = MakeUpdate(own);
    states_[i].rate_factor = own.rate_factor;
    const std::vector<UpdateState>& states = states_[i].update->states();
    float** const of[kMaxUpdateStates] = {&states_[i].first, &states_[i].second};
    for (size_t s = 0; parameter.trainable && s < states.size(); ++s) {
      parts.push_back({of[s], end, parameter.numel, states[s].initial});
      end += AlignPayload(bytes);
      moment_bytes_ += static_cast<int64_t>(bytes);
    }
    for (int64_t begin = 0; begin < parameter.numel; begin += kBlockElements) {
      blocks_.push_back(
          {static_cast<int>(i), begin, std::min(begin + kBlockElements, parameter.numel)});
    }
  }
  if (end == 0) return;
  moments_ = MakeHeapBuffer(end);
  for (const Part& part : parts) {
    *part.values = reinterpret_cast<float*>(moments_.data() + part.offset_bytes);
    if (part.initial != 0) std::fill_n(*part.values, part.count, part.initial);
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
  if (!states_[block.parameter].contributed) return 0;
  const ParameterSpec& parameter = layout_.parameters[block.parameter];
  double lanes[kSquareLanes] = {};
  ForSumValues(
      layout_, parameter, input.sum, block.begin, block.end,
      [&lanes](const float* values, int64_t, int64_t count) { SquaresPass(values, count, lanes); });
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

void StageOptimizer::Block(const UpdateBlock& block, const UpdateInput& input, std::byte* out) {
  const ParameterSpec& parameter = layout_.parameters[block.parameter];
  const State& state = states_[block.parameter];
  const auto at = [&](auto* base, int64_t offset_bytes) {
    return reinterpret_cast<float*>(const_cast<std::byte*>(base) + offset_bytes) + block.begin;
  };
  UpdateSpan span{.theta = at(input.theta, parameter.master_offset_bytes),
                  .out = at(out, parameter.master_offset_bytes),
                  .first = ValuesAt(state.first, block.begin),
                  .second = ValuesAt(state.second, block.begin),
                  .count = block.end - block.begin};
  if (input.wire != nullptr) {
    span.wire = reinterpret_cast<uint16_t*>(input.wire + parameter.offset_bytes) + block.begin;
    span.wire_type = WireTypeOf(layout_.parameter_type);
  }
  if (!state.contributed) {
    if (span.out != span.theta) std::memcpy(span.out, span.theta, span.count * sizeof(float));
    if (span.wire != nullptr) NarrowPass(span.wire_type, span.out, span.wire, span.count);
    return;
  }
  const UpdateRate rate = RateAt(options_.curve, options_.learning_rate, input.iteration);
  const UpdateMoment moment{.rate = state.rate_factor * rate.rate,
                            .betas = rate.betas,
                            .updates = state.updates,
                            .divisor = input.divisor,
                            .loss_scale = input.loss_scale,
                            .clip = input.clip};
  ForSumValues(layout_, parameter, input.sum, block.begin, block.end,
               [&](const float* values, int64_t offset, int64_t count) {
                 state.update->Pass(moment, PartOf(span, values, offset, count));
               });
}

void StageOptimizer::Update(const UpdateInput& input, std::byte* out) {
  Begin(input);
  for (const UpdateBlock& block : blocks_) Block(block, input, out);
}

StageOptimizer::ParameterState StageOptimizer::state(int parameter) const {
  const State& state = states_[parameter];
  const size_t count = static_cast<size_t>(layout_.parameters[parameter].numel);
  const auto values = [count](const float* part) {
    return part != nullptr ? std::span<const float>(part, count) : std::span<const float>();
  };
  return {.updates = state.updates, .first = values(state.first), .second = values(state.second)};
}

}  // namespace ringzero
