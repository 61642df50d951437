// The JSON Schema: a node per key, a branch per "type" of a section.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "zero/config/documents.h"
#include "zero/config/keys.h"
#include "zero/config/values.h"

namespace ringzero {
namespace {

using Json = nlohmann::ordered_json;

std::string Text(absl::string_view text) { return std::string(text); }

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

void AddStrictNumbers(const KeySpec& key, bool whole, std::vector<Json>& choices) {
  const bool strict = ReadingOf(key) == Reading::kStrict;
  if (key.bools == KeySpec::Bools::kNumbers ||
      (strict && key.bools == KeySpec::Bools::kByReading)) {
    choices.push_back({{"type", "boolean"}});
  }
  if (!strict) return;
  choices.push_back({{"type", "string"},
                     {"pattern", whole ? "^\\s*[+-]?\\d+(_\\d+)*(\\.0+)?\\s*$"
                                       : "^\\s*[+-]?(\\d+\\.?\\d*|\\.\\d+)([eE][+-]?\\d+)?\\s*$"}});
}

Json List(Json items, const KeySpec& key) {
  Json node{{"type", "array"}, {"items", std::move(items)}};
  if (key.empty == KeySpec::Empty::kRefused) node["minItems"] = 1;
  if (key.range.list_length != 0) {
    node["minItems"] = key.range.list_length;
    node["maxItems"] = key.range.list_length;
  }
  return node;
}

void AddStrings(const KeySpec& key, std::vector<Json>& choices) {
  if (key.choices.empty() && key.exact.empty()) return choices.push_back({{"type", "string"}});
  if (!key.choices.empty()) {
    choices.push_back({{"type", "string"}, {"pattern", AnyCase(key.choices)}});
  }
  if (key.exact.empty()) return;
  Json names = Json::array();
  for (const absl::string_view name : absl::StrSplit(key.exact, '|')) names.push_back(Text(name));
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
      choices.push_back({{"type", "boolean"}});
      if (ReadingOf(key) == Reading::kStrict) {
        choices.push_back({{"enum", {0, 1}}});
        choices.push_back(
            {{"type", "string"}, {"pattern", AnyCase("1|t|true|y|yes|on|0|f|false|n|no|off")}});
      }
      break;
    case KeyType::kBytes:
      choices.push_back(
          {{"type", "string"}, {"pattern", "^((0|[1-9]\\d*)(\\.\\d*)?|\\.\\d+) ?[KMGT]iB$"}});
      choices.push_back(Number(key, whole));
      break;
    case KeyType::kRate:
      choices.push_back(
          {{"type", "array"}, {"items", Number(key, false)}, {"minItems", 1}, {"maxItems", 1}});
      [[fallthrough]];
    case KeyType::kInteger:
    case KeyType::kNumber:
      choices.push_back(Number(key, whole));
      AddStrictNumbers(key, whole, choices);
      break;
    case KeyType::kString: AddStrings(key, choices); break;
    case KeyType::kStrings: choices.push_back({{"type", "string"}}); [[fallthrough]];
    case KeyType::kStringList: choices.push_back(List({{"type", "string"}}, key)); break;
    case KeyType::kIntegerList:
    case KeyType::kNumberList: choices.push_back(List(Number(key, whole), key)); break;
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
    groups[keys].push_back(Text(name));
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
  if (TakesNull(key)) choices.push_back({{"type", "null"}});
  if (TakesAuto(key) && key.type != KeyType::kAny) choices.push_back({{"const", "auto"}});
  Json node = Alternatives(std::move(choices));
  Json described;
  if (!key.meaning.empty()) described["description"] = Text(key.meaning);
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
    node["properties"][Text(key.name())] = Node(key, type);
    if (!key.also.empty()) node["properties"][Text(key.also)] = Node(key, type);
    if (key.need == KeyNeed::kRequired) required.push_back(Text(key.name()));
  }
  if (!required.empty()) node["required"] = std::move(required);
  return node;
}

}  // namespace

std::string ConfigSchema() {
  Json root{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
            {"title", "RingZero's configuration: DeepSpeed 0.19.8's keys and our own"}};
  root.update(ObjectOf("", ""));
  return root.dump(1) + "\n";
}

}  // namespace ringzero
