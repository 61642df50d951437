// The cgroups of /proc/self/cgroup, execv, and /proc.
#include "integrations/cli/resources.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/system_names.h"
#include "p2p/job/limits.h"

// jemalloc's, where it is linked.
extern "C" int mallctl(const char* name, void* old, size_t* old_bytes, void* value, size_t bytes)
    __attribute__((weak));

namespace ringzero {
namespace {

// What OpenMP's runtimes read when they are loaded, which is before main.
constexpr char kWaitPolicy[] = "OMP_WAIT_POLICY";

// The number behind the word `name` ("name 123", "name: 123 kB"), or the first word if there is no
// name. Nothing: it is not there, or no number ("max").
std::optional<int64_t> NumberIn(const std::string& path, absl::string_view name = "") {
  const std::string text =
      name.empty() ? ReadWholeFile(path).value_or("") : FieldOfFile(path, name);
  int64_t value = 0;
  const bool number = absl::SimpleAtoi(text.substr(0, text.find_first_of(" \n")), &value);
  return number ? std::optional(value) : std::nullopt;
}

// Memory that a group may still take; nothing: no limit.
std::optional<int64_t> MemoryLeftIn(const Cgroup& group) {
  const auto number = [&](const char* unified, const char* first, const char* name) {
    return NumberIn(absl::StrCat(group.folder, "/", group.unified ? unified : first), name);
  };
  const std::optional<int64_t> limit = number("memory.max", "memory.limit_in_bytes", "");
  const std::optional<int64_t> usage = number("memory.current", "memory.usage_in_bytes", "");
  if (!limit.has_value() || !usage.has_value()) return std::nullopt;
  const char* const cache = group.unified ? "inactive_file" : "total_inactive_file";
  const int64_t cached = number("memory.stat", "memory.stat", cache).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - cached));
}

// Starts this program again. Returns only if that fails.
void StartAgain(std::vector<std::string> words) {
  std::error_code unreadable;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", unreadable).string();
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
}

}  // namespace

std::string CoresText(double cores) {
  return absl::StrFormat("%.3g core%s", cores, cores == 1 ? "" : "s");
}

std::string DescribeCrowd(const ThreadCount& count, double cores) {
  if (count.threads == 1 || count.workers * count.threads <= cores) return "";
  return absl::StrFormat("%d workers with %d threads each share %s", count.workers, count.threads,
                         CoresText(cores));
}

void SleepWhereCrowded(const ThreadCount& count, const CommandLine& line, bool speaks) {
  for (const char* const name : {kWaitPolicy, "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    if (std::getenv(name) != nullptr) return;  // somebody has chosen
  }
  const std::string crowd = DescribeCrowd(count, UsableCores());
  if (crowd.empty()) return;
  const auto say = [&](const char* warning, const char* words) {
    if (!speaks) return;
    std::fprintf(stderr, "%s%s: %s\n", warning, crowd.c_str(), words);
  };
  std::error_code missing;
  if (std::filesystem::is_regular_file(line.config, missing)) {  // a pipe cannot be read again
    say("", "threads that wait for each other sleep (OMP_WAIT_POLICY=passive)");
    setenv(kWaitPolicy, "passive", 1);
    StartAgain(line.words);
  }
  say("warning: ",
      "set OMP_WAIT_POLICY=passive, or threads that wait take the processor from others");
}

FitBudget FindHostMemory(const std::string& root) {
  FitBudget budget;
  const auto take = [&](const std::optional<int64_t>& bytes, const std::string& source) {
    if (!bytes.has_value() || (budget.bytes.has_value() && *budget.bytes <= *bytes)) return;
    budget = {.bytes = bytes, .source = source};
  };
  if (const auto kib = NumberIn(absl::StrCat(root, "proc/meminfo"), "MemAvailable")) {
    take(*kib * 1024, "MemAvailable of /proc/meminfo");
  }
  for (const Cgroup& group : CgroupsOfThisProcess("memory", root)) {
    take(MemoryLeftIn(group),
         absl::StrCat("what is left of the memory limit of cgroup ", group.name));
  }
  return budget;
}

void ReturnFreedMemory() {
  malloc_trim(0);
  // 4096: jemalloc's name for all arenas (MALLCTL_ARENAS_ALL).
  if (mallctl != nullptr) mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);
}

ProcessPages PagesOfProcess(const std::string& process) {
  const std::string path = absl::StrCat("/proc/", process, "/smaps_rollup");
  const auto bytes = [&](const char* name) { return 1024 * NumberIn(path, name).value_or(0); };
  return {.pss = bytes("Pss"), .private_dirty = bytes("Private_Dirty")};
}

int64_t HugePageBytes() {
  const absl::StatusOr<std::string> modes =
      ReadWholeFile("/sys/kernel/mm/transparent_hugepage/enabled");
  return absl::StrContains(modes.value_or("[never]"), "[never]") ? 4096 : int64_t{2} << 20;
}

PssWatch::PssWatch() : thread_(NamedThread("rz-memory", [this] { Run(); })) {}

PssWatch::~PssWatch() {
  stop_.release();
  thread_.join();
}

double PssWatch::peak_mib() {
  const auto kib = NumberIn("/proc/self/smaps_rollup", "Pss").value_or(0);
  const double now = static_cast<double>(kib) / 1024;
  const MutexLock lock(mutex_);
  last_mib_ = now;
  return peak_mib_ = std::max(peak_mib_, now);
}

double PssWatch::last_mib() {
  if (last_mib_ == 0) peak_mib();
  return last_mib_;
}

void PssWatch::Run() {
  // A sample walks the page tables, which takes time from the training: often while memory still
  // grows, seldom later.
  std::chrono::seconds pause(1);
  while (!stop_.try_acquire_for(pause)) {
    peak_mib();
    pause = std::min(2 * pause, std::chrono::seconds(32));
  }
}

}  // namespace ringzero
