// What the registry says of itself: docs/config.md, a table per section, and a JSON Schema, a node
// per key.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "zero/config/config.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

constexpr char kHead[] =
    R"(# Configuration

Written by `ringzero config --markdown` from the table `zero/config/keys.txt`; a test compares.
`ringzero config --schema` prints the same as a JSON Schema, and an installation has it as
`share/ringzero/config.schema.json`. `ringzero config FILE [--set KEY=VALUE ...]` prints the
resolved configuration of a file, every value with its origin (user, environment, default, derived,
auto). That reads back as it is.

A configuration is a file of DeepSpeed 0.19.8's keys and of our own sections `model`, `data`,
`evaluation` and `cyclic`.

- It is read as HJSON, as DeepSpeed does: comments (`#`, `//`, `/* */`), commas left out or too
  many, keys without quotes, a text without quotes up to the end of its line. A key that stands
  twice is an error, at every level, and so is an empty key.
- Values are read as pydantic's lax mode reads them for DeepSpeed, in every section: a number may be
  in quotes (not in the batch triple) and have a fraction of 0 where it is an integer (`5e8`); a
  bool may be 0, 1, or a word such as `"yes"`; `true` is the number 1. `null` is as absent.
- A number has no leading 0. `010` is a text, in a file and in `--set`, and an error where a number
  is wanted.
- A key that is not in these tables is an error, at every depth, with the nearest known key. Removed
  keys, most of them by DeepSpeed, say so. Common names of HuggingFace, torchtitan, nanoGPT and
  Megatron are errors, too: the message says [what they are here](#names-of-other-programs).
- A key that has no meaning with the configured `cyclic.rule` is an error: `cyclic.slack` and a true
  `cyclic.strict` with `dp` or `cdp_v1`, a true `cyclic.predict` or `cyclic.stagger` with `dp`.
- A file has at most 256 KiB and 64 levels of brackets. All `--set` together have as much, in at
  most 1000 options. After 1000 findings only a first error is added. An integer is below 2^63 where
  its row names no maximum. An update has at most 2147483647 samples, a run at most 2147483646
  iterations.
- `"auto"` takes the value that the last column names; where none is named, a run asks for one
  (`--set`). DeepSpeed's own `"auto"` inside of a section silently is the default. A choice of names
  in any case is never `"auto"`, and our own keys know no `"auto"`.
- *Does nothing here*: accepted, with one line that says why. *Only ...*: `ringzero config` takes
  every value, `ringzero train` refuses the others by name until they are built. `ringzero config`
  lists all that `train` would refuse, as far as it can tell without the data.
)";

std::string Cell(absl::string_view text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string Code(absl::string_view text) {
  return text.empty() ? "" : absl::StrCat("`", Cell(text), "`");
}

std::string TypeCell(const KeySpec& key) {
  const std::string choices = AllChoices(key);
  absl::string_view type = Describe(key.type);
  if (!absl::ConsumePrefix(&type, "an ")) absl::ConsumePrefix(&type, "a ");
  std::string text = choices.empty() ? std::string(type) : OneOf(choices);
  std::string range = DescribeRange(key.range);
  if (absl::StrContains(range, " and at most ")) {
    range = absl::StrReplaceAll(range, {{"at least ", ""}, {" and at most ", " to "}});
  }
  if (!range.empty()) absl::StrAppend(&text, ", ", range);
  if (key.list_length != 0) absl::StrAppend(&text, ", ", key.list_length, " of them");
  if (key.needs_items) absl::StrAppend(&text, ", at least one");
  if (key.unquoted) absl::StrAppend(&text, ", without quotes");
  if (!key.types.empty()) absl::StrAppend(&text, "; for ", OneOf(key.types));
  return Cell(text);
}

std::string AutoText(const KeySpec& key) {
  if (key.automatic.empty() || !TakesAuto(key)) return "";
  if (key.automatic[0] == '=') return absl::StrCat("auto: that of `", key.automatic.substr(1), "`");
  return absl::StrCat("auto: ", key.automatic);
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
  if (key.need == KeyNeed::kRequired) add("required");
  if (key.need == KeyNeed::kTraining) add("required by train and plan");
  if (!key.also.empty()) add(absl::StrCat("also called ", key.also));
  add(AutoText(key));
  return Cell(text);
}

// Its name is without `section`, under whose title the row stands.
std::string Row(const KeySpec& key, absl::string_view section = "") {
  const absl::string_view name =
      absl::string_view(key.path).substr(section.empty() ? 0 : section.size() + 1);
  const std::string deepspeed = key.deepspeed.empty() ? "" : "DeepSpeed: " + Cell(key.deepspeed);
  const std::string here = HereCell(key);
  return absl::StrCat("| `", name, "` | ", TypeCell(key), " | ", Code(key.default_json), " | ",
                      Cell(key.meaning), " | ", here, here.empty() || deepspeed.empty() ? "" : ". ",
                      deepspeed, " |\n");
}

constexpr char kTable[] =
    "| key | type | default | meaning | here, and what DeepSpeed 0.19.8 does otherwise |\n"
    "| --- | --- | --- | --- | --- |\n";

// A row for each line of the table, which has one key or one advice.
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

// What stands for a number.
void AddNumbers(const KeySpec& key, bool whole, std::vector<Json>& choices) {
  choices.push_back(Number(key, whole));
  choices.push_back({{"type", "boolean"}});
  constexpr absl::string_view kNumber = "-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?";
  if (key.unquoted) return;
  choices.push_back({{"type", "string"}, {"pattern", absl::StrCat("^\\s*", kNumber, "\\s*$")}});
}

Json List(Json items, const KeySpec& key) {
  Json node{{"type", "array"}, {"items", std::move(items)}};
  if (key.needs_items) node["minItems"] = 1;
  if (key.list_length != 0) node["minItems"] = node["maxItems"] = key.list_length;
  return node;
}

void AddStrings(const KeySpec& key, std::vector<Json>& choices) {
  if (key.choices.empty() && key.exact.empty()) return choices.push_back({{"type", "string"}});
  if (!key.choices.empty()) {
    choices.push_back({{"type", "string"}, {"pattern", AnyCase(key.choices)}});
  }
  if (key.exact.empty()) return;
  Json names = Json::array();
  for (const absl::string_view name : absl::StrSplit(key.exact, '|'))
    names.push_back(std::string(name));
  choices.push_back({{"enum", std::move(names)}});
}

// What a key may hold, "auto" and null aside.
std::vector<Json> Values(const KeySpec& key) {
  std::vector<Json> choices;
  const bool whole = key.type == KeyType::kInteger || key.type == KeyType::kBytes ||
                     key.type == KeyType::kIntegerList;
  switch (key.type) {
    case KeyType::kSection: break;
    case KeyType::kAny: choices.push_back(Json::object()); break;
    case KeyType::kObject: choices.push_back({{"type", "object"}}); break;
    case KeyType::kBool:
      choices = {
          {{"type", "boolean"}},
          {{"enum", {0, 1}}},
          {{"type", "string"}, {"pattern", AnyCase("1|t|true|y|yes|on|0|f|false|n|no|off")}}};
      break;
    case KeyType::kBytes:
      choices.push_back({{"type", "string"}, {"pattern", "^(0|[1-9]\\d*)(\\.\\d+)? ?[KMGT]iB$"}});
      AddNumbers(key, whole, choices);
      break;
    case KeyType::kRate:
      choices.push_back(
          {{"type", "array"}, {"items", Number(key, false)}, {"minItems", 1}, {"maxItems", 1}});
      [[fallthrough]];
    case KeyType::kInteger:
    case KeyType::kNumber: AddNumbers(key, whole, choices); break;
    case KeyType::kString: AddStrings(key, choices); break;
    case KeyType::kStrings: choices.push_back({{"type", "string"}}); [[fallthrough]];
    case KeyType::kStringList: choices.push_back(List({{"type", "string"}}, key)); break;
    case KeyType::kIntegerList:
    case KeyType::kNumberList: {
      std::vector<Json> items;
      AddNumbers(key, whole, items);
      choices.push_back(List(Alternatives(std::move(items)), key));
      break;
    }
  }
  return choices;
}

Json ObjectOf(absl::string_view parent, absl::string_view type);

// The values of a section's "type" that have keys of their own, those with the same keys together.
std::map<std::string, std::vector<std::string>> TypesByKeys(absl::string_view section,
                                                            const KeySpec& type) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const absl::string_view name : absl::StrSplit(AllChoices(type), '|')) {
    std::string keys;
    for (size_t i = 0; i < AllKeys().size(); ++i) {
      const KeySpec& key = AllKeys()[i];
      if (key.section() == section && BelongsTo(key, name)) absl::StrAppend(&keys, i, " ");
    }
    groups[keys].emplace_back(name);
  }
  return groups;
}

Json TypedSection(const KeySpec& section, const KeySpec& type) {
  Json branches = Json::array();
  for (const auto& [keys, names] : TypesByKeys(section.path, type)) {
    Json branch;
    branch["if"] = {{"properties", {{"type", {{"pattern", AnyCase(absl::StrJoin(names, "|"))}}}}},
                    {"required", {"type"}}};
    branch["then"] = ObjectOf(section.path, names[0]);
    branches.push_back(std::move(branch));
  }
  Json node{{"type", "object"}};
  node["properties"]["type"] = Alternatives(Values(type));
  if (type.need == KeyNeed::kRequired) node["required"] = {"type"};
  node["allOf"] = std::move(branches);
  return node;
}

Json Node(const KeySpec& key, absl::string_view type) {
  std::vector<Json> choices;
  if (key.type == KeyType::kSection) {
    const KeySpec* own_type = FindKey(absl::StrCat(key.path, ".type"));
    const bool typed = own_type != nullptr && key.parent().empty();
    choices.push_back(typed ? TypedSection(key, *own_type) : ObjectOf(key.path, type));
    if (key.path == "zero_optimization") choices.push_back({{"type", "boolean"}});
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
    if (!key.also.empty()) node["properties"][key.also] = node["properties"][name];
    if (key.need == KeyNeed::kRequired) required.push_back(name);
  }
  if (!required.empty()) node["required"] = std::move(required);
  return node;
}

}  // namespace

std::string ConfigMarkdown() {
  std::string top = absl::StrCat("\n## At the top\n\n", kTable);
  std::string removed = absl::StrCat("\n## Removed\n\n", kTable);
  std::vector<const KeySpec*> sections;
  for (const KeySpec& key : AllKeys()) {
    if (key.state == KeyState::kTesting) continue;
    if (key.state == KeyState::kRemoved) {
      absl::StrAppend(&removed, Row(key));
    } else if (key.type == KeyType::kSection && key.parent().empty()) {
      sections.push_back(&key);
    } else if (key.parent().empty()) {
      absl::StrAppend(&top, Row(key));
    }
  }
  std::string text = absl::StrCat(kHead, top);
  for (const KeySpec* section : sections) {
    absl::StrAppend(&text, "\n## ", section->path, "\n\n", section->meaning, ".");
    const std::string here = HereCell(*section);
    if (!here.empty()) absl::StrAppend(&text, " Here: ", here, ".");
    if (!section->deepspeed.empty()) absl::StrAppend(&text, " DeepSpeed ", section->deepspeed, ".");
    absl::StrAppend(&text, "\n\n", kTable);
    for (const KeySpec& key : AllKeys()) {
      const bool inside = key.section() == section->path && !key.parent().empty();
      const bool shown = key.state != KeyState::kTesting && key.state != KeyState::kRemoved;
      if (inside && shown) absl::StrAppend(&text, Row(key, section->path));
    }
  }
  return text + removed + ForeignTable();
}

std::string ConfigSchema() {
  Json root{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
            {"title", "RingZero's configuration: DeepSpeed 0.19.8's keys and our own"}};
  root.update(ObjectOf("", ""));
  return root.dump(1) + "\n";
}

}  // namespace ringzero
