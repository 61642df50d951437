// Reads keys.txt, whose first lines say how it is written, and looks keys up.
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
#include "absl/strings/strip.h"
#include "base/check.h"

namespace ringzero {

extern const char kKeysText[];  // keys.txt (ringzero_embed)

namespace {

// In the order of KeyType: the name of a kind in keys.txt, and in messages.
constexpr std::pair<absl::string_view, absl::string_view> kKinds[] = {
    {"section", "an object"},
    {"bool", "true or false"},
    {"integer", "an integer"},
    {"bytes", "bytes, an integer or as in \"12GiB\""},
    {"number", "a number"},
    {"rate", "a number (or a list of one)"},
    {"text", "a string"},
    {"integers", "a list of integers"},
    {"numbers", "a list of numbers"},
    {"texts", "a list of strings"},
    {"object", "an object"},
    {"any", "anything"},
    {"null", "null"}};

double End(absl::string_view text) {
  double value = std::numeric_limits<int>::max();
  RZ_CHECK(text == "int32" || absl::SimpleAtod(text, &value), std::string(text));
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

// "a|b|=c|d": a and b in any case; the choices behind the first "=" only as they are written.
void SetChoices(absl::string_view text, KeySpec& key) {
  const std::pair<std::string, std::string> split = absl::StrSplit(text, absl::MaxSplits('=', 1));
  key.choices = std::string(absl::StripSuffix(split.first, "|"));
  key.exact = split.second;
}

class Table {
 public:
  Table() {
    const std::string joined = absl::StrReplaceAll(kKeysText, {{"|\n    ", "|"}, {"\n    ", " "}});
    for (const absl::string_view row : absl::StrSplit(joined, '\n', absl::SkipEmpty())) {
      if (row[0] != '#') ReadRow(row);
    }
  }

  std::vector<KeySpec> keys;
  std::vector<ForeignName> foreign;

 private:
  void ReadRow(absl::string_view row) {
    if (absl::ConsumePrefix(&row, "let ")) return ReadLet(row);
    const std::vector<std::string> cells = absl::StrSplit(row, "  ");
    if (absl::StartsWith(row, "alias ")) return ReadAlias(cells);
    KeySpec key;
    if (row[0] == '[') {
      section_ = cells[0].substr(1, cells[0].size() - 2);
      if (cells.size() == 1) return;  // the top, or a section that goes on
      key.path = section_;
      key.type = KeyType::kSection;
      if (cells.size() == 3) SetWords(cells[1], key);
      key.meaning = ReadText(cells.back(), key);
      return keys.push_back(std::move(key));
    }
    if (cells[1] == "removed") {
      key.state = KeyState::kRemoved;
      key.why = Expanded(cells[2]);
    } else {
      const std::pair<absl::string_view, absl::string_view> kind =
          absl::StrSplit(cells[1], absl::MaxSplits(' ', 1));
      SetKind(kind.first, key);
      SetWords(kind.second, key);
      key.meaning = ReadText(cells[2], key);
    }
    for (const absl::string_view name : absl::StrSplit(cells[0], ", ")) {
      key.path = Join(section_, name);
      if (!key.default_json.empty()) key.standard = Standard(key);
      keys.push_back(key);
      keys.back().also = absl::StrReplaceAll(key.also, {{"*", absl::StripPrefix(name, "stage3_")}});
    }
  }

  static JsonValue Standard(const KeySpec& key) {
    absl::StatusOr<JsonValue> value = ReadJson(key.default_json, key.path);
    if (value.ok()) value = ConvertValue(*value, key);
    RZ_CHECK(value.ok(), std::string(value.status().message()));
    value->place = {};
    return *std::move(value);
  }

  void ReadLet(absl::string_view row) {
    const std::pair<absl::string_view, absl::string_view> let =
        absl::StrSplit(row, absl::MaxSplits('=', 1));
    lets_.emplace_back(absl::StrCat("$", absl::StripAsciiWhitespace(let.first)),
                       Expanded(absl::StripAsciiWhitespace(let.second)));
  }

  void ReadAlias(const std::vector<std::string>& cells) {
    KeySpec hint;
    const std::string names = ReadText(cells[1], hint);
    const std::string key = cells[0].substr(6);
    std::string whose;  // a name alone has that of the name before
    for (const absl::string_view entry : absl::StrSplit(names, ", ")) {
      const std::vector<std::string> words = absl::StrSplit(entry, ' ');
      if (words.size() > 1) whose = words[0] == "-" ? "" : words[0];
      foreign.push_back(
          {.name = words.back(), .whose = whose, .key = key == "-" ? "" : key, .hint = hint.why});
    }
  }

  // `text`, with each $Name replaced by what it stands for.
  std::string Expanded(absl::string_view text) const { return absl::StrReplaceAll(text, lets_); }

  // "integer=20"
  static void SetKind(absl::string_view cell, KeySpec& key) {
    const std::pair<std::string, std::string> kind = absl::StrSplit(cell, absl::MaxSplits('=', 1));
    const auto* found =
        std::ranges::find(kKinds, kind.first, [](auto& known) { return known.first; });
    RZ_CHECK(found != std::end(kKinds), absl::StrCat("no kind ", kind.first));
    key.type = static_cast<KeyType>(found - kKinds);
    key.default_json = kind.second;
  }

  void SetWords(absl::string_view words, KeySpec& key) {
    for (const absl::string_view word : absl::StrSplit(words, ' ', absl::SkipEmpty())) {
      SetWord(word, key);
    }
  }

  // The meaning, without the words in braces: "share of it {deepspeed: has none}".
  std::string ReadText(absl::string_view text, KeySpec& key) {
    const std::vector<absl::string_view> parts = absl::StrSplit(text, '{');
    for (size_t i = 1; i < parts.size(); ++i) SetWord(parts[i].substr(0, parts[i].find('}')), key);
    return std::string(absl::StripAsciiWhitespace(parts[0]));
  }

  // "only:false", "required", "0..1", "a|b"
  void SetWord(absl::string_view word, KeySpec& key) {
    static constexpr std::pair<absl::string_view, std::string KeySpec::*> kTexts[] = {
        {"also", &KeySpec::also},  {"auto", &KeySpec::automatic},
        {"for", &KeySpec::types},  {"deepspeed", &KeySpec::deepspeed},
        {"hint", &KeySpec::why},   {"idle", &KeySpec::why},
        {"note", &KeySpec::why},   {"warns", &KeySpec::why},
        {"only", &KeySpec::built}, {"outside", &KeySpec::built}};
    static constexpr std::pair<absl::string_view, KeyState> kStates[] = {
        {"warns", KeyState::kWarns},
        {"idle", KeyState::kMinor},
        {"note", KeyState::kNote},
        {"test", KeyState::kTesting}};
    static constexpr std::pair<absl::string_view, bool KeySpec::*> kFlags[] = {
        {"+", &KeySpec::needs_items},     {"optional", &KeySpec::may_be_absent},
        {"list", &KeySpec::is_list},      {"outside", &KeySpec::outside},
        {"required", &KeySpec::required}, {"training", &KeySpec::training},
        {"unquoted", &KeySpec::unquoted}};
    const std::pair<absl::string_view, absl::string_view> split =
        absl::StrSplit(word, absl::MaxSplits(':', 1));
    bool known = false;
    const auto set = [&](const auto& table, const auto& put) {
      for (const auto& [name, target] : table) {
        if (name != split.first) continue;
        put(target);
        known = true;
      }
    };
    const std::string text = Expanded(absl::StripAsciiWhitespace(split.second));
    set(kTexts, [&](auto member) { key.*member = text; });
    set(kStates, [&](auto state) { key.state = state; });
    set(kFlags, [&](auto flag) { key.*flag = true; });
    if (known) return;
    if (word == "x2") {
      key.list_length = 2;
    } else if (absl::StrContains(word, "..")) {
      key.range = RangeOf(word);
    } else {
      SetChoices(Expanded(word), key);
    }
  }

  std::vector<std::pair<std::string, std::string>> lets_;
  std::string section_;
};

const Table& TheTable() {
  static const Table* const table = new Table;
  return *table;
}

// Keys by path; several keys if types share a path. Paths of other names (`also`) are there, too.
using Index = std::multimap<std::string, const KeySpec*, std::less<>>;

const Index& KeysByPath() {
  static const Index* const index = [] {
    auto* made = new Index;
    for (const KeySpec& key : AllKeys()) {
      made->emplace(key.path, &key);
      for (const absl::string_view name : absl::StrSplit(key.also, '|', absl::SkipEmpty())) {
        made->emplace(Join(key.parent(), name), &key);
      }
    }
    return made;
  }();
  return *index;
}

}  // namespace

absl::string_view Describe(KeyType type) { return kKinds[static_cast<int>(type)].second; }

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

bool IsOurs(const KeySpec& key) {
  constexpr absl::string_view kOurs = "model|data|iterations|epochs|seed|evaluation|cyclic";
  return !FindChoice(kOurs, key.section()).empty();
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
