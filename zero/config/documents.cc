// What the registry says of itself: docs/config_keys.md, a table per section, and a JSON Schema, a
// node per key.
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "zero/config/config.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

constexpr char kHead[] =
    "# Every key of a configuration\n\nWritten by `ringzero config --markdown` from the table "
    "`zero/config/keys.txt`; a test compares. [config.md](config.md) says how values are read.\n";

std::string Cell(absl::string_view text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string Code(absl::string_view text) {
  return text.empty() ? "" : absl::StrCat("`", Cell(text), "`");
}

std::string TypeCell(const KeySpec& key) {
  const std::string choices = AllChoices(key);
  absl::string_view type = key.is_list ? "list of objects" : Describe(key.type);
  if (!absl::ConsumePrefix(&type, "an ")) absl::ConsumePrefix(&type, "a ");
  std::string text = choices.empty() ? std::string(type) : OneOf(choices);
  const std::string range = DescribeRange(key.range);
  if (!range.empty()) absl::StrAppend(&text, ", ", range);
  if (key.list_length != 0) absl::StrAppend(&text, ", ", key.list_length, " of them");
  if (key.needs_items) absl::StrAppend(&text, ", not empty");
  if (key.unquoted) absl::StrAppend(&text, ", without quotes");
  if (!key.types.empty()) absl::StrAppend(&text, "; for ", OneOf(key.types));
  return Cell(text);
}

std::string HereCell(const KeySpec& key) {
  std::string text;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) absl::StrAppend(&text, text.empty() ? "" : "; ", part);
  };
  if (key.state == KeyState::kRemoved) add(absl::StrCat("refused: ", key.why));
  if (key.is_idle()) add(absl::StrCat("does nothing here: ", key.why));
  if (!key.built.empty()) {
    add(absl::StrCat("only ", OneOf(key.built),
                     key.outside ? " (the rest is outside of this engine)" : " yet"));
  }
  if (key.required) add("required");
  if (key.training) add("required by train and plan");
  if (!key.also.empty()) add(absl::StrCat("also called ", OneOf(key.also)));
  if (!key.automatic.empty() && TakesAuto(key)) {
    const bool from = key.automatic[0] == '=';
    add(absl::StrCat("auto: ", from ? "that of " : "", key.automatic.substr(from ? 1 : 0)));
  }
  return Cell(text);
}

// The row shows the key without `section`: it stands under the title of the section.
std::string TableRow(const KeySpec& key, absl::string_view section = "") {
  const absl::string_view name =
      absl::string_view(key.path).substr(section.empty() ? 0 : section.size() + 1);
  const std::string deepspeed = key.deepspeed.empty() ? "" : "DeepSpeed: " + Cell(key.deepspeed);
  const std::string here = HereCell(key);
  return absl::StrCat("| `", name, "` | ", TypeCell(key), " | ", Code(key.default_json), " | ",
                      Cell(key.meaning), " | ", here, here.empty() || deepspeed.empty() ? "" : ". ",
                      deepspeed, " |\n");
}

enum class Removed { kNone, kOnly };

// The keys of a section; for "": the keys at the top.
std::string TableOf(absl::string_view section, Removed removed = Removed::kNone) {
  std::string text =
      "| key | type | default | meaning | here, and what DeepSpeed 0.19.8 does otherwise |\n"
      "| --- | --- | --- | --- | --- |\n";
  for (const KeySpec& key : AllKeys()) {
    const bool here = section.empty() ? key.type != KeyType::kSection : !key.parent().empty();
    const bool inside = key.section() == section || (section.empty() && key.parent().empty());
    const bool only = removed == Removed::kOnly, gone = key.state == KeyState::kRemoved;
    if (gone == only && (only || (here && inside)) && key.state != KeyState::kTesting) {
      absl::StrAppend(&text, TableRow(key, section));
    }
  }
  return text;
}

// A row for each alias line of keys.txt, which has one key or one advice.
std::string ForeignTable() {
  std::string text =
      "\n## Names of other programs\n\nEach is an error here. The message says what this table "
      "says.\n\n| names | here | remark |\n| --- | --- | --- |\n|";
  const std::span<const ForeignName> all = ForeignNames();
  for (size_t i = 0; i < all.size(); ++i) {
    const bool ends =
        i + 1 == all.size() || all[i + 1].key != all[i].key || all[i + 1].hint != all[i].hint;
    absl::StrAppend(&text, " ", all[i].whose, all[i].whose.empty() ? "" : " ", Code(all[i].name));
    if (ends) absl::StrAppend(&text, " | ", Code(all[i].key), " | ", Cell(all[i].hint), " |\n");
    absl::StrAppend(&text, !ends ? "," : i + 1 == all.size() ? "" : "|");
  }
  return text;
}

using Json = nlohmann::ordered_json;

// "^([Aa][Dd]|…)$": these names, in any case.
std::string AnyCase(absl::string_view names) {
  std::string pattern = "^(";
  for (const char c : names) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalpha(byte)) {
      absl::StrAppend(&pattern, "[", std::string(1, absl::ascii_toupper(byte)),
                      std::string(1, absl::ascii_tolower(byte)), "]");
    } else {
      pattern += c;
    }
  }
  return pattern + ")$";
}

Json Alternatives(std::vector<Json> choices) {
  if (choices.size() == 1) return choices[0];
  Json node;
  node["anyOf"] = std::move(choices);
  return node;
}

Json Number(const KeySpec& key, bool whole) {
  Json node{{"type", whole ? "integer" : "number"}};
  const KeyRange& range = key.range;
  if (std::isfinite(range.min)) node[range.open_min ? "exclusiveMinimum" : "minimum"] = range.min;
  if (std::isfinite(range.max)) node[range.open_max ? "exclusiveMaximum" : "maximum"] = range.max;
  return node;
}

// What a configuration may hold where a number is wanted.
std::vector<Json> Numbers(const KeySpec& key, bool whole) {
  constexpr char kNumber[] = "^\\s*-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?\\s*$";
  std::vector<Json> choices = {Number(key, whole), {{"type", "boolean"}}};
  if (!key.unquoted) choices.push_back({{"type", "string"}, {"pattern", kNumber}});
  return choices;
}

Json List(Json items, const KeySpec& key) {
  Json node{{"type", "array"}, {"items", std::move(items)}};
  if (key.needs_items) node["minItems"] = 1;
  if (key.list_length != 0) node["minItems"] = node["maxItems"] = key.list_length;
  return node;
}

std::vector<Json> Strings(const KeySpec& key) {
  if (key.choices.empty() && key.exact.empty()) return {{{"type", "string"}}};
  std::vector<Json> choices;
  if (!key.choices.empty()) {
    choices.push_back({{"type", "string"}, {"pattern", AnyCase(key.choices)}});
  }
  if (!key.exact.empty()) {
    choices.push_back({{"enum", std::vector<std::string>(absl::StrSplit(key.exact, '|'))}});
  }
  return choices;
}

// What a key may hold, "auto" and null aside.
std::vector<Json> Values(const KeySpec& key) {
  const bool whole = key.type == KeyType::kInteger || key.type == KeyType::kBytes ||
                     key.type == KeyType::kIntegerList;
  std::vector<Json> choices = Numbers(key, whole);
  switch (key.type) {
    case KeyType::kSection:
    case KeyType::kNull: return {};
    case KeyType::kAny: return {Json::object()};
    case KeyType::kObject: return {{{"type", "object"}}};
    case KeyType::kBool:
      return {{{"type", "boolean"}},
              {{"enum", {0, 1}}},
              {{"type", "string"}, {"pattern", AnyCase("1|t|true|y|yes|on|0|f|false|n|no|off")}}};
    case KeyType::kInteger:
    case KeyType::kNumber: return choices;
    case KeyType::kBytes:
      choices.push_back({{"type", "string"}, {"pattern", "^(0|[1-9]\\d*)(\\.\\d+)? ?[KMGT]iB$"}});
      return choices;
    case KeyType::kRate:
      choices.push_back(
          {{"type", "array"}, {"items", Number(key, false)}, {"minItems", 1}, {"maxItems", 1}});
      return choices;
    case KeyType::kString: return Strings(key);
    case KeyType::kStringList: return {List({{"type", "string"}}, key)};
    case KeyType::kIntegerList:
    case KeyType::kNumberList: return {List(Alternatives(std::move(choices)), key)};
  }
  return choices;
}

Json ObjectOf(absl::string_view parent, absl::string_view type);

Json TypedSection(const KeySpec& section, const KeySpec& type) {
  Json branches = Json::array();
  for (const absl::string_view name : absl::StrSplit(AllChoices(type), '|')) {
    Json branch;
    branch["if"] = {{"properties", {{"type", {{"pattern", AnyCase(name)}}}}},
                    {"required", {"type"}}};
    branch["then"] = ObjectOf(section.path, name);
    branches.push_back(std::move(branch));
  }
  Json node{{"type", "object"}};
  node["properties"]["type"] = Alternatives(Values(type));
  if (type.required) node["required"] = {"type"};
  node["allOf"] = std::move(branches);
  return node;
}

Json Node(const KeySpec& key, absl::string_view type) {
  std::vector<Json> choices;
  if (key.type == KeyType::kSection) {
    const KeySpec* own_type = FindKey(absl::StrCat(key.path, ".type"));
    const bool typed = own_type != nullptr && key.parent().empty();
    const Json section = typed ? TypedSection(key, *own_type) : ObjectOf(key.path, type);
    choices.push_back(key.is_list ? List(section, key) : section);
    const bool or_bool = key.path == "zero_optimization" || key.path == "cyclic.predict";
    if (or_bool) choices.push_back({{"type", "boolean"}});
  } else {
    choices = Values(key);
  }
  choices.push_back({{"type", "null"}});
  if (TakesAuto(key) && key.type != KeyType::kAny) choices.push_back({{"const", "auto"}});
  Json node = Alternatives(std::move(choices));
  Json described;
  if (!key.meaning.empty()) described["description"] = key.meaning;
  if (!key.default_json.empty()) described["default"] = Json::parse(key.default_json);
  described.update(node);
  return described;
}

Json ObjectOf(absl::string_view parent, absl::string_view type) {
  Json node{{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
  Json required = Json::array();
  for (const KeySpec& key : AllKeys()) {
    if (key.parent() != parent || key.state == KeyState::kRemoved) continue;
    if (!BelongsTo(key, type)) continue;
    if (key.name() == "*") {
      node["additionalProperties"] = true;
      continue;
    }
    const std::string name(key.name());
    node["properties"][name] = Node(key, type);
    for (const absl::string_view also : absl::StrSplit(key.also, '|', absl::SkipEmpty())) {
      node["properties"][std::string(also)] = node["properties"][name];
    }
    if (key.required) required.push_back(name);
  }
  if (!required.empty()) node["required"] = std::move(required);
  return node;
}

std::string Sentence(std::string text) {
  if (!text.empty()) text[0] = absl::ascii_toupper(static_cast<unsigned char>(text[0]));
  return text + ".";
}

}  // namespace

std::string ConfigMarkdown() {
  std::string text = absl::StrCat(kHead, "\n## At the top\n\n", TableOf(""));
  for (const KeySpec& key : AllKeys()) {
    if (key.type != KeyType::kSection || !key.parent().empty()) continue;
    const std::string here = HereCell(key);
    absl::StrAppend(&text, "\n## ", key.path, "\n\n", Sentence(key.meaning));
    if (!here.empty()) absl::StrAppend(&text, " ", Sentence(here));
    if (!key.deepspeed.empty()) absl::StrAppend(&text, " DeepSpeed ", key.deepspeed, ".");
    absl::StrAppend(&text, "\n\n", TableOf(key.path));
  }
  return absl::StrCat(text, "\n## Removed\n\n", TableOf("", Removed::kOnly), ForeignTable());
}

std::string ConfigSchema() {
  Json root{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
            {"title", "RingZero's configuration: DeepSpeed 0.19.8's keys and our own"}};
  root.update(ObjectOf("", ""));
  return root.dump(1) + "\n";
}

}  // namespace ringzero
