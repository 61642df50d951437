// Looking keys up: exactly, by section type, and by likeness.
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

constexpr int kPartOfName = 2;   // edits that a left out word counts
constexpr size_t kMaxName = 64;  // of an unknown key that is compared with the known ones

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

// "queue" and "queue_depth": one is the beginning of the other, up to a word's end.
bool IsPartOfName(absl::string_view a, absl::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return a.size() >= 3 && a.size() < b.size() && absl::StartsWithIgnoreCase(b, a) &&
         b[a.size()] == '_';
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

const KeySpec* NearestKey(absl::string_view path) {
  const size_t dot = path.rfind('.');
  const absl::string_view parent = dot == absl::string_view::npos ? "" : path.substr(0, dot);
  const absl::string_view name = dot == absl::string_view::npos ? path : path.substr(dot + 1);
  if (name.size() > kMaxName) return nullptr;
  const KeySpec* best = nullptr;
  int best_distance = std::numeric_limits<int>::max();
  for (const KeySpec& key : AllKeys()) {
    if (key.state == KeyState::kTesting || key.name() == "*") continue;
    // A name that is right in another section costs an edit; a removed key is the last resort.
    const int elsewhere = key.parent() == parent ? 0 : 2;
    const int removed = key.state == KeyState::kRemoved ? 2 : 0;
    int edits = kPartOfName;
    if (!IsPartOfName(name, key.name())) {
      const int longer =
          std::abs(static_cast<int>(name.size()) - static_cast<int>(key.name().size()));
      if (key.alias.empty() && 2 * longer >= best_distance) continue;
      edits = EditDistance(name, key.name());
    }
    if (!key.alias.empty()) edits = std::min(edits, EditDistance(name, key.alias));
    const int distance = 2 * edits + elsewhere + removed;
    if (distance < best_distance) {
      best = &key;
      best_distance = distance;
    }
  }
  return best;
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

absl::string_view FindChoice(absl::string_view choices, absl::string_view name) {
  for (absl::string_view choice : absl::StrSplit(choices, '|')) {
    if (!choice.empty() && absl::EqualsIgnoreCase(choice, name)) return choice;
  }
  return {};
}

int EditDistance(absl::string_view a, absl::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int> cells((a.size() + 1) * width);
  const auto cell = [&](size_t i, size_t j) -> int& { return cells[i * width + j]; };
  const auto same = [&](size_t i, size_t j) {
    return absl::ascii_tolower(a[i]) == absl::ascii_tolower(b[j]);
  };
  for (size_t i = 0; i <= a.size(); ++i) cell(i, 0) = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) cell(0, j) = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      int best = std::min(cell(i - 1, j), cell(i, j - 1)) + 1;
      best = std::min(best, cell(i - 1, j - 1) + (same(i - 1, j - 1) ? 0 : 1));
      if (i > 1 && j > 1 && same(i - 1, j - 2) && same(i - 2, j - 1)) {
        best = std::min(best, cell(i - 2, j - 2) + 1);
      }
      cell(i, j) = best;
    }
  }
  return cell(a.size(), b.size());
}

}  // namespace ringzero
