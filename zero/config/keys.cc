// Reads keys.txt, which says of itself how it is written, and looks keys up.
#include "zero/config/keys.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace ringzero {

extern const char kKeysText[];  // keys.txt (ringzero_embed)

namespace {

constexpr absl::string_view kKinds =
    "section|bool|integer|bytes|number|rate|text|integers|numbers|texts|strings|object|any";

double End(absl::string_view text) {
  if (text == "int32") return std::numeric_limits<int>::max();
  if (text == "2^53") return 9007199254740992.0;
  double value = 0;
  RZ_CHECK(absl::SimpleAtod(text, &value), std::string(text));
  return value;
}

// "0..1", ">0..", "0..<1"
KeyRange RangeOf(absl::string_view text) {
  KeyRange range;
  const auto [low, high] = std::pair<absl::string_view, absl::string_view>(
      absl::StrSplit(text, absl::MaxSplits("..", 1)));
  range.open_min = absl::StartsWith(low, ">");
  range.open_max = absl::StartsWith(high, "<");
  if (!low.empty()) range.min = End(low.substr(range.open_min ? 1 : 0));
  if (!high.empty()) range.max = End(high.substr(range.open_max ? 1 : 0));
  return range;
}

// "a|b|=c|d|-e": in any case; from the first "=" on exact; from the first "-" on gone.
void SetChoices(absl::string_view text, KeySpec& key) {
  std::string* list = &key.choices;
  for (absl::string_view choice : absl::StrSplit(text, '|')) {
    if (absl::ConsumePrefix(&choice, "=")) list = &key.exact;
    if (absl::ConsumePrefix(&choice, "-")) list = &key.gone;
    absl::StrAppend(list, list->empty() ? "" : "|", absl::StripAsciiWhitespace(choice));
  }
}

class Table {
 public:
  Table() {
    std::string row;
    for (const absl::string_view line : absl::StrSplit(kKeysText, '\n')) {
      if (absl::StartsWith(line, "#") || line.empty()) continue;
      if (line[0] != ' ') {
        ReadRow(row);
        row.clear();
      }
      absl::StrAppend(&row, row.empty() ? "" : " ", absl::StripAsciiWhitespace(line));
    }
    ReadRow(row);
  }

  std::vector<KeySpec> keys;
  std::vector<ForeignName> foreign;

 private:
  void ReadRow(const std::string& row) {
    if (row.empty()) return;
    std::vector<absl::string_view> cells;
    for (const absl::string_view cell : absl::StrSplit(row, "  ", absl::SkipWhitespace())) {
      cells.push_back(absl::StripAsciiWhitespace(cell));
    }
    if (absl::StartsWith(row, "let ")) return ReadLet(row);
    if (absl::StartsWith(row, "alias ")) return ReadAlias(cells);
    KeySpec key;
    key.path = Join(section_, cells[0]);
    if (row[0] == '[') {
      section_ = std::string(cells[0].substr(1, cells[0].size() - 2));
      if (cells.size() == 1) return;  // the top, or a section that goes on
      key.path = section_;
      key.type = KeyType::kSection;
    } else if (cells[1] == "removed") {
      key.state = KeyState::kRemoved;
      key.why = Expanded(cells[2]);
      return keys.push_back(std::move(key));
    } else {
      SetKind(cells[1], key);
    }
    more_.clear();
    for (const absl::string_view word : absl::StrSplit(cells[row[0] == '[' ? 1 : 2], ' ')) {
      if (word != "-") SetWord(word, key);
    }
    key.meaning = ReadText(cells.back(), key);
    keys.push_back(key);
    for (const std::string& name : more_) {
      key.path = Join(section_, name);
      keys.push_back(key);
    }
  }

  void ReadLet(absl::string_view row) {
    const std::pair<std::string, std::string> let =
        absl::StrSplit(row.substr(4), absl::MaxSplits('=', 1));
    const std::string value(absl::StripAsciiWhitespace(let.second));
    lets_.emplace_back(absl::StrCat("$", absl::StripAsciiWhitespace(let.first)), Expanded(value));
  }

  void ReadAlias(const std::vector<absl::string_view>& cells) {
    KeySpec hint;
    const std::string names = ReadText(cells[1], hint);
    const absl::string_view key = cells[0].substr(6);
    std::string whose;  // of a name alone: the one before
    for (const absl::string_view entry : absl::StrSplit(names, ", ")) {
      const std::vector<std::string> words = absl::StrSplit(entry, ' ');
      if (words.size() > 1) whose = words[0] == "-" ? "" : words[0];
      foreign.push_back({.name = words.back(),
                         .whose = whose,
                         .key = key == "-" ? "" : std::string(key),
                         .hint = hint.why});
    }
  }

  // With what each $Name stands for.
  std::string Expanded(absl::string_view text) const {
    return absl::StrReplaceAll(absl::StrReplaceAll(text, {{"| ", "|"}}), lets_);
  }

  // "integer=20"
  static void SetKind(absl::string_view cell, KeySpec& key) {
    const std::pair<std::string, std::string> kind = absl::StrSplit(cell, absl::MaxSplits('=', 1));
    const std::vector<absl::string_view> kinds = absl::StrSplit(kKinds, '|');
    const auto found = std::find(kinds.begin(), kinds.end(), kind.first);
    RZ_CHECK(found != kinds.end(), absl::StrCat(key.path, ": no kind ", kind.first));
    key.type = static_cast<KeyType>(found - kinds.begin());
    key.default_json = kind.second;
  }

  // The meaning, without the words in braces: "share of it {for: Muon} {deepspeed: has none}".
  std::string ReadText(absl::string_view text, KeySpec& key) {
    const std::vector<absl::string_view> parts = absl::StrSplit(text, '{');
    for (size_t i = 1; i < parts.size(); ++i) SetWord(parts[i].substr(0, parts[i].find('}')), key);
    return std::string(absl::StripAsciiWhitespace(parts[0]));
  }

  // "only:false", "required", "0..1", "a|b"
  void SetWord(absl::string_view word, KeySpec& key) {
    static constexpr std::pair<absl::string_view, std::string KeySpec::*> kTexts[] = {
        {"also", &KeySpec::also},
        {"auto", &KeySpec::automatic},
        {"default", &KeySpec::default_json},
        {"deepspeed", &KeySpec::deepspeed},
        {"for", &KeySpec::types},
        {"hint", &KeySpec::why},
        {"idle", &KeySpec::why},
        {"note", &KeySpec::why},
        {"only", &KeySpec::built},
        {"outside", &KeySpec::built},
        {"warns", &KeySpec::why}};
    const std::pair<absl::string_view, absl::string_view> split =
        absl::StrSplit(word, absl::MaxSplits(':', 1));
    const absl::string_view name = split.first;
    const std::string value = Expanded(absl::StripAsciiWhitespace(split.second));
    for (const auto& [known, member] : kTexts) {
      if (known == name) key.*member = value;
    }
    if (name == "and") more_ = absl::StrSplit(value, ", ");
    if (name == "warns") key.state = KeyState::kWarns;
    if (name == "idle") key.state = KeyState::kMinor;
    if (name == "note") key.state = KeyState::kNote;
    if (name == "outside") key.outside = true;
    if (name == "values") {
      for (const absl::string_view part : absl::StrSplit(value, ' ')) SetWord(part, key);
    }
    if (name.size() != word.size()) return;
    if (name == "test") {
      key.state = KeyState::kTesting;
    } else if (name == "required") {
      key.need = KeyNeed::kRequired;
    } else if (name == "training") {
      key.need = KeyNeed::kTraining;
    } else if (name == "optional") {
      key.may_be_absent = true;
    } else if (name == "unquoted") {
      key.unquoted = true;
    } else if (name == "+") {
      key.needs_items = true;
    } else if (name == "x2") {
      key.list_length = 2;
    } else if (absl::StrContains(name, "..")) {
      key.range = RangeOf(name);
    } else {
      SetChoices(Expanded(name), key);
    }
  }

  std::vector<std::pair<std::string, std::string>> lets_;
  std::string section_;
  std::vector<std::string> more_;  // names of `and:`
};

const Table& TheTable() {
  static const Table* const table = new Table;
  return *table;
}

// Keys by path; several where types share a path. The paths of other names are there, too.
using Index = std::multimap<std::string, const KeySpec*, std::less<>>;

const Index& KeysByPath() {
  static const Index* const index = [] {
    auto* made = new Index;
    for (const KeySpec& key : AllKeys()) made->emplace(key.path, &key);
    for (const KeySpec& key : AllKeys()) {
      if (!key.also.empty()) made->emplace(Join(key.parent(), key.also), &key);
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
  return absl::string_view(path).substr(path.rfind('.') + 1);  // npos + 1 is 0
}

absl::string_view KeySpec::parent() const {
  const size_t dot = path.rfind('.');
  return absl::string_view(path).substr(0, dot == std::string::npos ? 0 : dot);
}

absl::string_view KeySpec::section() const {
  return absl::string_view(path).substr(0, path.find('.'));
}

bool KeySpec::is_idle() const {
  return state == KeyState::kWarns || state == KeyState::kMinor || state == KeyState::kNote;
}

Reading ReadingOf(const KeySpec& key) {
  constexpr absl::string_view kOurs = "model|data|iterations|epochs|seed|evaluation|cyclic";
  return FindChoice(kOurs, key.section()).empty() ? Reading::kDeepSpeeds : Reading::kOurs;
}

std::string Join(absl::string_view parent, absl::string_view name) {
  return absl::StrCat(parent, parent.empty() ? "" : ".", name);
}

std::span<const KeySpec> AllKeys() { return TheTable().keys; }

std::span<const ForeignName> ForeignNames() { return TheTable().foreign; }

const KeySpec* FindKey(absl::string_view path, absl::string_view section_type) {
  const auto [begin, end] = KeysByPath().equal_range(path);
  for (auto at = begin; at != end; ++at) {
    if (BelongsTo(*at->second, section_type)) return at->second;
  }
  return begin == end ? nullptr : begin->second;
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
  for (const absl::string_view choice : absl::StrSplit(choices, '|', absl::SkipEmpty())) {
    if (absl::EqualsIgnoreCase(choice, name)) return choice;
  }
  return {};
}

}  // namespace ringzero
