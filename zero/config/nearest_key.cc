// The known key that an unknown one most likely meant, by other programs' names or by likeness.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

constexpr size_t kMaxName = 64;  // of an unknown key that is compared with the known ones

// How far a key is from what was given. So first comes an edit here, then a longer name here, then
// the very name elsewhere, then a shorter name here.
constexpr int kEdit = 10;
constexpr int kPartOfName = 12;    // a word left out
constexpr int kOtherSection = 13;  // in another section, in addition
constexpr int kWordTooMany = 14;
constexpr int kWordLeft = 1;  // for each word that only one of the two has, in addition
constexpr int kRemoved = 10;  // likewise: the last resort
constexpr int kTooFar = std::numeric_limits<int>::max();

absl::string_view LastName(absl::string_view path) {
  return path.substr(path.rfind('.') + 1);  // npos + 1 is 0
}

// "queue" and "queue_depth", "batch_size" and "train_batch_size": one is the beginning of the
// other, up to a word's end or to its half, or its last words.
bool IsPartOfName(absl::string_view a, absl::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (a.size() < 3 || a.size() == b.size()) return false;
  if (absl::StartsWithIgnoreCase(b, a)) return b[a.size()] == '_' || 2 * a.size() >= b.size();
  return a.size() >= 6 && absl::EndsWithIgnoreCase(b, a) && b[b.size() - a.size() - 1] == '_';
}

// Every other section has one: in which, says nothing.
bool IsEverywhere(absl::string_view name) {
  return name == "enabled" || name == "type" || name == "name" || name == "device";
}

std::vector<std::string> SortedWords(absl::string_view name) {
  std::vector<std::string> words = absl::StrSplit(absl::AsciiStrToLower(name), '_');
  std::sort(words.begin(), words.end());
  return words;
}

// Do the letters of `part` stand in `whole`, in this order?
bool IsSubsequence(absl::string_view part, absl::string_view whole) {
  for (const char c : whole) {
    if (!part.empty() && part[0] == c) part.remove_prefix(1);
  }
  return part.empty();
}

// "clip" and "clipping", "grad" and "gradient".
bool IsSameWord(absl::string_view a, absl::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return a == b || (a.size() >= 4 && absl::StartsWith(b, a));
}

// How many words the longer of two names has more, where it has all of the shorter one's, and these
// are at least two: 1 for "warmup_steps" and "warmup_num_steps". Else none.
std::optional<int> WordsLeft(std::vector<std::string> a, std::vector<std::string> b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (a.size() < 2) return {};
  const size_t left = b.size() - a.size();
  for (const std::string& word : a) {
    const auto same = std::find_if(
        b.begin(), b.end(), [&](const std::string& other) { return IsSameWord(word, other); });
    if (same == b.end()) return {};
    b.erase(same);
  }
  return static_cast<int>(left);
}

struct Unknown {
  absl::string_view parent;
  absl::string_view name;
  std::vector<std::string> words;

  // In another section a name must be more alike, or nearly every word would be.
  int MostEdits(const KeySpec& key) const {
    const int length = static_cast<int>(name.size());
    return key.parent() == parent ? std::max(length < 4 ? 1 : 2, length / 3)
           : length < 6           ? 0
                                  : length / 4;
  }

  int EditsTo(absl::string_view other, int most) const {
    const int longer =
        static_cast<int>(std::max(name.size(), other.size()) - std::min(name.size(), other.size()));
    return longer > most ? longer : EditDistance(name, other);
  }

  int DistanceTo(const KeySpec& key) const {
    const bool here = key.parent() == parent;
    const bool removed = key.state == KeyState::kRemoved;
    const bool around = parent == key.path ||
                        (absl::StartsWith(parent, key.path) && parent[key.path.size()] == '.');
    if (key.state == KeyState::kTesting || key.name() == "*" || (removed && !here) || around) {
      return kTooFar;
    }
    const bool below = !parent.empty() && absl::StartsWith(key.parent(), parent);
    if (!here && !below && IsEverywhere(key.name())) return kTooFar;
    const int most = MostEdits(key);
    const int edits = EditsTo(key.name(), most);
    int distance = edits > most ? kTooFar : kEdit * edits;
    const bool reordered = name.size() == key.name().size() && SortedWords(key.name()) == words;
    if (reordered) distance = std::min(distance, kEdit);
    const size_t shorter = std::min(name.size(), key.name().size());
    const int part = name.size() < key.name().size() ? kPartOfName : kWordTooMany;
    if (IsPartOfName(name, key.name()) && (here || shorter >= 5)) {
      distance = std::min(distance, part);
    }
    if (words.size() > 1) {
      const std::optional<int> left = WordsLeft(words, SortedWords(key.name()));
      if (left.has_value() && *left <= 2) distance = std::min(distance, part + *left * kWordLeft);
    }
    if (distance == kTooFar) return kTooFar;
    return distance + (here ? 0 : kOtherSection) + (removed ? kRemoved : 0);
  }

  // A slip of the pen in another program's name for `key`.
  int DistanceTo(const ForeignName& foreign, const KeySpec& key) const {
    const int most = MostEdits(key);
    const int edits = EditsTo(foreign.name, most);
    return edits > most ? kTooFar : kEdit * edits + kOtherSection;
  }
};

}  // namespace

const KeySpec* NearestKey(absl::string_view path) {
  const size_t dot = path.rfind('.');
  Unknown unknown{.parent = dot == absl::string_view::npos ? "" : path.substr(0, dot),
                  .name = LastName(path),
                  .words = {}};
  if (unknown.name.empty() || unknown.name.size() > kMaxName) return nullptr;
  // A section within itself: that it also stands elsewhere is no help.
  if (unknown.name == LastName(unknown.parent)) return nullptr;
  unknown.words = SortedWords(unknown.name);
  const KeySpec* best = nullptr;
  int best_distance = kTooFar;
  for (const KeySpec& key : AllKeys()) {
    const int distance = unknown.DistanceTo(key);
    if (distance >= best_distance) continue;
    best = &key;
    best_distance = distance;
  }
  for (const ForeignName& foreign : ForeignNames()) {
    const KeySpec* key = FindKey(foreign.key);
    if (key == nullptr) continue;
    const int distance = unknown.DistanceTo(foreign, *key);
    if (distance >= best_distance) continue;
    best = key;
    best_distance = distance;
  }
  return best;
}

const ForeignName* FindForeignName(absl::string_view path) {
  const std::string plain = absl::StrReplaceAll(absl::AsciiStrToLower(path), {{"-", "_"}});
  const ForeignName* found = nullptr;
  for (const ForeignName& foreign : ForeignNames()) {
    if (foreign.name == plain) return &foreign;
    if (foreign.name == LastName(plain)) found = &foreign;
  }
  return found;
}

bool IsForeignSection(absl::string_view path) {
  const std::string start = absl::StrCat(path, ".");
  return std::any_of(ForeignNames().begin(), ForeignNames().end(), [&](const ForeignName& foreign) {
    return absl::StartsWith(foreign.name, start);
  });
}

std::string ToString(const ForeignName& foreign) {
  if (foreign.whose.empty()) return absl::StrCat("the nearest known one is ", foreign.key);
  const std::string theirs = absl::StrCat(foreign.whose, "'s ", foreign.name);
  if (foreign.key.empty()) return absl::StrCat(theirs, " has no key here: ", foreign.hint);
  const std::string hint = foreign.hint.empty() ? "" : absl::StrCat(" (", foreign.hint, ")");
  return absl::StrCat(theirs, " is ", foreign.key, " here", hint);
}

bool IsLikeComment(absl::string_view name) {
  return absl::StartsWith(name, "_") || absl::StartsWith(name, "//") ||
         absl::StartsWith(name, "#") || absl::StartsWith(name, "$") ||
         absl::EqualsIgnoreCase(name, "comment") || absl::EqualsIgnoreCase(name, "comments");
}

absl::string_view NearestChoice(absl::string_view choices, absl::string_view text) {
  if (text.size() > kMaxName) return {};
  const int size = static_cast<int>(text.size());
  const std::vector<absl::string_view> words = absl::StrSplit(text, absl::ByAnyChar("_- "));
  const std::string lower = absl::AsciiStrToLower(text);
  // How a choice resembles the text, the surest way first, and how far it is in that way.
  const auto likeness = [&](absl::string_view choice) -> std::pair<int, int> {
    const int edits = EditDistance(choice, text), length = static_cast<int>(choice.size());
    const bool is_word = std::any_of(words.begin(), words.end(), [&](absl::string_view word) {
      return absl::EqualsIgnoreCase(word, choice);
    });
    // A slip of the pen, before anything that is only a part: "WarmupCosine" is not Cosine.
    if (edits <= std::min(2, size / 4)) return {0, edits};
    // A whole word of it: "adamw_torch" is AdamW. Or its end: "DeepSpeedCPUAdam" is Adam.
    if (is_word) return {1, -length};
    if (length >= 3 && absl::EndsWithIgnoreCase(text, choice)) return {2, -length};
    // Letters left out: "cdp2" is cdp_v2.
    if (size >= 4 && IsSubsequence(lower, absl::AsciiStrToLower(choice))) return {3, 0};
    return {edits <= size / 2 ? 4 : 5, edits};
  };
  absl::string_view best;
  std::pair<int, int> nearest = {5, 0};
  for (const absl::string_view choice : absl::StrSplit(choices, '|', absl::SkipEmpty())) {
    const std::pair<int, int> found = likeness(choice);
    if (found.first < 5 && found < nearest) nearest = found, best = choice;
  }
  return best;
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
