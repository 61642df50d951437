// SGD and AdamW, one pass over memory per block.
#include "zero/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "zero/gradient_sum.h"
#include "zero/processor.h"
#include "zero/stream_copy.h"

namespace ringzero {
namespace {

constexpr int64_t kBlockElements = 64 * 1024;  // 256 KiB

struct Pointers {
  const float* theta;
  const float* sum;
  float* out;
  float* first;
  float* second;
  int64_t count;
};

struct SgdStep {
  float divisor, weight_decay, momentum, undamped, rate;
  bool has_momentum, first_time, nesterov;
};

// torch's add with a factor rounds once: a fused multiply-add, written out here, as the compiler
// may not contract. fma is exact on every processor, so the copies of a loop (zero/processor.h)
// differ in speed only.
RZ_INLINE_LOOP void SgdLoop(const Pointers& p, const SgdStep& s) {
#pragma GCC ivdep
  for (int64_t i = 0; i < p.count; ++i) {
    const float theta = p.theta[i];
    float g = p.sum[i] / s.divisor;
    if (s.weight_decay != 0.0f) g = std::fma(s.weight_decay, theta, g);
    if (s.has_momentum) {
      const float buffer = s.first_time ? g : std::fma(s.undamped, g, p.first[i] * s.momentum);
      p.first[i] = buffer;
      g = s.nesterov ? std::fma(s.momentum, buffer, g) : buffer;
    }
    p.out[i] = std::fma(-s.rate, g, theta);
  }
}

struct AdamWStep {
  float divisor, keep, beta1, one_minus_beta1, beta2, one_minus_beta2, root_correction2, epsilon,
      step_size;
};

RZ_INLINE_LOOP void AdamWLoop(const Pointers& p, const AdamWStep& s) {
#pragma GCC ivdep
  for (int64_t i = 0; i < p.count; ++i) {
    const float g = p.sum[i] / s.divisor;
    const float theta = p.theta[i] * s.keep;
    const float m = std::fma(s.one_minus_beta1, g, p.first[i] * s.beta1);
    const float v = std::fma(s.one_minus_beta2 * g, g, p.second[i] * s.beta2);
    p.first[i] = m;
    p.second[i] = v;
    p.out[i] = theta - s.step_size * m / (std::sqrt(v) / s.root_correction2 + s.epsilon);
  }
}

// Lane by lane, so that every copy of the loop adds in the same order.
constexpr int64_t kLanes = 16;
RZ_INLINE_LOOP void SquaresLoop(const float* values, int64_t count, double* lanes) {
  const int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (int64_t i = whole; i < count; ++i) {
    const double value = values[i];
    lanes[i - whole] += value * value;
  }
}
RZ_FOR_PROCESSOR(SquaresOf, SquaresLoop, (const float* values, int64_t count, double* lanes),
                 (values, count, lanes))

RZ_FOR_PROCESSOR(SgdBlock, SgdLoop, (const Pointers& p, const SgdStep& s), (p, s))
RZ_FOR_PROCESSOR(AdamWTile, AdamWLoop, (const Pointers& p, const AdamWStep& s), (p, s))

// The new parameters are not read again here: they leave tile by tile, past the caches.
void AdamWBlock(const Pointers& p, const AdamWStep& s) {
  constexpr int64_t kTile = 512;
  alignas(64) float out[kTile];
  for (int64_t begin = 0; begin < p.count; begin += kTile) {
    const int64_t count = std::min(kTile, p.count - begin);
    AdamWTile({.theta = p.theta + begin,
               .sum = p.sum + begin,
               .out = out,
               .first = p.first + begin,
               .second = p.second + begin,
               .count = count},
              s);
    StreamCopy(p.out + begin, out, static_cast<size_t>(count) * sizeof(float));
  }
}

// Value `begin` and on; null where the optimizer has no such state.
float* ValuesAt(float* state, int64_t begin) { return state != nullptr ? state + begin : nullptr; }

absl::Status OutOfRange(const char* key, const char* wanted, double found) {
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer.params.", key, " must be ", wanted, ", found ", found));
}

}  // namespace

absl::Status CheckOptimizer(const OptimizerOptions& options) {
  if (!(options.learning_rate >= 0)) return OutOfRange("lr", "at least 0", options.learning_rate);
  if (options.type == OptimizerOptions::Type::kSgd) {
    const SgdOptions& sgd = options.sgd;
    if (!(sgd.momentum >= 0)) return OutOfRange("momentum", "at least 0", sgd.momentum);
    if (!(sgd.weight_decay >= 0)) return OutOfRange("weight_decay", "at least 0", sgd.weight_decay);
    if (sgd.nesterov == SgdOptions::Nesterov::kOn && (sgd.momentum <= 0 || sgd.dampening != 0)) {
      return absl::InvalidArgumentError(
          "optimizer.params.nesterov needs a momentum above 0 and a dampening of 0");
    }
    return absl::OkStatus();
  }
  const AdamWOptions& adamw = options.adamw;
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  if (!is_beta(adamw.beta1)) return OutOfRange("betas[0]", "in [0, 1)", adamw.beta1);
  if (!is_beta(adamw.beta2)) return OutOfRange("betas[1]", "in [0, 1)", adamw.beta2);
  if (!(adamw.epsilon >= 0)) return OutOfRange("eps", "at least 0", adamw.epsilon);
  if (!(adamw.weight_decay >= 0)) {
    return OutOfRange("weight_decay", "at least 0", adamw.weight_decay);
  }
  return absl::OkStatus();
}

StageOptimizer::StageOptimizer(const OptimizerOptions& options, const StageLayout& layout)
    : options_(options), layout_(layout), states_(layout.parameters.size()) {
  const bool adamw = options.type == OptimizerOptions::Type::kAdamW;
  const bool has_first = adamw || options.sgd.momentum != 0;
  std::vector<std::pair<float**, size_t>> parts;  // and where they begin
  size_t end = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    const ParameterSpec& parameter = layout_.parameters[i];
    const size_t bytes = static_cast<size_t>(parameter.numel) * sizeof(float);
    const auto add = [&](float** part) {
      parts.emplace_back(part, end);
      end += AlignPayload(bytes);
      moment_bytes_ += static_cast<int64_t>(bytes);
    };
    if (parameter.trainable && has_first) add(&states_[i].first);
    if (parameter.trainable && adamw) add(&states_[i].second);
    for (int64_t begin = 0; begin < parameter.numel; begin += kBlockElements) {
      blocks_.push_back(
          {static_cast<int>(i), begin, std::min(begin + kBlockElements, parameter.numel)});
    }
  }
  if (end == 0) return;
  moments_ = MakeHeapBuffer(end);
  for (const auto& [part, begin] : parts) *part = reinterpret_cast<float*>(moments_.data() + begin);
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
  const auto* values = reinterpret_cast<const float*>(input.sum + parameter.sum_offset_bytes);
  double lanes[kLanes] = {};
  SquaresOf(values + block.begin, block.end - block.begin, lanes);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

void StageOptimizer::Block(const UpdateBlock& block, const UpdateInput& input, std::byte* out) {
  const ParameterSpec& parameter = layout_.parameters[block.parameter];
  State& state = states_[block.parameter];
  const auto at = [&](auto* base, int64_t offset_bytes) {
    return reinterpret_cast<float*>(const_cast<std::byte*>(base) + offset_bytes) + block.begin;
  };
  Pointers p{.theta = at(input.theta, parameter.offset_bytes),
             .sum = nullptr,
             .out = at(out, parameter.offset_bytes),
             .first = ValuesAt(state.first, block.begin),
             .second = ValuesAt(state.second, block.begin),
             .count = block.end - block.begin};
  if (!state.contributed) {
    if (p.out != p.theta) std::memcpy(p.out, p.theta, p.count * sizeof(float));
    return;
  }
  p.sum = at(input.sum, parameter.sum_offset_bytes);
  const UpdateRate at_update = RateAt(options_.curve, options_.learning_rate, input.iteration);
  const double rate = at_update.rate;
  if (options_.type == OptimizerOptions::Type::kSgd) {
    const SgdOptions& sgd = options_.sgd;
    const bool has_momentum = sgd.momentum != 0;
    RZ_CHECK(p.first != nullptr || !has_momentum, "a momentum buffer");
    SgdBlock(p, {.divisor = float(input.divisor),
                 .weight_decay = float(sgd.weight_decay),
                 .momentum = float(sgd.momentum),
                 .undamped = float(1 - sgd.dampening),
                 .rate = float(rate),
                 .has_momentum = has_momentum,
                 .first_time = state.updates == 1,
                 .nesterov = sgd.nesterov == SgdOptions::Nesterov::kOn});
    return;
  }
  AdamWOptions adamw = options_.adamw;
  if (at_update.betas.has_value()) {
    adamw.beta1 = at_update.betas->beta1;
    adamw.beta2 = at_update.betas->beta2;
  }
  RZ_CHECK(p.first != nullptr && p.second != nullptr, "both moments");
  const double correction1 = 1 - std::pow(adamw.beta1, double(state.updates));
  const double correction2 = 1 - std::pow(adamw.beta2, double(state.updates));
  AdamWBlock(p, {.divisor = float(input.divisor),
                 .keep = float(1 - rate * adamw.weight_decay),
                 .beta1 = float(adamw.beta1),
                 .one_minus_beta1 = float(1 - adamw.beta1),
                 .beta2 = float(adamw.beta2),
                 .one_minus_beta2 = float(1 - adamw.beta2),
                 .root_correction2 = float(std::sqrt(correction2)),
                 .epsilon = float(adamw.epsilon),
                 .step_size = float(rate / correction1)});
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
