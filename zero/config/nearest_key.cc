// The known key that an unknown one most likely meant, by other programs' names or by likeness.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

constexpr size_t kMaxName = 64;  // of an unknown name that is compared with the known ones

// How far a name is from the given name. Nearest is one edit in the same section. Then come the
// same words in another order, the same name in another section, a longer name in the same section,
// a shorter name there, two edits. Among equally near names, edits count again.
constexpr int kEdit = 1000;
constexpr int kRemoved = 1000;       // added for a removed key: the last resort
constexpr int kPartOfName = 1200;    // words left out
constexpr int kOtherSection = 1300;  // added for a key elsewhere
constexpr int kWordsTooMany = 1400;
constexpr int kWordApart = 100;  // added for each word
constexpr int kTooFar = 100000;

absl::string_view LastName(absl::string_view path) {
  return path.substr(path.rfind('.') + 1);  // npos + 1 is 0
}

std::vector<std::string> WordsOf(absl::string_view name) {
  return absl::StrSplit(absl::AsciiStrToLower(name), absl::ByAnyChar("_- "));
}

// "clip" and "clipping", "grad" and "gradient", "cpuadam" and "adam".
bool IsLikeWord(absl::string_view a, absl::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  const bool begins = absl::StartsWith(b, a) && a.size() >= 3 && 2 * a.size() >= b.size();
  return begins || (absl::EndsWith(b, a) && a.size() >= 4);
}

// How many words differ, if the longer of two names has all words of the shorter name, in any
// order: 1 for "warmup_steps" and "warmup_num_steps". Otherwise nothing.
std::optional<int> WordsApart(std::vector<std::string> a, std::vector<std::string> b) {
  if (a.size() > b.size()) std::swap(a, b);
  int apart = static_cast<int>(b.size() - a.size());
  for (const std::string& word : a) {
    auto same = std::ranges::find(b, word);
    if (same == b.end()) {
      ++apart;
      same = std::ranges::find_if(b, [&](const auto& other) { return IsLikeWord(word, other); });
    }
    if (same == b.end()) return {};
    b.erase(same);
  }
  return apart;
}

int MostEdits(int length) { return std::max(length < 4 ? 1 : 2, length / 3); }

int Distance(absl::string_view given, absl::string_view known, int most_edits, bool here) {
  const auto [shorter, longer] = std::minmax({given.size(), known.size()});
  const std::optional<int> apart = WordsApart(WordsOf(given), WordsOf(known));
  const bool alike = apart.has_value() && *apart <= (here ? 2 : 1) && shorter >= (here ? 3 : 5);
  if (!alike && longer - shorter > static_cast<size_t>(most_edits)) return kTooFar;
  const int edits = EditDistance(given, known);
  const int distance = edits > most_edits ? kTooFar : kEdit * edits;
  if (!alike) return distance;
  const int whole = shorter == given.size() ? kPartOfName : kWordsTooMany;
  return std::min(distance, whole + *apart * kWordApart + edits);
}

// The known key that `path` most likely meant: few edits of the name, its first words, or its words
// in another order, preferably in the same section. Null for names that resemble none.
const KeySpec* NearestKey(absl::string_view path) {
  const absl::string_view name = LastName(path);
  const absl::string_view parent =
      absl::StripSuffix(path.substr(0, path.size() - name.size()), ".");
  const int length = static_cast<int>(name.size());
  // A section within itself: that its name also stands elsewhere is no help.
  if (name.empty() || name.size() > kMaxName || name == LastName(parent)) return nullptr;
  const KeySpec* best = nullptr;
  int nearest = kTooFar;
  const auto compare = [&](const KeySpec& key, absl::string_view known, int more) {
    const bool here = key.parent() == parent;
    // In another section a name must be more alike: otherwise nearly every word would be near.
    const int most = here ? MostEdits(length) : length < 6 ? 0 : length / 4;
    const int distance = Distance(name, known, most, here) + more + (here ? 0 : kOtherSection);
    if (distance >= nearest) return;
    best = &key;
    nearest = distance;
  };
  for (const KeySpec& key : AllKeys()) {
    const bool here = key.parent() == parent;
    const bool below = !parent.empty() && absl::StartsWith(key.parent(), parent);
    const bool around = absl::StartsWith(absl::StrCat(parent, "."), absl::StrCat(key.path, "."));
    const bool removed = key.state == KeyState::kRemoved;
    if (key.state == KeyState::kTesting || key.name() == "*" || around) continue;
    // Many sections have a key of such a name: it does not tell which section was meant.
    const absl::string_view name = key.name();
    const bool many = name == "enabled" || name == "type" || name == "name" || name == "device";
    if (!here && (removed || (!below && many))) continue;
    compare(key, key.name(), removed ? kRemoved : 0);
  }
  for (const ForeignName& foreign : ForeignNames()) {
    if (const KeySpec* key = FindKey(foreign.key)) compare(*key, foreign.name, kOtherSection);
  }
  return best;
}

}  // namespace

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
  return std::ranges::any_of(
      ForeignNames(), [&](const auto& foreign) { return absl::StartsWith(foreign.name, start); });
}

std::string ToString(const ForeignName& foreign) {
  if (foreign.whose.empty()) return absl::StrCat("the nearest known one is ", foreign.key);
  const std::string theirs = absl::StrCat(foreign.whose, "'s ", foreign.name);
  if (foreign.key.empty()) return absl::StrCat(theirs, " has no key here: ", foreign.hint);
  const std::string hint = foreign.hint.empty() ? "" : absl::StrCat(" (", foreign.hint, ")");
  return absl::StrCat(theirs, " is ", foreign.key, " here", hint);
}

std::string UnknownKey(absl::string_view path, absl::string_view name) {
  std::string message = "unknown key";
  const bool comment =
      name.find_first_of("_/#$") == 0 || absl::StartsWithIgnoreCase(name, "comment");
  if (const ForeignName* foreign = FindForeignName(path); foreign != nullptr) {
    absl::StrAppend(&message, "; ", ToString(*foreign));
  } else if (absl::StrContains(name, '.')) {
    absl::StrAppend(&message, "; a section is an object of its own, not a name with a dot");
  } else if (comment) {
    absl::StrAppend(&message, "; a comment is written // or #");
  } else if (const KeySpec* nearest = NearestKey(path); nearest != nullptr) {
    absl::StrAppend(&message, "; the nearest known one is ", nearest->path);
  }
  return message;
}

absl::string_view NearestChoice(absl::string_view choices, absl::string_view text) {
  absl::string_view best;
  int nearest = kTooFar;
  if (text.size() > kMaxName) return best;
  const int most = MostEdits(static_cast<int>(text.size()));
  for (const absl::string_view choice : absl::StrSplit(choices, '|', absl::SkipEmpty())) {
    const int distance = Distance(text, choice, most, true);
    if (distance < nearest) nearest = distance, best = choice;
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
