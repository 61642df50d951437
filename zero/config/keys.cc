// Looking keys up: exactly and by section type.
#include "zero/config/keys.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "zero/config/registry/tables.h"

namespace ringzero {
namespace {

// Keys by path; several where types share a path. The paths of other names are there, too.
using Index = std::multimap<std::string, const KeySpec*, std::less<>>;

const Index& KeysByPath() {
  static const Index* const index = [] {
    auto* made = new Index;
    for (const KeySpec& key : AllKeys()) made->emplace(std::string(key.path), &key);
    for (const KeySpec& key : AllKeys()) {
      if (key.also.empty()) continue;
      const absl::string_view dot = key.parent().empty() ? "" : ".";
      made->emplace(absl::StrCat(key.parent(), dot, key.also), &key);
    }
    return made;
  }();
  return *index;
}

}  // namespace

absl::string_view Describe(KeyType type) {
  switch (type) {
    case KeyType::kSection:
    case KeyType::kObject: return "an object";
    case KeyType::kBool: return "true or false";
    case KeyType::kInteger: return "an integer";
    case KeyType::kBytes: return "bytes, an integer or as in \"12GiB\"";
    case KeyType::kNumber: return "a number";
    case KeyType::kRate: return "a number (or a list of one)";
    case KeyType::kString: return "a string";
    case KeyType::kIntegerList: return "a list of integers";
    case KeyType::kNumberList: return "a list of numbers";
    case KeyType::kStringList: return "a list of strings";
    case KeyType::kStrings: return "a list of strings, or one";
    case KeyType::kAny: return "anything";
  }
  return "";
}

absl::string_view KeySpec::name() const {
  const size_t dot = path.rfind('.');
  return dot == absl::string_view::npos ? path : path.substr(dot + 1);
}

absl::string_view KeySpec::parent() const {
  const size_t dot = path.rfind('.');
  return dot == absl::string_view::npos ? absl::string_view() : path.substr(0, dot);
}

absl::string_view KeySpec::section() const { return path.substr(0, path.find('.')); }

std::span<const KeySpec> AllKeys() {
  static const std::vector<KeySpec>* const keys = [] {
    auto* all = new std::vector<KeySpec>;
    for (const std::span<const KeySpec> table :
         {registry::RunKeys(), registry::BatchKeys(), registry::OptimizerKeys(),
          registry::SchedulerKeys(), registry::PrecisionKeys(), registry::ZeroKeys(),
          registry::MemoryKeys(), registry::MonitorKeys(), registry::OtherKeys(),
          registry::CyclicKeys(), registry::RemovedKeys()}) {
      all->insert(all->end(), table.begin(), table.end());
    }
    return all;
  }();
  return *keys;
}

const KeySpec* FindKey(absl::string_view path, absl::string_view section_type) {
  const auto [begin, end] = KeysByPath().equal_range(path);
  for (auto at = begin; at != end; ++at) {
    if (BelongsTo(*at->second, section_type)) return at->second;
  }
  return begin == end ? nullptr : begin->second;
}

Reading ReadingOf(const KeySpec& key) {
  if (key.reading != Reading::kInherit) return key.reading;
  if (key.parent().empty()) return Reading::kRaw;
  const KeySpec* parent = FindKey(key.parent());
  return parent == nullptr ? Reading::kRaw : ReadingOf(*parent);
}

bool BelongsTo(const KeySpec& key, absl::string_view type) {
  return key.types.empty() || !FindChoice(key.types, type).empty();
}

std::string TypesOf(absl::string_view path) {
  const auto [begin, end] = KeysByPath().equal_range(path);
  std::string types;
  for (auto at = begin; at != end; ++at) {
    absl::StrAppend(&types, types.empty() ? "" : "|", at->second->types);
  }
  return types;
}

absl::string_view FindChoice(absl::string_view choices, absl::string_view name) {
  for (absl::string_view choice : absl::StrSplit(choices, '|')) {
    if (!choice.empty() && absl::EqualsIgnoreCase(choice, name)) return choice;
  }
  return {};
}

}  // namespace ringzero
