// /proc/meminfo, and the cgroups (both versions) of this process.
#include "integrations/cli/memory_budget.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ringzero {
namespace {

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t value = 0;
  if (!(file >> word) || !absl::SimpleAtoi(word, &value)) return std::nullopt;  // "max": no limit
  return value;
}

// The number after `name` in a file of lines "name 123" or "name: 123 kB".
std::optional<int64_t> ReadField(const std::string& path, absl::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    int64_t value = 0;
    if (words >> key >> value && absl::StripSuffix(key, ":") == name) return value;
  }
  return std::nullopt;
}

struct CgroupFiles {
  std::string mount;
  const char* limit;
  const char* usage;
  const char* cache;  // in memory.stat
};

// What a group may still take.
std::optional<int64_t> LeftIn(const std::string& folder, const CgroupFiles& files) {
  const std::optional<int64_t> limit = ReadNumber(absl::StrCat(folder, "/", files.limit));
  const std::optional<int64_t> usage = ReadNumber(absl::StrCat(folder, "/", files.usage));
  if (!limit.has_value() || !usage.has_value()) return std::nullopt;
  const int64_t cache = ReadField(absl::StrCat(folder, "/memory.stat"), files.cache).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - cache));
}

// The path of this process' group in a line of /proc/self/cgroup, and its files.
std::optional<std::pair<std::string, CgroupFiles>> GroupIn(const std::string& root,
                                                           const std::string& line) {
  const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
  if (parts.size() != 3) return std::nullopt;
  const std::string mount = absl::StrCat(root, "sys/fs/cgroup");
  if (parts[0] == "0" && parts[1].empty()) {
    return {{parts[2], {mount, "memory.max", "memory.current", "inactive_file"}}};
  }
  const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
  if (std::find(controllers.begin(), controllers.end(), "memory") == controllers.end()) {
    return std::nullopt;
  }
  return {{parts[2],
           {absl::StrCat(mount, "/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes",
            "total_inactive_file"}}};
}

}  // namespace

FitBudget FindHostMemory(const std::string& root) {
  FitBudget budget;
  const auto take = [&](int64_t bytes, std::string source) {
    if (budget.bytes.has_value() && *budget.bytes <= bytes) return;
    budget = {.bytes = bytes, .source = std::move(source)};
  };
  if (const auto kib = ReadField(absl::StrCat(root, "proc/meminfo"), "MemAvailable")) {
    take(*kib * 1024, "MemAvailable of /proc/meminfo");
  }
  std::ifstream groups(absl::StrCat(root, "proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const auto group = GroupIn(root, line);
    if (!group.has_value()) continue;
    // Every group above limits this one, too; in a container the path may be the host's.
    std::string path = group->first;
    while (true) {
      if (path == "/") path.clear();
      const std::optional<int64_t> left = LeftIn(group->second.mount + path, group->second);
      if (left.has_value()) {
        take(*left, absl::StrCat("what is left of the memory limit of cgroup ",
                                 path.empty() ? "/" : path));
      }
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return budget;
}

FitBudgets FindBudgets(const Config& config) {
  const auto& given = config.cyclic.memory_budget;
  FitBudgets budgets;
  const auto set = [&](MemoryPlace place, const std::optional<int64_t>& bytes) {
    if (!bytes.has_value()) return false;
    budgets[static_cast<size_t>(place)] = {
        .bytes = bytes, .source = absl::StrCat("cyclic.memory_budget.", ToString(place))};
    return true;
  };
  if (!set(MemoryPlace::kHost, given.host)) {
    budgets[static_cast<size_t>(MemoryPlace::kHost)] = FindHostMemory("/");
  }
  set(MemoryPlace::kDevice, given.device);
  set(MemoryPlace::kDisk, given.disk);
  return budgets;
}

}  // namespace ringzero
