// The affinity mask, the cgroups of /proc/self/cgroup, and execv.
#include "integrations/cli/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ringzero {
namespace {

// What OpenMP's runtimes read when they are loaded, which is before main.
constexpr char kWaitPolicy[] = "OMP_WAIT_POLICY";

cpu_set_t CoresOf(pid_t process) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(process, sizeof(cores), &cores) != 0) CPU_ZERO(&cores);
  return cores;
}

// The first two numbers of a file; a word that is none ("max") counts as -1.
std::optional<double> Share(const std::string& quota_path, const std::string& period_path) {
  const auto numbers = [](const std::string& path) {
    std::vector<double> values;
    std::ifstream file(path);
    for (std::string word; file >> word;) {
      double value = -1;
      if (!absl::SimpleAtod(word, &value)) value = -1;
      values.push_back(value);
    }
    return values;
  };
  std::vector<double> found = numbers(quota_path);
  if (!period_path.empty()) {
    const std::vector<double> period = numbers(period_path);
    found.insert(found.end(), period.begin(), period.end());
  }
  if (found.size() < 2 || found[0] <= 0 || found[1] <= 0) return std::nullopt;  // no limit
  return found[0] / found[1];
}

// The command line of this process.
std::vector<std::string> Words() {
  std::ifstream file("/proc/self/cmdline");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words = absl::StrSplit(text, '\0');
  if (!words.empty()) words.pop_back();  // after the last 0
  return words;
}

// Returns only if it fails.
void StartAgain() {
  std::error_code unreadable;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", unreadable).string();
  std::vector<std::string> words = Words();
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
}

}  // namespace

std::vector<CgroupFolder> CgroupFolders(const std::string& root, absl::string_view controller) {
  std::vector<CgroupFolder> folders;
  std::ifstream groups(absl::StrCat(root, "proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool unified = parts[0] == "0" && parts[1].empty();
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const bool found =
        std::find(controllers.begin(), controllers.end(), controller) != controllers.end();
    if (!unified && !found) continue;
    std::string mount = absl::StrCat(root, "sys/fs/cgroup");
    if (!unified) absl::StrAppend(&mount, "/", controller);
    // Every group above limits this one, too.
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
  for (const CgroupFolder& group : CgroupFolders(root, "cpu")) {
    const std::optional<double> share = group.unified ? Share(group.folder + "/cpu.max", "")
                                                      : Share(group.folder + "/cpu.cfs_quota_us",
                                                              group.folder + "/cpu.cfs_period_us");
    if (share.has_value()) cores = std::min(cores, *share);
  }
  return cores;
}

bool IsBoundToCores() {
  const cpu_set_t mine = CoresOf(0), parents = CoresOf(getppid());
  return CPU_COUNT(&parents) > 0 && CPU_COUNT(&mine) < CPU_COUNT(&parents);
}

std::string CoresText(double cores) {
  return absl::StrFormat("%.3g core%s", cores, cores == 1 ? "" : "s");
}

std::string DescribeCrowd(const ThreadCount& count, double cores) {
  if (count.threads == 1 || count.workers * count.threads <= cores) return "";
  return absl::StrFormat(
      "%d workers with %d threads each share %s: threads that wait for each other sleep "
      "(%s=passive)",
      count.workers, count.threads, CoresText(cores), kWaitPolicy);
}

void SleepWhereCrowded(const ThreadCount& count, const std::string& config, bool speaks) {
  for (const char* const name : {kWaitPolicy, "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    if (std::getenv(name) != nullptr) return;  // somebody has chosen
  }
  const std::string line = DescribeCrowd(count, UsableCores());
  if (line.empty()) return;
  std::error_code missing;
  // A pipe cannot be read again.
  if (std::filesystem::is_regular_file(config, missing)) {
    if (speaks) std::fprintf(stderr, "%s\n", line.c_str());
    setenv(kWaitPolicy, "passive", 1);
    StartAgain();
  }
  if (!speaks) return;
  std::fprintf(stderr,
               "warning: %d workers with %d threads each are more than the cores, and %s=passive "
               "could not be set: set it, else threads that wait take the processor from others\n",
               count.workers, count.threads, kWaitPolicy);
}

}  // namespace ringzero
