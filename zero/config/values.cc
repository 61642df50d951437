// Types, ranges and choices of one value; numbers and bools are read as pydantic's lax mode does.
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

using JsonKind = JsonValue::Kind;

constexpr double kIntegerLimit = 9223372036854775808.0;  // 2^63

std::string Limit(double value) { return WriteJson(JsonValue::Number(value)); }

bool InRange(double value, const KeyRange& range) {
  const bool above = range.open_min ? value > range.min : value >= range.min;
  const bool below = range.open_max ? value < range.max : value <= range.max;
  return above && below;
}

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
  if (!InRange(number->number, key.range)) {
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
    if (!read.ok()) {
      return InvalidArgument(read.status().message(), " in ", Describe(value));
    }
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
