// /proc/meminfo, and the cgroups (both versions) of this process.
#include "integrations/cli/memory_budget.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "integrations/cli/cores.h"

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

// What a group may still take.
std::optional<int64_t> LeftIn(const CgroupFolder& group) {
  const auto path = [&](absl::string_view file) { return absl::StrCat(group.folder, "/", file); };
  const std::optional<int64_t> limit =
      ReadNumber(path(group.unified ? "memory.max" : "memory.limit_in_bytes"));
  const std::optional<int64_t> usage =
      ReadNumber(path(group.unified ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit.has_value() || !usage.has_value()) return std::nullopt;
  const char* const cache = group.unified ? "inactive_file" : "total_inactive_file";
  const int64_t cached = ReadField(path("memory.stat"), cache).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - cached));
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
  for (const CgroupFolder& group : CgroupFolders(root, "memory")) {
    const std::optional<int64_t> left = LeftIn(group);
    if (left.has_value()) {
      take(*left, absl::StrCat("what is left of the memory limit of cgroup ", group.name));
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
