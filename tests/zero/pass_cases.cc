// Every branch of every pass has a step that takes it.
#include "tests/zero/pass_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>

#include "tests/zero/update_reference.h"

namespace ringzero {
namespace {

constexpr uint16_t kUnwritten = 0xabcd;

void AddSgdSteps(SgdStep step, std::vector<UpdateStep>& steps) {
  steps.push_back(step);
  step.has_momentum = true;
  for (const bool nesterov : {false, true}) {
    for (const bool first_time : {false, true}) {
      step.nesterov = nesterov;
      step.first_time = first_time;
      steps.push_back(step);
    }
  }
}

}  // namespace

bool IsNan(ValueType type, uint16_t value) {
  return (value & 0x7fff) > (type == ValueType::kBf16 ? 0x7f80 : 0x7c00);
}

std::vector<UpdateStep> PassSteps(float divisor) {
  const float clip = divisor == 8 ? 1.0f : 0.37f;
  std::vector<UpdateStep> steps;
  for (const float decay : {0.0f, 0.01f}) {
    AddSgdSteps({.divisor = divisor,
                 .clip = clip,
                 .weight_decay = decay,
                 .momentum = 0.9f,
                 .undamped = 0.75f,
                 .rate = 0.1f},
                steps);
    for (const float keep : {1.0f, 0.999f}) {
      steps.push_back(AdamStep{.divisor = divisor,
                               .clip = clip,
                               .keep = keep,
                               .weight_decay = decay,
                               .betas = {0.9f, 0.1f, 0.95f, 0.05f},
                               .root_correction2 = 0.3f,
                               .epsilon = 1e-8f,
                               .step_size = 1e-3f});
    }
    steps.push_back(AdagradStep{
        .divisor = divisor, .clip = clip, .weight_decay = decay, .epsilon = 1e-10f, .rate = 0.01f});
    for (const bool takes_gradient : {true, false}) {
      steps.push_back(LambStep{.takes_gradient = takes_gradient,
                               .divisor = divisor,
                               .clip = clip,
                               .weight_decay = decay,
                               .betas = {0.9f, 0.1f, 0.99f, 0.01f},
                               .correction1 = 0.19f,
                               .correction2 = 0.03f,
                               .epsilon = 1e-6f});
    }
    steps.push_back(MoveStep{.keep = 1 - decay, .rate = 0.3f});
  }
  for (const float least : {0.0f, std::numeric_limits<float>::denorm_min()}) {
    steps.push_back(LionStep{.divisor = divisor,
                             .clip = clip,
                             .keep = 0.99f,
                             .betas = {0.9f, 0.1f, 0.99f, 0.01f},
                             .rate = 1e-3f,
                             .least = least});
  }
  steps.push_back(MuonStep{.divisor = divisor, .clip = clip, .one_minus_momentum = 0.05f});
  return steps;
}

std::string NameOf(const UpdateStep& step) {
  constexpr const char* kNames[] = {"sgd", "adam", "lion", "adagrad", "lamb", "muon", "move"};
  static_assert(std::size(kNames) == std::variant_size_v<UpdateStep>);
  return kNames[step.index()];
}

std::vector<PassCase> PassCases(const std::vector<int64_t>& counts) {
  std::vector<PassCase> cases;
  std::vector<UpdateStep> steps = PassSteps(8);
  for (const UpdateStep& step : PassSteps(6)) steps.push_back(step);
  for (const UpdateStep& step : steps) {
    for (const ValueType wire : {ValueType::kFp32, ValueType::kBf16, ValueType::kFp16}) {
      for (const Place place : {Place::kOwn, Place::kInPlace}) {
        for (const int64_t count : counts) cases.push_back({step, wire, place, count});
      }
    }
  }
  return cases;
}

std::string PassCase::Name() const {
  return NameOf(step) + ", " + std::to_string(count) + " values";
}

std::vector<float> MixedValues(int64_t count, uint64_t seed) {
  using Limits = std::numeric_limits<float>;
  const float unusual[] = {0.0f,
                           -0.0f,
                           1e-42f,
                           3e-6f,
                           70000.0f,
                           Limits::max(),
                           Limits::lowest(),
                           Limits::min(),
                           Limits::infinity(),
                           Limits::quiet_NaN()};
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = random() % 16 == 0 ? unusual[random() % std::size(unusual)] : normal(random);
  }
  return values;
}

std::vector<uint16_t> NarrowValues(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = static_cast<uint16_t>(random());
  return values;
}

SquaresCase::SquaresCase(int64_t count, int64_t block)
    : block(block), values(count), lanes((count + block - 1) / block * kSquareLanes, 0.5) {
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7919 % 1000) / 7;
}

void SquaresCase::PlainPass() {
  const int64_t count = static_cast<int64_t>(values.size());
  for (int64_t b = 0; b * block < count; ++b) {
    reference::SquaresPass(values.data() + b * block, std::min(block, count - b * block),
                           lanes.data() + b * kSquareLanes);
  }
}

PassMemory::PassMemory(const PassCase& of)
    : of(of),
      theta(MixedValues(of.count, 1)),
      sum(MixedValues(of.count, 2)),
      out(of.count, 12345.0f),
      first(MixedValues(of.count, 3)),
      second(MixedValues(of.count, 4)),
      wire(of.count, kUnwritten) {
  for (float& value : second) value = std::fabs(value);  // sums of squares
  if (!std::holds_alternative<AdagradStep>(of.step)) return;
  for (float& value : first) value = std::fabs(value);
}

UpdateSpan PassMemory::Span() {
  return {.theta = theta.data(),
          .sum = sum.data(),
          .out = of.place == Place::kInPlace ? theta.data() : out.data(),
          .first = first.data(),
          .second = second.data(),
          .wire = wire.data(),
          .wire_type = of.wire_type,
          .count = of.count};
}

void ExpectSame(const std::vector<float>& wanted, const std::vector<float>& found,
                const std::string& what) {
  ASSERT_EQ(wanted.size(), found.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(wanted[i]) && std::isnan(found[i])) continue;
    ASSERT_EQ(std::memcmp(&wanted[i], &found[i], sizeof(float)), 0)
        << what << ", value " << i << ": " << wanted[i] << ", " << found[i];
  }
}

void ExpectSame(ValueType type, const std::vector<uint16_t>& wanted,
                const std::vector<uint16_t>& found, const std::string& what) {
  ASSERT_EQ(wanted.size(), found.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (IsNan(type, wanted[i]) && IsNan(type, found[i])) continue;
    ASSERT_EQ(wanted[i], found[i]) << what << ", value " << i;
  }
}

void ExpectSame(const PassMemory& wanted, const PassMemory& found) {
  const std::string what = wanted.of.Name();
  ExpectSame(wanted.theta, found.theta, what + ", theta");
  ExpectSame(wanted.sum, found.sum, what + ", sum");
  ExpectSame(wanted.out, found.out, what + ", out");
  ExpectSame(wanted.first, found.first, what + ", first");
  ExpectSame(wanted.second, found.second, what + ", second");
  ExpectSame(wanted.of.wire_type, wanted.wire, found.wire, what + ", wire");
}

}  // namespace ringzero
