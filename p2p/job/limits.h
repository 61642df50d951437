// CheckLimits: whether the system allows the open files, processes and threads that a launch wants;
// and the cores and control groups of this process.
//
//   const double cores = UsableCores();   // 0.5 with half a processor's quota
//   RZ_RETURN_IF_ERROR(CheckLimits({.workers = 8, .tasks = 9}));
//   // "72 processes and threads are wanted for 8 worker processes, but the system made 31 (…): …"
//
// Files are counted. Processes and threads are made and ended again, because the system does not
// tell how many more a user may make (`ulimit -u`, a cgroup's pids.max).
#ifndef RINGZERO_P2P_JOB_LIMITS_H_
#define RINGZERO_P2P_JOB_LIMITS_H_

#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ringzero {

struct LaunchNeeds {
  int workers = 1;
  int tasks = 1;  // of each worker: its process, and each thread that it starts
};

// ResourceExhausted: names what could not be made, how many are wanted, and the limit. Forks, so
// this process must have one thread (FailedPrecondition otherwise).
absl::Status CheckLimits(const LaunchNeeds& needs);

// The error for `what`, which was refused for lack of memory ("cannot map 4096 bytes"). It is an
// InvalidArgument that names `ulimit -v` if that limits this process; otherwise ResourceExhausted.
absl::Status OutOfMemory(absl::string_view what);

// The error for what std::thread throws when the system makes no more threads. ResourceExhausted
// that names `ulimit -u`. InvalidArgument that also names `ulimit -v` if that is set, as a thread's
// stack counts. Unknown for any other `error`.
absl::Status FromSystemError(const std::system_error& error);

// A control group, where the kernel keeps its limits.
struct Cgroup {
  std::string folder;    // "/sys/fs/cgroup/jobs/mine"
  std::string name;      // "/jobs/mine"
  bool unified = false;  // version 2
};

// The groups of `controller` ("memory", "cpu") that limit this process, of both versions: its own,
// and every group above, up to the top. A folder may be missing: in a container the path can be the
// host's. `root`: where proc and sys lie, for tests.
std::vector<Cgroup> CgroupsOfThisProcess(absl::string_view controller,
                                         const std::string& root = "/");

// Cores of the affinity mask, or the least CPU quota of this process' cgroups (cpu.max, or
// cpu.cfs_quota_us) if the quota is less. Above 0. `root`: as above.
double UsableCores(const std::string& root = "/");

// Those of all hosts of a job, each like this one; bound workers have their own. `hosts`: as in
// JobSeat.
double CoresOfJob(const std::vector<std::string>& hosts, int workers);

// Whether this process may use fewer cores than its parent: a launcher has bound it to some.
bool IsBoundToCores();

}  // namespace ringzero

#endif  // RINGZERO_P2P_JOB_LIMITS_H_
