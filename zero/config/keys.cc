// Reads keys.txt, whose first lines say how it is written, and looks keys up. And types, ranges and
// choices of one value: numbers and bools are read as pydantic's lax mode does.
#include "zero/config/keys.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status.h"
#include "base/texts.h"

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
  const auto [low, high] = SplitOnce(text, "..");
  range.open_min = absl::StartsWith(low, ">");
  range.open_max = absl::StartsWith(high, "<");
  if (!low.empty()) range.min = End(low.substr(range.open_min ? 1 : 0));
  if (!high.empty()) range.max = End(high.substr(range.open_max ? 1 : 0));
  return range;
}

class Table {
 public:
  Table() {
    const std::string joined = absl::StrReplaceAll(kKeysText, {{"|\n    ", "|"}, {"\n    ", " "}});
    for (const absl::string_view row : absl::StrSplit(joined, '\n', absl::SkipEmpty())) {
      if (row[0] != '#') ReadRow(row);
    }
    for (const KeySpec& key : keys) {
      by_path.emplace(key.path, &key);
      for (const absl::string_view name : absl::StrSplit(key.also, '|', absl::SkipEmpty())) {
        by_path.emplace(Join(key.parent(), name), &key);
      }
    }
  }

  std::vector<KeySpec> keys;
  std::vector<ForeignName> foreign;
  // Several if types share a path. Paths of other names (`also`) are there, too.
  std::multimap<std::string, const KeySpec*, std::less<>> by_path;

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
      const auto kind = SplitOnce(cells[1], " ");
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
    const auto let = SplitOnce(row, "=");
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
    const auto kind = SplitOnce(cell, "=");
    const auto* found =
        std::ranges::find(kKinds, kind.first, [](auto& known) { return known.first; });
    RZ_CHECK(found != std::end(kKinds), absl::StrCat("no kind ", kind.first));
    key.type = static_cast<KeyType>(found - kKinds);
    key.default_json = std::string(kind.second);
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
    const auto split = SplitOnce(word, ":");
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
    } else {  // "a|b|=c|d": a and b in any case; behind the first "=" only as they are written
      const std::string all = Expanded(word);
      const auto [choices, exact] = SplitOnce(all, "=");
      key.choices = std::string(absl::StripSuffix(choices, "|"));
      key.exact = std::string(exact);
    }
  }

  std::vector<std::pair<std::string, std::string>> lets_;
  std::string section_;
};

const Table& TheTable() {
  static const Table* const table = new Table;
  return *table;
}

using JsonKind = JsonValue::Kind;

constexpr double kIntegerLimit = 9223372036854775808.0;  // 2^63

std::string Limit(double value) { return WriteJson(JsonValue::Number(value)); }

bool IsWholeType(KeyType type) {
  return type == KeyType::kInteger || type == KeyType::kBytes || type == KeyType::kIntegerList;
}

// "a list of 2 numbers"
std::string DescribeType(const KeySpec& key) {
  std::string type(Describe(key.type));
  if (key.list_length == 0) return type;
  return absl::StrReplaceAll(type, {{"list of", absl::StrCat("list of ", key.list_length)}});
}

bool HasLeadingZero(absl::string_view number) {
  absl::ConsumePrefix(&number, "-");
  return number.size() > 1 && number[0] == '0' &&
         absl::ascii_isdigit(static_cast<unsigned char>(number[1]));
}

absl::Status WrongType(const JsonValue& value, const KeySpec& key) {
  const bool number =
      IsWholeType(key.type) || key.type == KeyType::kNumber || key.type == KeyType::kRate;
  const absl::string_view hint =
      number && HasLeadingZero(value.text) ? " (a number has no leading 0)" : "";
  return InvalidArgument("wanted ", DescribeType(key), ", found ", Describe(value), hint);
}

// "12GiB", "1.5 MiB": a number and one of the units.
std::optional<int64_t> BytesIn(absl::string_view text) {
  constexpr absl::string_view kUnits = "KMGT";
  if (text.size() < 4 || !absl::EndsWith(text, "iB")) return {};
  const size_t unit = kUnits.find(text[text.size() - 3]);
  if (unit == absl::string_view::npos) return {};
  absl::string_view digits = text.substr(0, text.size() - 3);
  if (absl::EndsWith(digits, " ")) digits.remove_suffix(1);
  const absl::StatusOr<JsonValue> number = ReadJson(digits, "");
  if (!number.ok() || !number->is_number()) return {};
  const double bytes = std::ldexp(number->number, 10 * static_cast<int>(unit + 1));
  if (!(std::abs(bytes) < kIntegerLimit)) return {};
  return static_cast<int64_t>(std::llround(bytes));
}

// The number that `value` stands for, or nothing.
std::optional<JsonValue> NumberOf(const JsonValue& value, const KeySpec& key) {
  if (value.is_number()) return value;
  if (value.kind == JsonKind::kBool) return value.With(JsonValue::Integer(value.boolean ? 1 : 0));
  if (value.kind != JsonKind::kString || key.unquoted) return {};
  if (const std::optional<int64_t> bytes = BytesIn(value.text);
      bytes && key.type == KeyType::kBytes) {
    return value.With(JsonValue::Integer(*bytes));
  }
  absl::StatusOr<JsonValue> quoted = ReadJson(value.text, "");
  if (!quoted.ok() || !quoted->is_number()) return {};
  return value.With(*std::move(quoted));
}

absl::StatusOr<JsonValue> ConvertNumber(const JsonValue& value, const KeySpec& key) {
  std::optional<JsonValue> number = NumberOf(value, key);
  const bool whole = IsWholeType(key.type);
  if (!number.has_value() || (whole && std::floor(number->number) != number->number)) {
    return WrongType(value, key);
  }
  const KeyRange& range = key.range;
  const double found = number->number;
  const bool above = range.open_min ? found > range.min : found >= range.min;
  const bool below = range.open_max ? found < range.max : found <= range.max;
  if (!above || !below) {
    return InvalidArgument("wanted ", DescribeRange(key.range), ", found ", WriteJson(value));
  }
  if (!whole) {
    number->kind = JsonKind::kNumber;
  } else if (number->kind == JsonKind::kNumber) {  // 5e10
    if (std::abs(number->number) >= kIntegerLimit) {
      return InvalidArgument("wanted less than 2^63, found ", WriteJson(value));
    }
    number->kind = JsonKind::kInteger;
    number->integer = static_cast<int64_t>(number->number);
  }
  return *std::move(number);
}

absl::Status Empty(const JsonValue& value, const KeySpec& key) {
  return InvalidArgument("wanted ", DescribeType(key), " that is not empty, found ",
                         Describe(value));
}

absl::StatusOr<JsonValue> ConvertString(const JsonValue& value, const KeySpec& key) {
  if (value.kind != JsonKind::kString) return WrongType(value, key);
  if (value.text.empty() && key.needs_items) return Empty(value, key);
  const std::string all = AllChoices(key);
  if (all.empty()) return value;
  JsonValue out = value;
  out.text = std::string(FindChoice(key.choices, value.text));
  if (!out.text.empty()) return out;
  if (!value.text.empty() && FindChoice(key.exact, value.text) == value.text) return value;
  // Shows only the choices that `train` can do, if `built` lists choices; otherwise all.
  const bool some = !FindChoice(all, key.built.substr(0, key.built.find('|'))).empty();
  const std::string built_first = absl::StrCat(key.built, "|", all);
  const absl::string_view nearest = NearestChoice(built_first, value.text);
  std::string message =
      absl::StrCat("wanted ", OneOf(some ? key.built : all), ", found ", Describe(value));
  if (!nearest.empty()) absl::StrAppend(&message, "; the nearest known one is ", nearest);
  return absl::InvalidArgumentError(message);
}

absl::StatusOr<JsonValue> ConvertList(const JsonValue& value, const KeySpec& key) {
  if (value.kind != JsonKind::kArray) return WrongType(value, key);
  JsonValue out = value;
  out.children.clear();
  for (const JsonValue& item : value.children) {
    const bool text = key.type == KeyType::kStringList;
    absl::StatusOr<JsonValue> read = text ? ConvertString(item, key) : ConvertNumber(item, key);
    if (!read.ok()) return InvalidArgument(read.status().message(), " in ", Describe(value));
    out.children.push_back(*std::move(read));
  }
  const size_t length = static_cast<size_t>(key.list_length);
  if (length != 0 && out.children.size() != length) return WrongType(value, key);
  if (out.children.empty() && key.needs_items) return Empty(value, key);
  return out;
}

absl::StatusOr<JsonValue> ConvertBool(const JsonValue& value, const KeySpec& key) {
  if (value.kind == JsonKind::kBool) return value;
  const std::string text = value.kind == JsonKind::kString ? value.text
                           : value.is_number()             ? Limit(value.number)
                                                           : "";
  const bool on = !FindChoice("1|t|true|y|yes|on", text).empty();
  if (!on && FindChoice("0|f|false|n|no|off", text).empty()) return WrongType(value, key);
  return value.With(JsonValue::Bool(on));
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
  const auto [begin, end] = TheTable().by_path.equal_range(path);
  for (auto at = begin; at != end; ++at) {
    if (BelongsTo(*at->second, section_type)) return at->second;
  }
  return begin == end ? nullptr : begin->second;
}

bool BelongsTo(const KeySpec& key, absl::string_view type) {
  return key.types.empty() || !FindChoice(key.types, type).empty();
}

std::string TypesOf(absl::string_view path) {
  const auto [begin, end] = TheTable().by_path.equal_range(path);
  return absl::StrJoin(begin, end, "|", [](std::string* types, const auto& key) {
    absl::StrAppend(types, key.second->types);
  });
}

absl::string_view FindChoice(absl::string_view choices, absl::string_view name) {
  for (const absl::string_view choice : absl::StrSplit(choices, '|', absl::SkipEmpty())) {
    if (absl::EqualsIgnoreCase(choice, name)) return choice;
  }
  return {};
}

absl::StatusOr<JsonValue> ConvertValue(const JsonValue& value, const KeySpec& key) {
  switch (key.type) {
    case KeyType::kSection:
    case KeyType::kAny: return value;
    case KeyType::kNull: return WrongType(value, key);
    case KeyType::kObject:
      if (!value.is_object()) return WrongType(value, key);
      return value;
    case KeyType::kBool: return ConvertBool(value, key);
    case KeyType::kBytes:
    case KeyType::kInteger:
    case KeyType::kNumber: return ConvertNumber(value, key);
    case KeyType::kRate: {
      const bool list = value.kind == JsonKind::kArray && value.children.size() == 1;
      return ConvertNumber(list ? value.children[0] : value, key);
    }
    case KeyType::kString: return ConvertString(value, key);
    case KeyType::kStringList:
    case KeyType::kIntegerList:
    case KeyType::kNumberList: return ConvertList(value, key);
  }
  return value;
}

bool IsBuilt(const JsonValue& value, const KeySpec& key) {
  if (key.built.empty() || value.kind == JsonKind::kNull) return true;
  const std::string written = value.kind == JsonKind::kString ? value.text : WriteJson(value);
  return !written.empty() && FindChoice(key.built, written) == written;
}

bool TakesAuto(const KeySpec& key) {
  if (IsOurs(key) || key.name() == "type" || key.type == KeyType::kNull) return false;
  return key.choices.empty() && FindChoice(key.exact, "auto").empty();
}

bool IsAuto(const JsonValue& value) {
  return value.kind == JsonKind::kString && value.text == "auto";
}

std::string OneOf(absl::string_view choices) {
  std::vector<absl::string_view> names = absl::StrSplit(choices, '|');
  if (names.size() == 1) return std::string(names[0]);
  const absl::string_view last = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " or ", last);
}

std::string AllChoices(const KeySpec& key) {
  const bool both = !key.choices.empty() && !key.exact.empty();
  return absl::StrCat(key.choices, both ? "|" : "", key.exact);
}

std::string DescribeRange(const KeyRange& range) {
  const absl::string_view from = range.open_min ? "more than " : "at least ";
  const absl::string_view to = range.open_max ? "less than " : "at most ";
  const bool bounded = std::isfinite(range.max);
  if (!std::isfinite(range.min)) return bounded ? absl::StrCat(to, Limit(range.max)) : "";
  std::string text = absl::StrCat(from, Limit(range.min));
  if (bounded) absl::StrAppend(&text, " and ", to, Limit(range.max));
  return text;
}

}  // namespace ringzero
