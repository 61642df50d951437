// Counts descriptors; makes tasks in a process that ends at once.
#include "p2p/launch/limits.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/unique_fd.h"

namespace ringzero {
namespace {

constexpr int64_t kLaunchFiles = 5;   // the launching process', beside one for each pair of ends
constexpr int64_t kWorkerFiles = 28;  // a worker's, beside its sockets: UCX alone has half of them

std::string LimitWords(int resource) {
  rlimit limit = {};
  getrlimit(resource, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : absl::StrCat(limit.rlim_cur);
}

std::string TaskLimits() {
  return absl::StrCat("`ulimit -u` is ", LimitWords(RLIMIT_NPROC),
                      " for all that this user runs, and a cgroup's pids.max may be less");
}

std::string ForWorkers(int workers) {
  return absl::StrCat("for ", workers, workers == 1 ? " worker process" : " worker processes");
}

absl::Status CheckFileLimit(int workers) {
  // Both ends between all pairs, and one to each worker.
  const int64_t sockets = int64_t{workers} * workers;
  using Entries = std::filesystem::directory_iterator;
  std::error_code unknown;
  const int64_t open = std::distance(Entries("/proc/self/fd", unknown), Entries()) - 1;  // this one
  const int64_t wanted = open + std::max(sockets + kLaunchFiles, workers - 1 + kWorkerFiles);
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || static_cast<rlim_t>(wanted) <= limit.rlim_cur) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(wanted, " open files are wanted in one process ", ForWorkers(workers), " (",
                   sockets, " sockets among them), but `ulimit -n` is ", limit.rlim_cur));
}

struct MadeTasks {
  int count = 0;
  int error = 0;  // why there are no more
};

[[noreturn]] void MakeTasks(int wanted, int channel) {
  MadeTasks made = {.count = 1};
  const auto wait = [](void*) -> void* {
    while (true) pause();
  };
  // Their number is tried, not the memory of so many stacks in one process.
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, std::max<size_t>(PTHREAD_STACK_MIN, 1 << 16));
  while (made.count < wanted && made.error == 0) {
    pthread_t thread;
    made.error = pthread_create(&thread, &small, wait, nullptr);
    made.count += made.error == 0 ? 1 : 0;
  }
  _exit(write(channel, &made, sizeof(made)) == sizeof(made) ? 0 : 1);
}

absl::Status CheckTaskLimit(const LaunchNeeds& needs) {
  const int wanted = needs.workers * needs.tasks;
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return SystemError("cannot make a pipe");
  const UniqueFd from_child(ends[0]);
  UniqueFd to_parent(ends[1]);
  const pid_t child = fork();
  if (child == 0) MakeTasks(wanted, to_parent.get());
  MadeTasks made = {.error = errno};
  to_parent.Reset();
  if (child > 0) {
    ssize_t got = 0;
    while ((got = read(from_child.get(), &made, sizeof(made))) < 0 && errno == EINTR) {
    }
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (got != sizeof(made)) return absl::OkStatus();  // somebody ended it: nothing is known
  }
  if (made.count == wanted) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      wanted, " processes and threads are wanted ", ForWorkers(needs.workers),
      ", but the system made ", made.count, " (", std::strerror(made.error), "): ", TaskLimits()));
}

}  // namespace

absl::Status CheckLimits(const LaunchNeeds& needs) {
  RZ_RETURN_IF_ERROR(CheckFileLimit(needs.workers));
  return CheckTaskLimit(needs);
}

absl::Status OutOfMemory(absl::string_view what) {
  rlimit limit = {};
  getrlimit(RLIMIT_AS, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory: ", what));
  }
  return absl::InvalidArgumentError(absl::StrCat("out of memory: ", what, "; `ulimit -v` is ",
                                                 limit.rlim_cur / 1024, " KiB for one process"));
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

}  // namespace ringzero
