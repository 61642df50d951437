// Looking keys up: exactly, by section type, and by likeness.
#include "zero/config/keys.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace ringzero {

absl::string_view Describe(KeyType type) {
  switch (type) {
    case KeyType::kSection: return "an object";
    case KeyType::kBool: return "true or false";
    case KeyType::kInteger: return "an integer";
    case KeyType::kNumber: return "a number";
    case KeyType::kString: return "a string";
    case KeyType::kIntegerList: return "a list of integers";
    case KeyType::kNumberList: return "a list of numbers";
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
    auto* all = new std::vector<KeySpec>(BuiltKeys().begin(), BuiltKeys().end());
    for (const KeySpec& key : RefusedKeys()) all->push_back(key);
    return all;
  }();
  return *keys;
}

const KeySpec* FindKey(absl::string_view path) {
  for (const KeySpec& key : AllKeys()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

const KeySpec* NearestKey(absl::string_view path) {
  const size_t dot = path.rfind('.');
  const absl::string_view parent = dot == absl::string_view::npos ? "" : path.substr(0, dot);
  const absl::string_view name = dot == absl::string_view::npos ? path : path.substr(dot + 1);
  const KeySpec* best = nullptr;
  int best_distance = std::numeric_limits<int>::max();
  for (const KeySpec& key : AllKeys()) {
    if (key.state == KeyState::kTesting) continue;
    // A name that is right in another section costs one edit; a removed key is the last resort.
    const int elsewhere = key.parent() == parent ? 0 : 1;
    const int removed = key.state == KeyState::kRemoved ? 2 : 0;
    int edits = EditDistance(name, key.name());
    if (!key.alias.empty()) edits = std::min(edits, EditDistance(name, key.alias));
    const int distance = 2 * edits + elsewhere + removed;
    if (distance < best_distance) {
      best = &key;
      best_distance = distance;
    }
  }
  return best;
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
