// Cores: how many this process may use, and what follows where a run has more threads than these.
// Control groups: where the kernel keeps their limits.
//
//   const double cores = UsableCores();                     // 0.5 with half a processor's quota
//   SleepWhereCrowded({.workers = 4, .threads = 2}, "run.json", /*speaks=*/true);
//
// OpenMP's threads, which LibTorch computes with, spin while they wait for each other. Where they
// share cores with other workers' threads, spinning takes the processor from those who work: a step
// becomes some forty times longer (docs/results/threads.md).
#ifndef RINGZERO_INTEGRATIONS_CLI_CORES_H_
#define RINGZERO_INTEGRATIONS_CLI_CORES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ringzero {

struct CgroupFolder {
  std::string folder;    // "/sys/fs/cgroup/jobs/mine"
  std::string name;      // "/jobs/mine"
  bool unified = false;  // version 2
};

// The groups of `controller` ("memory", "cpu") that limit this process, of both versions: its own,
// and every group above, up to the top. Reads anew at each call. `root`: where proc and sys lie,
// for tests. A folder may be missing: in a container the path can be the host's.
std::vector<CgroupFolder> CgroupFolders(const std::string& root, absl::string_view controller);

// Cores of the affinity mask, or the least CPU quota of this process' cgroups (cpu.max, or
// cpu.cfs_quota_us) where that is less. Above 0. `root`: where proc and sys lie, for tests.
double UsableCores(const std::string& root = "/");

// "0.5 cores", "1 core".
std::string CoresText(double cores);

// Whether this process may use fewer cores than its parent: a launcher has bound it to some.
bool IsBoundToCores();

struct ThreadCount {
  int workers = 1;  // that share the cores
  int threads = 1;  // LibTorch's, in each
};

// One line where there are more threads than cores and a worker has several; else empty.
std::string DescribeCrowd(const ThreadCount& count, double cores);

// Where it is crowded: says DescribeCrowd on stderr if it `speaks`, and starts this program again,
// with the same arguments and OMP_WAIT_POLICY=passive: OpenMP reads its environment when it is
// loaded, before main. Call it before anything of the run has begun. Does nothing where the
// environment says already how OpenMP waits. `config`: is read again, so it must be a regular file;
// else a warning takes the place of the new start.
void SleepWhereCrowded(const ThreadCount& count, const std::string& config, bool speaks);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_CORES_H_
