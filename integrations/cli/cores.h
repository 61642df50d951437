// Cores: how many this process may use, and what follows where a run has more threads than these.
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

namespace ringzero {

// Cores of the affinity mask, or the least CPU quota of this process' cgroups (cpu.max, or
// cpu.cfs_quota_us) where that is less. Above 0. `root`: where proc and sys lie, for tests.
double UsableCores(const std::string& root = "/");

// "0.5 cores", "1 core".
std::string CoresText(double cores);

struct ThreadCount {
  int workers = 1;  // on this host
  int threads = 1;  // LibTorch's, in each
};

// One line where there are more threads than cores and a worker has several; else empty.
std::string DescribeCrowd(const ThreadCount& count, double cores);

// Where it is crowded: says DescribeCrowd on stderr if it `speaks`, and starts this program again,
// with the same arguments and OMP_WAIT_POLICY=passive: OpenMP reads its environment when it is
// loaded, before main. Call it before anything of the run has begun. Does nothing where the
// environment says already how OpenMP waits. A worker that its launcher has bound to cores of its
// own counts these for itself alone. `config`: is read again, so it must be a regular file; else a
// warning takes the place of the new start.
void SleepWhereCrowded(const ThreadCount& count, const std::string& config, bool speaks);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_CORES_H_
