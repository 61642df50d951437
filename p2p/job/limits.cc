// Counts descriptors; makes tasks in a process that ends at once; reads /proc/self/cgroup
// and the affinity mask.
#include "p2p/job/limits.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "p2p/mapping.h"

namespace ringzero {
namespace {

constexpr int64_t kLaunchFiles = 5;   // the launching process', besides its sockets
constexpr int64_t kWorkerFiles = 28;  // a worker's, besides its sockets; UCX alone has half of them

rlim_t LimitOf(int resource) {
  rlimit limit = {};
  return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::string TaskLimits() {
  const rlim_t limit = LimitOf(RLIMIT_NPROC);
  return absl::StrCat("`ulimit -u` is ", limit == RLIM_INFINITY ? "unlimited" : absl::StrCat(limit),
                      " for all that this user runs, and a cgroup's pids.max may be less");
}

std::string ForWorkers(int workers) {
  return absl::StrCat("for ", workers, workers == 1 ? " worker process" : " worker processes");
}

absl::Status CheckOneThread() {
#if !defined(__SANITIZE_THREAD__)  // ThreadSanitizer has a thread of its own
  using Entries = std::filesystem::directory_iterator;
  std::error_code unknown;
  const auto threads = std::distance(Entries("/proc/self/task", unknown), Entries());
  if (threads > 1) {
    return FailedPrecondition("processes must be launched before threads are started: ", threads,
                              " run already");
  }
#endif
  return absl::OkStatus();
}

absl::Status CheckFileLimit(int workers) {
  // Both ends of a socket between each pair of workers, and one end to each worker.
  const int64_t sockets = int64_t{workers} * workers;
  using Entries = std::filesystem::directory_iterator;
  std::error_code unknown;
  const int64_t open = std::distance(Entries("/proc/self/fd", unknown), Entries()) - 1;  // its own
  const int64_t wanted = open + std::max(sockets + kLaunchFiles, workers - 1 + kWorkerFiles);
  const rlim_t limit = LimitOf(RLIMIT_NOFILE);
  if (static_cast<rlim_t>(wanted) <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(wanted, " open files are wanted in one process ", ForWorkers(workers), " (",
                   sockets, " sockets among them), but `ulimit -n` is ", limit));
}

struct MadeTasks {
  int count = 0;
  int error = 0;  // why there are no more
};

// `made` is shared with the process that reads it.
[[noreturn]] void MakeTasks(int wanted, MadeTasks& made) {
  made.count = 1;
  const auto wait = [](void*) -> void* {
    while (true) pause();
  };
  // This tries the number of threads, not the memory of so many stacks in one process.
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, std::max<size_t>(PTHREAD_STACK_MIN, 1 << 16));
  while (made.count < wanted && made.error == 0) {
    pthread_t thread;
    made.error = pthread_create(&thread, &small, wait, nullptr);
    made.count += made.error == 0 ? 1 : 0;
  }
  _exit(0);
}

absl::Status CheckTaskLimit(const LaunchNeeds& needs) {
  const int wanted = needs.workers * needs.tasks;
  RZ_ASSIGN_OR_RETURN(const Mapping memory, Mapping::Shared(sizeof(MadeTasks)));
  MadeTasks& made = *new (memory.data()) MadeTasks;
  const pid_t child = fork();
  if (child == 0) MakeTasks(wanted, made);
  if (child < 0) made.error = errno;
  while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  // A child that somebody has ended says nothing about limits.
  if (made.count == wanted || made.error == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      wanted, " processes and threads are wanted ", ForWorkers(needs.workers),
      ", but the system made ", made.count, " (", std::strerror(made.error), "): ", TaskLimits()));
}

cpu_set_t CoresOf(pid_t process) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(process, sizeof(cores), &cores) != 0) CPU_ZERO(&cores);
  return cores;
}

// Cores that a group's quota allows; nothing: no limit.
std::optional<double> QuotaOf(const Cgroup& group) {
  double quota = 0, period = 0;  // stays 0 where a word ("max") is no number
  std::ifstream file(group.folder + (group.unified ? "/cpu.max" : "/cpu.cfs_quota_us"));
  file >> quota;
  if (!group.unified) file = std::ifstream(group.folder + "/cpu.cfs_period_us");
  file >> period;
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

}  // namespace

absl::Status CheckLimits(const LaunchNeeds& needs) {
  RZ_RETURN_IF_ERROR(CheckOneThread());
  RZ_RETURN_IF_ERROR(CheckFileLimit(needs.workers));
  return CheckTaskLimit(needs);
}

absl::Status OutOfMemory(absl::string_view what) {
  const rlim_t limit = LimitOf(RLIMIT_AS);
  if (limit == RLIM_INFINITY) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory: ", what));
  }
  return InvalidArgument("out of memory: ", what, "; `ulimit -v` is ", limit / 1024,
                         " KiB for one process");
}

absl::Status FromSystemError(const std::system_error& error) {
  if (error.code() != std::errc::resource_unavailable_try_again) {
    return absl::UnknownError(error.what());
  }
  const std::string words =
      absl::StrCat("cannot make a thread (", error.code().message(), "): ", TaskLimits());
  const absl::Status memory = OutOfMemory(words);
  return absl::IsInvalidArgument(memory) ? memory : absl::ResourceExhaustedError(words);
}

std::vector<Cgroup> CgroupsOfThisProcess(absl::string_view controller, const std::string& root) {
  std::vector<Cgroup> folders;
  std::ifstream groups(absl::StrCat(root, "proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool unified = parts[0] == "0" && parts[1].empty();
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (!unified && std::ranges::count(controllers, controller) == 0) continue;
    std::string mount = absl::StrCat(root, "sys/fs/cgroup");
    if (!unified) absl::StrAppend(&mount, "/", controller);
    for (std::string path = parts[2] == "/" ? "" : parts[2];; path.resize(path.rfind('/'))) {
      folders.push_back(
          {.folder = mount + path, .name = path.empty() ? "/" : path, .unified = unified});
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return folders;
}

double UsableCores(const std::string& root) {
  const cpu_set_t mask = CoresOf(0);
  double cores = std::max(1, CPU_COUNT(&mask));
  for (const Cgroup& group : CgroupsOfThisProcess("cpu", root)) {
    cores = std::min(cores, QuotaOf(group).value_or(cores));
  }
  return cores;
}

double CoresOfJob(const std::vector<std::string>& hosts, int workers) {
  const size_t count = std::max<size_t>(1, std::set(hosts.begin(), hosts.end()).size());
  const bool bound = !hosts.empty() && IsBoundToCores();
  return UsableCores() * (bound ? workers : static_cast<double>(count));
}

bool IsBoundToCores() {
  const cpu_set_t mine = CoresOf(0), parents = CoresOf(getppid());
  return CPU_COUNT(&parents) > 0 && CPU_COUNT(&mine) < CPU_COUNT(&parents);
}

}  // namespace ringzero
