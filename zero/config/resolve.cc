// The check: unknown keys, types, ranges, choices, what is not built; then defaults.
#include "zero/config/resolve.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53: a double beyond may not be whole

std::string Limit(double value) { return WriteJson(JsonValue::Number(value)); }

std::string DescribeRange(const KeyRange& range) {
  const bool below = std::isfinite(range.max);
  const absl::string_view from = range.open_min ? "more than " : "at least ";
  const absl::string_view to = range.open_max ? "less than " : "at most ";
  const bool bounded = below && range.max < 2147483647;
  if (!std::isfinite(range.min)) return bounded ? absl::StrCat(to, Limit(range.max)) : "any";
  std::string text = absl::StrCat(from, Limit(range.min));
  if (bounded) absl::StrAppend(&text, " and ", to, Limit(range.max));
  return text;
}

bool InRange(double value, const KeyRange& range) {
  const bool above = range.open_min ? value > range.min : value >= range.min;
  const bool below = range.open_max ? value < range.max : value <= range.max;
  return above && below;
}

std::string OneOf(absl::string_view choices) {
  std::vector<absl::string_view> names = absl::StrSplit(choices, '|');
  if (names.size() == 1) return std::string(names[0]);
  const absl::string_view last = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " or ", last);
}

class Resolver {
 public:
  Resolver(const JsonValue& root, const std::string& file)
      : root_(root), file_(file), keys_(file) {}

  absl::StatusOr<ResolvedKeys> Run() {
    if (!root_.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_, ": wanted an object at the top, found ", Describe(root_)));
    }
    RZ_RETURN_IF_ERROR(CheckObject(root_, ""));
    RZ_RETURN_IF_ERROR(FillDefaults());
    return std::move(keys_);
  }

 private:
  std::string Place(const JsonValue& value) const {
    if (!value.override_text.empty()) return absl::StrCat("--set ", value.override_text);
    return value.line > 0 ? absl::StrCat(file_, ":", value.line) : file_;
  }

  absl::Status Error(const JsonValue& value, absl::string_view path,
                     absl::string_view message) const {
    return absl::InvalidArgumentError(absl::StrCat(Place(value), ": ", path, ": ", message));
  }

  // The canonical "type" of a section, or empty when it has none.
  std::string SectionType(absl::string_view section) const {
    const std::string path = absl::StrCat(section, ".type");
    return keys_.Has(path) ? keys_.String(path) : "";
  }

  absl::Status CheckObject(const JsonValue& object, const std::string& parent) {
    const std::string prefix = parent.empty() ? "" : parent + ".";
    // The type first: it says what the other keys mean.
    if (const JsonValue* type = object.Find("type"); type != nullptr) {
      RZ_RETURN_IF_ERROR(CheckMember(*type, prefix + "type"));
    } else if (const KeySpec* key = FindKey(prefix + "type");
               key != nullptr && key->need == KeyNeed::kRequired) {
      return Error(object, key->path, absl::StrCat("missing; ", OneOf(key->choices)));
    }
    for (const JsonValue& member : object.children) {
      if (member.key != "type") RZ_RETURN_IF_ERROR(CheckMember(member, prefix + member.key));
    }
    return absl::OkStatus();
  }

  absl::Status CheckMember(const JsonValue& value, const std::string& path) {
    const KeySpec* key = FindKey(path);
    if (key == nullptr) return UnknownKey(value, path);
    if (key->state == KeyState::kNotBuilt) {
      return Error(value, path, "known from DeepSpeed, but not built yet");
    }
    if (key->state == KeyState::kRemoved) {
      return Error(value, path, "removed from DeepSpeed, and not built here");
    }
    if (const std::string type = SectionType(key->section());
        !key->types.empty() && !BelongsTo(*key, type)) {
      return Error(value, path,
                   absl::StrCat("has no meaning for ", key->section(), ".type ", type,
                                ", only for ", OneOf(key->types)));
    }
    if (key->type == KeyType::kSection) {
      if (!value.is_object()) return WrongType(value, *key);
      return CheckObject(value, path);
    }
    RZ_ASSIGN_OR_RETURN(JsonValue checked, CheckValue(value, *key));
    if (!key->only_value.empty() && WriteJson(checked) != key->only_value) {
      return Error(value, path,
                   absl::StrCat(WriteJson(checked), " is not built yet, only ", key->only_value));
    }
    keys_.Set(path, std::move(checked),
              value.override_text.empty() ? Origin::kFile : Origin::kCommandLine);
    return absl::OkStatus();
  }

  absl::Status UnknownKey(const JsonValue& value, const std::string& path) const {
    std::string message = "unknown key";
    if (const KeySpec* nearest = NearestKey(path); nearest != nullptr) {
      absl::StrAppend(&message, "; the nearest known one is ", nearest->path);
      if (nearest->state != KeyState::kBuilt) absl::StrAppend(&message, " (not built yet)");
    }
    return Error(value, path, message);
  }

  absl::Status WrongType(const JsonValue& value, const KeySpec& key) const {
    if (value.kind == JsonValue::Kind::kString && value.text == "auto") {
      return Error(value, key.path,
                   absl::StrCat("\"auto\" is not built yet; give ", Describe(key.type)));
    }
    return Error(value, key.path,
                 absl::StrCat("wanted ", Describe(key.type), ", found ", Describe(value)));
  }

  // One number, or one element of a list: the canonical value, or nothing for a wrong type.
  static std::optional<JsonValue> AsNumber(const JsonValue& value, bool whole) {
    const bool integer = value.kind == JsonValue::Kind::kInteger;
    if (!integer && value.kind != JsonValue::Kind::kNumber) return std::nullopt;
    JsonValue out = value;
    if (!whole) {
      out.kind = JsonValue::Kind::kNumber;
    } else if (!integer) {  // 5e8
      if (std::abs(value.number) > kExactIntegers || std::floor(value.number) != value.number) {
        return std::nullopt;
      }
      out.kind = JsonValue::Kind::kInteger;
      out.integer = static_cast<int64_t>(value.number);
    }
    return out;
  }

  absl::StatusOr<JsonValue> CheckNumber(const JsonValue& value, const KeySpec& key,
                                        bool whole) const {
    const std::optional<JsonValue> number = AsNumber(value, whole);
    if (!number.has_value()) return WrongType(value, key);
    if (!InRange(number->number, key.range)) {
      return Error(value, key.path,
                   absl::StrCat("wanted ", DescribeRange(key.range), ", found ", WriteJson(value)));
    }
    return *number;
  }

  absl::StatusOr<JsonValue> CheckList(const JsonValue& value, const KeySpec& key) const {
    if (value.kind != JsonValue::Kind::kArray) return WrongType(value, key);
    JsonValue out = value;
    out.children.clear();
    for (const JsonValue& item : value.children) {
      RZ_ASSIGN_OR_RETURN(JsonValue number,
                          CheckNumber(item, key, key.type == KeyType::kIntegerList));
      out.children.push_back(std::move(number));
    }
    const size_t length = static_cast<size_t>(key.range.list_length);
    if (length != 0 && out.children.size() != length) {
      return Error(value, key.path,
                   absl::StrCat("wanted ", length, " numbers, found ", WriteJson(value)));
    }
    return out;
  }

  absl::StatusOr<JsonValue> CheckString(const JsonValue& value, const KeySpec& key) const {
    if (value.kind != JsonValue::Kind::kString) return WrongType(value, key);
    if (key.choices.empty()) return value;
    JsonValue out = value;
    out.text = std::string(FindChoice(key.choices, value.text));
    if (!out.text.empty()) return out;
    if (!FindChoice(key.refused, value.text).empty()) {
      return Error(value, key.path,
                   absl::StrCat(WriteJson(value), " is not built yet, only ", OneOf(key.choices)));
    }
    return Error(value, key.path,
                 absl::StrCat("wanted ", OneOf(key.choices), ", found ", WriteJson(value)));
  }

  absl::StatusOr<JsonValue> CheckValue(const JsonValue& value, const KeySpec& key) const {
    switch (key.type) {
      case KeyType::kSection: return value;
      case KeyType::kBool:
        if (value.kind != JsonValue::Kind::kBool) return WrongType(value, key);
        return value;
      case KeyType::kInteger: return CheckNumber(value, key, /*whole=*/true);
      case KeyType::kNumber: return CheckNumber(value, key, /*whole=*/false);
      case KeyType::kString: return CheckString(value, key);
      case KeyType::kIntegerList:
      case KeyType::kNumberList: return CheckList(value, key);
    }
    return value;
  }

  absl::Status FillDefaults() {
    for (const KeySpec& key : AllKeys()) {
      if (key.type == KeyType::kSection) {
        if (key.need == KeyNeed::kRequired && root_.Find(key.path) == nullptr) {
          return absl::InvalidArgumentError(
              absl::StrCat(file_, ": ", key.path, ": missing section (", key.meaning, ")"));
        }
        continue;
      }
      if (key.default_json.empty() || keys_.Has(key.path)) continue;
      if (!BelongsTo(key, SectionType(key.section()))) continue;
      const absl::StatusOr<JsonValue> json = ReadJson(key.default_json, std::string(key.path));
      RZ_CHECK(json.ok(), std::string(json.status().message()));
      absl::StatusOr<JsonValue> value = CheckValue(*json, key);
      RZ_CHECK(value.ok(), std::string(value.status().message()));
      value->line = 0;
      keys_.Set(key.path, *std::move(value), Origin::kDefault);
    }
    return absl::OkStatus();
  }

  const JsonValue& root_;
  const std::string& file_;
  ResolvedKeys keys_;
};

}  // namespace

absl::StatusOr<ResolvedKeys> ResolveKeys(const JsonValue& root, const std::string& file) {
  return Resolver(root, file).Run();
}

}  // namespace ringzero
