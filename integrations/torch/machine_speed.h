// MeasureSpeed: how fast this machine multiplies and copies, in a blink.
//
//   PrepareTorch(threads);
//   const MachineSpeed speed = MeasureSpeed();
//
// MeasureFlops() measures the multiplying alone; SlownessOf(ValueType::kFp16) compares fp16 with
// fp32. For estimates of times from counts (sharding/cost_profile.h). Also LibTorch's version, and
// which instructions it uses on this machine.
#ifndef RINGZERO_INTEGRATIONS_TORCH_MACHINE_SPEED_H_
#define RINGZERO_INTEGRATIONS_TORCH_MACHINE_SPEED_H_

#include <string>

#include "sharding/cost_profile.h"
#include "zero/update/value_type.h"

namespace ringzero {

// With torch's threads of the calling thread: a product of two 512 x 512 fp32 matrices, and copies
// of 64 MiB; the fastest of a few. Some 0.1 s.
MachineSpeed MeasureSpeed();
// FLOP/s of 512 x 512 products in `type`. At most 8 after the first, and none begins after 50 ms.
double MeasureFlops(ValueType type = ValueType::kFp32);
// How many times longer products in `type` take than in fp32: measured for 50 ms, with matrices of
// 128 x 128.
double SlownessOf(ValueType type);

std::string LibTorchVersion();       // "2.11.0"
std::string LibTorchInstructions();  // which of its kernels run on this processor: "AVX2"

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_TORCH_MACHINE_SPEED_H_
