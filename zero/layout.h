// Layout: where each parameter, gradient and running statistic lies inside a stage's messages.
//
//   StageLayout layout = StageLayout::Make({{.name = "conv1.weight", .shape = {16, 1, 3, 3}}}, {});
//   float* weight = reinterpret_cast<float*>(buffer.data() + layout.parameters[0].offset_bytes);
//
// Everything begins at a multiple of 64 bytes. A parameter's values lie in the order of its own
// strides (a channels_last weight stays channels_last); shape and strides say how. Parameters and
// sums travel in the types that Make is given; where parameters travel in another type than fp32,
// their owner has fp32 masters besides, in a layout of their own. Running statistics are fp32.
#ifndef RINGZERO_ZERO_LAYOUT_H_
#define RINGZERO_ZERO_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "zero/precision.h"

namespace ringzero {

struct ParameterSpec {
  std::string name;  // in the model, unique: "layer3.conv1.weight"
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements; dense and without overlap; empty: row-major
  bool trainable = true;
  // Filled in by Make:
  int64_t numel = 0;
  int64_t offset_bytes = 0;         // in a version, as it travels
  int64_t master_offset_bytes = 0;  // in masters; the same where versions are fp32
  int64_t sum_offset_bytes = -1;    // in a gradient sum; -1: not trainable
  int sum_index = -1;  // its number among the trainable ones: its bit in the sum's trailer
};

// One running statistic. kBlend: running = (1 - blend) * running + blend * batch, computed in
// double and rounded once to fp32 (numel fp32 values). kCount: running = running + 1 (one int64).
struct StatisticSpec {
  enum class Kind { kBlend, kCount };
  std::string name;  // "bn1.running_mean"
  Kind kind = Kind::kBlend;
  int64_t numel = 0;
  double blend = 0.1;
  int64_t offset_bytes = 0;  // filled in by Make
};

struct StageLayout {
  std::vector<ParameterSpec> parameters;
  std::vector<StatisticSpec> statistics;
  ValueType parameter_type = ValueType::kFp32;
  ValueType sum_type = ValueType::kFp32;
  int64_t parameter_bytes = 0;
  int64_t master_bytes = 0;  // 0: versions are fp32, and the masters themselves
  // Gradients of the trainable parameters, then one bit each: contributed in this iteration or not.
  int64_t sum_bytes = 0;
  int64_t trailer_offset_bytes = 0;
  int64_t statistics_bytes = 0;
  int trainable_count = 0;

  static StageLayout Make(std::vector<ParameterSpec> parameters,
                          std::vector<StatisticSpec> statistics, const Precision& precision = {});
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_LAYOUT_H_
