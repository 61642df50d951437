// --set: parsed, then drops what it replaces, then writes the values.
#include "zero/config/overrides.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "zero/config/hjson_text.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

constexpr size_t kMaxOverrides = 1000;
constexpr size_t kMaxShownOverride = 200;  // bytes of one in messages

struct Override {
  std::string path;
  JsonValue value;
};

void MarkOverride(JsonValue& value, const std::string& text) {
  value.line = 0;
  value.override_text = text;
  for (JsonValue& child : value.children) MarkOverride(child, text);
}

// Every value that the option gives keeps this.
std::string Shown(absl::string_view text) {
  if (text.size() <= kMaxShownOverride) return std::string(text);
  const absl::string_view shown = text.substr(0, kMaxShownOverride);
  return absl::StrCat(shown.substr(0, FindBrokenUtf8(shown)), "...");
}

absl::StatusOr<Override> ParseOverride(const std::string& text) {
  const size_t equals = text.find('=');
  const auto error = [&](absl::string_view message) {
    return absl::InvalidArgumentError(absl::StrCat("--set ", Shown(text), ": ", message));
  };
  if (equals == std::string::npos || equals == 0) {
    return error("wanted KEY.PATH=VALUE, as in --set cyclic.rule=dp");
  }
  Override result{.path = text.substr(0, equals), .value = {}};
  const std::vector<absl::string_view> names = absl::StrSplit(result.path, '.');
  if (names.size() > size_t{kMaxJsonDepth}) {
    return error(absl::StrCat("more than ", kMaxJsonDepth, " levels"));
  }
  for (const absl::string_view name : names) {
    if (name.empty()) return error("an empty key");
  }
  const std::string value = text.substr(equals + 1);
  const absl::StatusOr<JsonValue> json = ReadJson(value, "value");
  result.value = json.ok() ? *json : JsonValue::String(value);
  MarkOverride(result.value, Shown(text));
  return result;
}

absl::Status CheckSize(const std::vector<std::string>& overrides) {
  size_t bytes = 0;
  for (const std::string& text : overrides) bytes += text.size();
  if (bytes > kMaxConfigBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set: more than ", kMaxConfigBytes >> 10, " KiB in all"));
  }
  if (overrides.size() <= kMaxOverrides) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--set: wanted at most ", kMaxOverrides, " of them, found ", overrides.size()));
}

void Drop(JsonValue& object, absl::string_view key) {
  std::erase_if(object.children, [&](const JsonValue& child) { return child.key == key; });
}

// Drops from `object` (at `path`) what does not belong to `type`. Unknown keys stay: the check
// reports them.
void DropOtherTypes(JsonValue& object, const std::string& path, absl::string_view type) {
  std::erase_if(object.children, [&](const JsonValue& child) {
    const KeySpec* key = FindKey(absl::StrCat(path, ".", child.key), type);
    return key != nullptr && !BelongsTo(*key, type);
  });
  for (JsonValue& child : object.children) {
    if (child.is_object()) DropOtherTypes(child, absl::StrCat(path, ".", child.key), type);
  }
}

absl::Status Write(const Override& change, JsonValue& root) {
  JsonValue* at = &root;
  const std::vector<std::string> names = absl::StrSplit(change.path, '.');
  std::string path;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!at->is_object()) {
      return absl::InvalidArgumentError(absl::StrCat("--set ", change.value.override_text, ": ",
                                                     path, " is ", Describe(*at),
                                                     " and has no keys"));
    }
    absl::StrAppend(&path, path.empty() ? "" : ".", names[i]);
    JsonValue* next = at->Find(names[i]);
    if (next == nullptr) {
      JsonValue section = JsonValue::Object();
      section.key = names[i];
      section.override_text = change.value.override_text;
      at->children.push_back(std::move(section));
      next = &at->children.back();
    }
    at = next;
  }
  std::string key = at->key;
  *at = change.value;
  at->key = std::move(key);
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyOverrides(const std::vector<std::string>& overrides, OverridesFrom from,
                            JsonValue& root) {
  RZ_RETURN_IF_ERROR(CheckSize(overrides));
  std::vector<Override> changes;
  for (const std::string& text : overrides) {
    RZ_ASSIGN_OR_RETURN(Override change, ParseOverride(text));
    change.value.from_environment = from == OverridesFrom::kEnvironment;
    std::erase_if(changes, [&](const Override& earlier) { return earlier.path == change.path; });
    changes.push_back(std::move(change));
  }
  for (const Override& change : changes) {
    if (change.path == "iterations") Drop(root, "epochs");
    if (change.path == "epochs") Drop(root, "iterations");
    const auto [section, name] =
        std::pair<std::string, std::string>(absl::StrSplit(change.path, absl::MaxSplits('.', 1)));
    if (name != "type" || change.value.kind != JsonValue::Kind::kString) continue;
    if (JsonValue* object = root.Find(section); object != nullptr && object->is_object()) {
      DropOtherTypes(*object, section, change.value.text);
    }
  }
  // Whole sections before their keys, so that the order of the options does not matter.
  std::stable_sort(changes.begin(), changes.end(), [](const Override& a, const Override& b) {
    return std::count(a.path.begin(), a.path.end(), '.') <
           std::count(b.path.begin(), b.path.end(), '.');
  });
  for (const Override& change : changes) RZ_RETURN_IF_ERROR(Write(change, root));
  return absl::OkStatus();
}

}  // namespace ringzero
