// Which values of a stage an update reads and writes, block by block; and where its state lies.
#include "zero/optimizer/optimizer.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/crypto.h"
#include "zero/gradient_sum.h"
#include "zero/optimizer/kernels.h"

namespace ringzero {
namespace {

// Without a gradient.
void CarryOver(const UpdateSpan& span) {
  if (span.out != span.theta) std::memcpy(span.out, span.theta, span.count * sizeof(float));
  const void* version = span.out;
  if (span.wire != nullptr) {
    NarrowPass(span.wire_type, span.out, span.wire, span.count);
    version = span.wire;
  }
  if (span.predicted != nullptr) {
    std::memcpy(span.predicted, version, span.count * SizeOf(span.wire_type));
  }
}

constexpr int64_t kPieceBlocks = 4;  // blocks of an update: 1 MiB of a state

std::span<std::byte> StateBytes(StateSpec::Kind kind, StageOptimizer::ParameterState& state) {
  if (kind == StateSpec::Kind::kStep) return std::as_writable_bytes(std::span(&state.updates, 1));
  return std::as_writable_bytes(kind == StateSpec::Kind::kFirst ? state.first : state.second);
}

}  // namespace

StageOptimizer::StageOptimizer(const OptimizerOptions& options, const StageLayout& layout,
                               std::span<std::byte> moments, std::vector<StatePiece> pieces)
    : options_(options),
      layout_(layout),
      pieces_(std::move(pieces)),
      states_(layout.parameters.size()) {
  const StateLayout needs = StateLayout::Make(options, layout);
  const bool has_masters = std::ranges::count(pieces_, true, &StatePiece::masters) > 0;
  moment_bytes_ =
      needs.moment_bytes + (has_masters ? layout.master_bytes : 0) - StreamedBytes(layout, pieces_);
  scratch_bytes_ = needs.scratch_bytes;
  if (moments.empty() && moment_bytes_ > 0) {
    own_moments_ = MakeHeapBuffer(static_cast<size_t>(moment_bytes_));
    moments = own_moments_.as<std::byte>();
  }
  RZ_CHECK(static_cast<int64_t>(moments.size()) >= moment_bytes_, "the state has its memory");
  std::byte* next = moments.data();
  for (size_t i = 0; i < states_.size(); ++i) {
    const ParameterSpec& parameter = layout_.parameters[i];
    const OptimizerOptions own = OptionsFor(options, parameter);
    states_[i].update = MakeUpdate(own, parameter);
    states_[i].rate_factor = own.rate_factor;
    const std::vector<UpdateState>& states = states_[i].update->states();
    std::span<float>* const of[kMaxUpdateStates] = {&states_[i].kept.first,
                                                    &states_[i].kept.second};
    const auto take = [&](std::span<float>& values) {
      values = {reinterpret_cast<float*>(next), static_cast<size_t>(parameter.numel)};
      next += AlignPayload(values.size_bytes());
    };
    const bool in_pieces = std::ranges::count(pieces_, static_cast<int>(i), &StatePiece::parameter);
    for (size_t s = 0; parameter.trainable && !in_pieces && s < states.size(); ++s) {
      take(*of[s]);
      if (states[s].initial != 0) std::ranges::fill(*of[s], states[s].initial);
    }
    if (has_masters && !in_pieces) take(states_[i].kept.masters);
    AddBlocks(static_cast<int>(i));
  }
  std::ranges::stable_sort(blocks_, {}, &UpdateBlock::round);
}

// One phase runs in round 0, with all others of its kind. The others have rounds of their own, one
// parameter after the other: they share the scratch.
void StageOptimizer::AddBlocks(int parameter) {
  const ParameterSpec& spec = layout_.parameters[parameter];
  const ParameterUpdate& update = *states_[parameter].update;
  std::vector<UpdatePhase> phases = update.Phases(spec.numel);
  if (!spec.trainable) phases = {{.items = spec.numel, .block_items = kUpdateBlockValues}};
  for (int phase = 0; phase < static_cast<int>(phases.size()); ++phase) {
    const int round = phases.size() == 1 ? 0 : rounds_++;
    const auto [items, step] = phases[phase];
    for (int64_t begin = 0; begin < items; begin += step) {
      const auto piece = std::ranges::find_if(pieces_, [&](const StatePiece& each) {
        return each.parameter == parameter && each.begin <= begin && begin < each.end;
      });
      const int number = static_cast<int>(piece - pieces_.begin());
      blocks_.push_back({.parameter = parameter,
                         .begin = begin,
                         .end = std::min(begin + step, items),
                         .phase = phase,
                         .round = round,
                         .piece = piece == pieces_.end() ? -1 : number});
    }
  }
}

void StageOptimizer::Begin(const UpdateInput& input) {
  for (size_t i = 0; i < states_.size(); ++i) {
    const ParameterSpec& parameter = layout_.parameters[i];
    states_[i].contributed = !input.skipped && parameter.trainable &&
                             HasContribution(layout_, input.sum, parameter.sum_index);
    if (states_[i].contributed) ++states_[i].kept.updates;
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
  UpdateSpan whole{.theta = state.kept.masters.data(),
                   .out = state.kept.masters.data(),
                   .first = state.kept.first.data(),
                   .second = state.kept.second.data(),
                   .count = parameter.numel};
  if (block.piece >= 0) {
    const StatePiece& piece = pieces_[block.piece];
    const auto staged = [&](int s) {
      return input.staged - piece.begin + s * (piece.StateBytes() / sizeof(float));
    };
    const int last = piece.states - 1;
    if (last > 0 || !piece.masters) whole.first = staged(0);
    if (last > 1 || (last == 1 && !piece.masters)) whole.second = staged(1);
    if (piece.masters) whole.theta = whole.out = staged(last);
  }
  if (input.theta != nullptr) {
    whole.theta = at(input.theta, parameter.master_offset_bytes);
    whole.out = at(out, parameter.master_offset_bytes);
  }
  if (input.wire != nullptr) {
    whole.wire = reinterpret_cast<uint16_t*>(input.wire + parameter.offset_bytes);
    whole.wire_type = layout_.parameter_type;
  }
  if (input.predicted != nullptr) {
    whole.predicted = input.predicted + parameter.offset_bytes;
    whole.factor = static_cast<float>(PredictionFactor(options_));
  }
  if (!state.contributed) {
    if (block.phase == 0) CarryOver(PartOf(whole, block.begin, block.end));
    return;
  }
  const UpdateRate rate = RateAt(options_.curve, options_.learning_rate, input.iteration);
  const UpdateMoment moment{.rate = state.rate_factor * rate.rate,
                            .betas = rate.betas,
                            .updates = state.kept.updates,
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

std::vector<StatePiece> StatePieces(const OptimizerOptions& options, const StageLayout& layout,
                                    bool masters, int64_t least) {
  std::vector<StatePiece> pieces;
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const ParameterSpec& parameter = layout.parameters[i];
    if (!parameter.trainable || parameter.numel < least) continue;
    const auto update = MakeUpdate(OptionsFor(options, parameter), parameter);
    const int states = static_cast<int>(update->states().size()) + (masters ? 1 : 0);
    const bool begins_at_0 = std::ranges::all_of(
        update->states(), [](const UpdateState& state) { return state.initial == 0; });
    if (states == 0 || !begins_at_0 || update->Phases(parameter.numel).size() > 1) continue;
    constexpr int64_t kValues = kPieceBlocks * kUpdateBlockValues;
    for (int64_t begin = 0; begin < parameter.numel; begin += kValues) {
      const int64_t end = std::min(begin + kValues, parameter.numel);
      pieces.push_back({.parameter = static_cast<int>(i),
                        .begin = begin,
                        .end = end,
                        .states = states,
                        .masters = masters});
    }
  }
  return pieces;
}

uint64_t AddToDigest(uint64_t digest, std::span<const float> values) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;  // what is mixed up is seen, too
  return digest * kOdd + Checksum(std::as_bytes(values));
}

int64_t StreamedBytes(const StageLayout& layout, const std::vector<StatePiece>& pieces) {
  int64_t bytes = 0;
  for (const StatePiece& piece : pieces) {
    if (piece.begin > 0) continue;
    const auto values = static_cast<size_t>(layout.parameters[piece.parameter].numel);
    bytes += piece.states * static_cast<int64_t>(AlignPayload(values * sizeof(float)));
  }
  return bytes;
}

StateLayout StateLayout::Make(const OptimizerOptions& options, const StageLayout& stage) {
  StateLayout layout;
  for (size_t i = 0; i < stage.parameters.size(); ++i) {
    const ParameterSpec& parameter = stage.parameters[i];
    if (!parameter.trainable) continue;
    const auto update = MakeUpdate(OptionsFor(options, parameter), parameter);
    const auto add = [&](StateSpec::Kind kind, const std::string& name, size_t bytes) {
      layout.specs.push_back({.kind = kind,
                              .name = name,
                              .parameter = static_cast<int>(i),
                              .offset_bytes = layout.bytes});
      const auto aligned = static_cast<int64_t>(AlignPayload(bytes));
      layout.bytes += aligned;
      if (kind != StateSpec::Kind::kStep) layout.moment_bytes += aligned;
    };
    const size_t values = static_cast<size_t>(parameter.numel) * sizeof(float);
    const std::vector<UpdateState>& states = update->states();
    add(StateSpec::Kind::kStep, "step", sizeof(int64_t));
    if (!states.empty()) add(StateSpec::Kind::kFirst, states[0].name, values);
    if (states.size() > 1) add(StateSpec::Kind::kSecond, states[1].name, values);
    layout.scratch_bytes = std::max(layout.scratch_bytes, update->ScratchBytes(parameter.numel));
  }
  return layout;
}

std::vector<int64_t> MomentBytes(const OptimizerOptions& options,
                                 const std::vector<StageLayout>& stages,
                                 const std::vector<StagePlan>& plans) {
  std::vector<int64_t> bytes;
  for (size_t j = 0; j < stages.size(); ++j) {
    bytes.push_back(StateLayout::Make(options, stages[j]).moment_bytes);
    if (plans.empty()) continue;
    bytes.back() -= plans[j].streamed_bytes;
    if (plans[j].streams_masters) bytes.back() += plans[j].master_bytes;
  }
  return bytes;
}

std::vector<int64_t> ScratchBytes(const OptimizerOptions& options,
                                  const std::vector<StageLayout>& stages) {
  std::vector<int64_t> bytes;
  for (const StageLayout& stage : stages) {
    bytes.push_back(StateLayout::Make(options, stage).scratch_bytes);
  }
  return bytes;
}

void CopyState(const StateLayout& layout, const StageOptimizer& optimizer, std::byte* out) {
  for (const StateSpec& spec : layout.specs) {
    StageOptimizer::ParameterState state = optimizer.state(spec.parameter);
    const std::span<const std::byte> from = StateBytes(spec.kind, state);
    std::memcpy(out + spec.offset_bytes, from.data(), from.size());
  }
}

void PutState(const StateLayout& layout, const std::byte* in, StageOptimizer& optimizer) {
  for (const StateSpec& spec : layout.specs) {
    const std::span<std::byte> to = StateBytes(spec.kind, optimizer.state(spec.parameter));
    std::memcpy(to.data(), in + spec.offset_bytes, to.size());
  }
}

void CopyMasters(const StageLayout& layout, const StageOptimizer& optimizer, std::byte* out) {
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const std::span<const float> masters = optimizer.state(static_cast<int>(i)).masters;
    std::memcpy(out + layout.parameters[i].master_offset_bytes, masters.data(),
                masters.size_bytes());
  }
}

void PutMasters(const StageLayout& layout, const std::byte* in, StageOptimizer& optimizer) {
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const std::span<float> masters = optimizer.state(static_cast<int>(i)).masters;
    std::memcpy(masters.data(), in + layout.parameters[i].master_offset_bytes,
                masters.size_bytes());
  }
}

}  // namespace ringzero
