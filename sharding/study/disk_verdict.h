// DiskVerdict: whether a run whose states or parameters lie on a disk (Plan::uses_disk) waits for
// it, said before the run.
//
//   RZ_ASSIGN_OR_RETURN(plan.staging_bytes, ChooseStaging(plan));
//   speed.disk = {.per_byte = 1e9 / bytes_per_second};
//   RZ_ASSIGN_OR_RETURN(const DiskVerdict verdict, JudgeDisk(plan, speed));
//   verdict.hidden();  DescribeDisk(verdict);
//
// By simulation. Pure.
#ifndef RINGZERO_SHARDING_STUDY_DISK_VERDICT_H_
#define RINGZERO_SHARDING_STUDY_DISK_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sharding/plan.h"
#include "sharding/study/simulate.h"

namespace ringzero {

struct DiskVerdict {
  double needs = 0;  // bytes per second, both ways: of a host, for steps as long as in memory
  double has = 0;
  double step_in_memory = 0;  // seconds
  double step = 0;
  double waits = 0;           // of computing, above those in memory: a part of the step
  int64_t written_bytes = 0;  // in an iteration, by the host that moves most bytes
  int64_t state_bytes = 0;    // of these: of optimizer states
  std::vector<std::string>
      ways_out;  // each of which would hide it: "gradient_accumulation_steps 3"

  // A hundredth of a step is less than a simulation can tell. A step may be longer although nothing
  // waits: what reads, writes and checks takes processor time. Where a simulation waits at all, a
  // run waits more: its threads also wait for cores.
  bool is_longer() const { return step > 1.01 * step_in_memory; }
  bool hidden() const { return !is_longer() || waits <= 0.001; }
};

// `speed`: nanoseconds, with its disk and, of links, the hosts. Errors of Simulate.
absl::StatusOr<DiskVerdict> JudgeDisk(const Plan& plan, const SimulationOptions& speed);

// A line or two. `endurance`: bytes that may be written to the disk in its life; absent: not said.
std::string DescribeDisk(const DiskVerdict& verdict, std::optional<double> endurance);

// The least memory through which states can come and go in time, at each worker, if its disk gives
// 1.25 times what a step needs: two of the largest stages and 16 MiB at least, twice as much or four
// times; but at most half of what the fullest worker streams. The plan's costs decide, so all
// workers choose the same. Errors of Simulate and ChooseWindow.
absl::StatusOr<int64_t> ChooseStaging(const Plan& plan);
inline constexpr int64_t kLeastStaging = 16 << 20;

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_STUDY_DISK_VERDICT_H_
