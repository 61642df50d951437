// Types, ranges and choices; and what pydantic's lax mode makes of strings, bools and whole floats.
#include "zero/config/values.h"

#include <algorithm>
#include <cmath>
#include <limits>
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
#include "base/status.h"

namespace ringzero {
namespace {

using JsonKind = JsonValue::Kind;

constexpr double kIntegerLimit = 9223372036854775808.0;  // 2^63

bool IsWhole(double value) { return std::floor(value) == value; }

std::string Limit(double value) { return WriteJson(JsonValue::Number(value)); }

bool InRange(double value, const KeyRange& range) {
  const bool above = range.open_min ? value > range.min : value >= range.min;
  const bool below = range.open_max ? value < range.max : value <= range.max;
  return above && below;
}

// "a list of 2 numbers"
std::string DescribeType(const KeySpec& key) {
  std::string type(Describe(key.type));
  if (key.range.list_length == 0) return type;
  return absl::StrReplaceAll(type, {{"list of", absl::StrCat("list of ", key.range.list_length)}});
}

bool HasLeadingZero(absl::string_view number) {
  absl::ConsumePrefix(&number, "-");
  return number.size() > 1 && number[0] == '0' &&
         absl::ascii_isdigit(static_cast<unsigned char>(number[1]));
}

bool WantsNumber(const KeySpec& key) {
  return key.type == KeyType::kInteger || key.type == KeyType::kBytes ||
         key.type == KeyType::kNumber || key.type == KeyType::kRate;
}

absl::Status WrongType(const JsonValue& value, const KeySpec& key) {
  // "False," is Python's, and the comma belongs to it, as it has no quotes (hjson_text.h).
  const bool pythons =
      key.type == KeyType::kBool && value.kind == JsonKind::kString &&
      (absl::StartsWith(value.text, "True") || absl::StartsWith(value.text, "False"));
  const bool zero = WantsNumber(key) && HasLeadingZero(value.text);
  return absl::InvalidArgumentError(absl::StrCat("wanted ", DescribeType(key), ", found ",
                                                 Describe(value),
                                                 pythons ? " (JSON has no capitals here)"
                                                 : zero  ? " (a number has no leading 0)"
                                                         : ""));
}

// "7", " +1_000 ", "3.0": pydantic's integers in strings; "5e8" is none.
std::optional<int64_t> IntegerIn(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (const size_t dot = text.find('.'); dot != absl::string_view::npos) {
    const absl::string_view zeros = text.substr(dot + 1);
    if (zeros.empty() || zeros.find_first_not_of('0') != absl::string_view::npos) return {};
    text = text.substr(0, dot);
  }
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool inner = i > 0 && i + 1 < text.size();
    const auto is_digit = [&](size_t at) {
      return absl::ascii_isdigit(static_cast<unsigned char>(text[at]));
    };
    if (text[i] == '_' && inner && is_digit(i - 1) && is_digit(i + 1)) continue;
    digits += text[i];
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(digits, &value)) return {};
  return value;
}

std::optional<bool> BoolIn(const JsonValue& value) {
  if (value.kind == JsonKind::kInteger || value.kind == JsonKind::kNumber) {
    if (value.number == 0 || value.number == 1) return value.number == 1;
  }
  if (value.kind != JsonKind::kString) return {};
  if (!FindChoice("1|t|true|y|yes|on", value.text).empty()) return true;
  if (!FindChoice("0|f|false|n|no|off", value.text).empty()) return false;
  return {};
}

// A value with the place of `from`.
JsonValue Like(const JsonValue& from, JsonValue value) {
  value.key = from.key;
  value.line = from.line;
  value.override_text = from.override_text;
  value.from_environment = from.from_environment;
  return value;
}

// The number that `value` stands for in this key's reading, or nothing.
std::optional<JsonValue> NumberOf(const JsonValue& value, const KeySpec& key, bool whole) {
  const bool strict = ReadingOf(key) == Reading::kStrict;
  if (value.kind == JsonKind::kBool) {
    const bool allowed = key.bools == KeySpec::Bools::kNumbers ||
                         (strict && key.bools == KeySpec::Bools::kByReading);
    if (!allowed) return {};
    return Like(value, JsonValue::Integer(value.boolean ? 1 : 0));
  }
  if (value.kind == JsonKind::kString && strict && whole) {
    const std::optional<int64_t> integer = IntegerIn(value.text);
    if (!integer.has_value()) return {};
    return Like(value, JsonValue::Integer(*integer));
  }
  if (value.kind == JsonKind::kString && strict) {
    double number = 0;
    if (!absl::SimpleAtod(value.text, &number) || !std::isfinite(number)) return {};
    return Like(value, JsonValue::Number(number));
  }
  if (value.kind == JsonKind::kInteger || value.kind == JsonKind::kNumber) return value;
  return {};
}

absl::StatusOr<JsonValue> ConvertNumber(const JsonValue& value, const KeySpec& key, bool whole) {
  std::optional<JsonValue> number = NumberOf(value, key, whole);
  if (!number.has_value()) return WrongType(value, key);
  if (!whole) {
    number->kind = JsonKind::kNumber;
  } else if (number->kind == JsonKind::kNumber && !IsWhole(number->number)) {
    return WrongType(value, key);
  }
  if (!InRange(number->number, key.range)) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted ", DescribeRange(key.range), ", found ", WriteJson(value)));
  }
  if (whole && number->kind == JsonKind::kNumber) {  // 5e10
    if (std::abs(number->number) >= kIntegerLimit) {
      return absl::InvalidArgumentError(
          absl::StrCat("wanted less than 2^63, found ", WriteJson(value)));
    }
    number->kind = JsonKind::kInteger;
    number->integer = static_cast<int64_t>(number->number);
  }
  return *std::move(number);
}

// "12GiB", "1.5 MiB": digits and one of the units.
std::optional<int64_t> BytesIn(absl::string_view text) {
  constexpr absl::string_view kUnits = "KMGT";
  if (text.size() < 4 || !absl::EndsWith(text, "iB")) return {};
  const size_t unit = kUnits.find(text[text.size() - 3]);
  if (unit == absl::string_view::npos) return {};
  absl::string_view digits = text.substr(0, text.size() - 3);
  if (absl::EndsWith(digits, " ")) digits.remove_suffix(1);
  if (digits.find_first_not_of("0123456789.") != absl::string_view::npos) return {};
  if (HasLeadingZero(digits)) return {};
  double number = 0;
  if (!absl::SimpleAtod(digits, &number)) return {};
  const double bytes = std::ldexp(number, 10 * static_cast<int>(unit + 1));
  if (!(bytes < kIntegerLimit)) return {};
  return static_cast<int64_t>(std::llround(bytes));
}

absl::StatusOr<JsonValue> ConvertBytes(const JsonValue& value, const KeySpec& key) {
  if (value.kind != JsonKind::kString) return ConvertNumber(value, key, /*whole=*/true);
  const std::optional<int64_t> bytes = BytesIn(value.text);
  if (!bytes.has_value()) return WrongType(value, key);
  return ConvertNumber(Like(value, JsonValue::Integer(*bytes)), key, /*whole=*/true);
}

absl::StatusOr<JsonValue> ConvertList(const JsonValue& value, const KeySpec& key) {
  if (value.kind != JsonKind::kArray) return WrongType(value, key);
  JsonValue out = value;
  out.children.clear();
  for (const JsonValue& item : value.children) {
    const std::optional<JsonValue> read = NumberOf(item, key, key.type == KeyType::kIntegerList);
    if (!read.has_value()) return WrongType(value, key);
    absl::StatusOr<JsonValue> number = ConvertNumber(item, key, key.type == KeyType::kIntegerList);
    if (!number.ok()) {
      if (InRange(read->number, key.range)) return WrongType(value, key);
      return absl::InvalidArgumentError(
          absl::StrCat(number.status().message(), " in ", Describe(value)));
    }
    out.children.push_back(*std::move(number));
  }
  const size_t length = static_cast<size_t>(key.range.list_length);
  if (length != 0 && out.children.size() != length) return WrongType(value, key);
  if (out.children.empty() && key.empty == KeySpec::Empty::kRefused) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted ", DescribeType(key), ", at least one, found ", Describe(value)));
  }
  return out;
}

// Are the values that `train` can do some of its choices?
bool IsChoice(const KeySpec& key) {
  const absl::string_view first = key.built.substr(0, key.built.find('|'));
  return !FindChoice(AllChoices(key), first).empty();
}

// Do the letters of `part` stand in `whole`, in this order?
bool IsSubsequence(absl::string_view part, absl::string_view whole) {
  for (const char c : whole) {
    if (!part.empty() && part[0] == c) part.remove_prefix(1);
  }
  return part.empty();
}

// The choice of "a|b|c" that `text` most likely meant, of equal ones the first; empty when none is
// like it.
absl::string_view NearestChoice(absl::string_view choices, absl::string_view text) {
  if (text.size() > 64) return {};
  const std::vector<absl::string_view> all = absl::StrSplit(choices, '|', absl::SkipEmpty());
  const std::string lower = absl::AsciiStrToLower(text);
  absl::string_view best;
  // A slip of the pen, before anything that is only a part: "WarmupCosine" is not Cosine.
  int slips = std::min(2, static_cast<int>(text.size()) / 4);
  for (const absl::string_view choice : all) {
    const int edits = EditDistance(choice, text);
    if (edits > slips || (!best.empty() && edits == slips)) continue;
    slips = edits;
    best = choice;
  }
  if (!best.empty()) return best;
  // A whole word of it: "adamw_torch" is AdamW. Or its end: "DeepSpeedCPUAdam" is Adam.
  const std::vector<absl::string_view> words = absl::StrSplit(text, absl::ByAnyChar("_- "));
  for (const absl::string_view choice : all) {
    const bool is_word = std::any_of(words.begin(), words.end(), [&](absl::string_view word) {
      return absl::EqualsIgnoreCase(word, choice);
    });
    if (is_word && choice.size() > best.size()) best = choice;
  }
  if (!best.empty()) return best;
  for (const absl::string_view choice : all) {
    if (choice.size() > best.size() && choice.size() >= 3 &&
        absl::EndsWithIgnoreCase(text, choice)) {
      best = choice;
    }
  }
  if (!best.empty()) return best;
  // Letters left out: "cdp2" is cdp_v2.
  for (const absl::string_view choice : all) {
    if (text.size() >= 4 && IsSubsequence(lower, absl::AsciiStrToLower(choice))) return choice;
  }
  int fewest = static_cast<int>(text.size()) / 2 + 1;
  for (const absl::string_view choice : all) {
    const int edits = EditDistance(choice, text);
    if (edits >= fewest) continue;
    fewest = edits;
    best = choice;
  }
  return best;
}

absl::StatusOr<JsonValue> ConvertString(const JsonValue& value, const KeySpec& key) {
  if (value.kind != JsonKind::kString) return WrongType(value, key);
  if (key.choices.empty() && key.exact.empty()) return value;
  JsonValue out = value;
  out.text = std::string(FindChoice(key.choices, value.text));
  if (!out.text.empty()) return out;
  for (const absl::string_view choice : absl::StrSplit(key.exact, '|', absl::SkipEmpty())) {
    if (choice == value.text) return value;
  }
  if (!FindChoice(key.gone, value.text).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(WriteJson(value), " is removed from DeepSpeed"));
  }
  const std::string all = AllChoices(key);
  const absl::string_view built = !key.built.empty() && IsChoice(key) ? key.built : "";
  const bool many = !built.empty() && std::count(all.begin(), all.end(), '|') > 4;
  std::string message = absl::StrCat("wanted ", OneOf(many ? built : absl::string_view(all)),
                                     ", found ", Describe(value));
  const std::string built_first = absl::StrCat(built, "|", all);
  const absl::string_view nearest = NearestChoice(built_first, value.text);
  if (!nearest.empty()) absl::StrAppend(&message, "; the nearest known one is ", nearest);
  return absl::InvalidArgumentError(message);
}

absl::StatusOr<JsonValue> ConvertStrings(const JsonValue& value, const KeySpec& key) {
  if (value.kind == JsonKind::kString && key.type == KeyType::kStrings) {
    JsonValue list = Like(value, JsonValue());
    list.kind = JsonKind::kArray;
    list.children.push_back(JsonValue::String(value.text));
    return list;
  }
  if (value.kind != JsonKind::kArray) return WrongType(value, key);
  for (const JsonValue& item : value.children) {
    if (item.kind != JsonKind::kString) return WrongType(value, key);
    if (!key.exact.empty()) RZ_RETURN_IF_ERROR(ConvertString(item, key).status());
  }
  return value;
}

absl::StatusOr<JsonValue> ConvertBool(const JsonValue& value, const KeySpec& key) {
  if (value.kind == JsonKind::kBool) return value;
  if (ReadingOf(key) == Reading::kStrict) {
    const std::optional<bool> meant = BoolIn(value);
    if (meant.has_value()) return Like(value, JsonValue::Bool(*meant));
  }
  return WrongType(value, key);
}

}  // namespace

absl::StatusOr<JsonValue> ConvertValue(const JsonValue& value, const KeySpec& key) {
  switch (key.type) {
    case KeyType::kSection:
    case KeyType::kAny: return value;
    case KeyType::kObject:
      if (!value.is_object()) return WrongType(value, key);
      return value;
    case KeyType::kBool: return ConvertBool(value, key);
    case KeyType::kInteger: return ConvertNumber(value, key, /*whole=*/true);
    case KeyType::kBytes: return ConvertBytes(value, key);
    case KeyType::kNumber: return ConvertNumber(value, key, /*whole=*/false);
    case KeyType::kRate:
      if (value.kind == JsonKind::kArray && value.children.size() == 1) {
        RZ_ASSIGN_OR_RETURN(const JsonValue number,
                            ConvertNumber(value.children[0], key, /*whole=*/false));
        return Like(value, number);
      }
      return ConvertNumber(value, key, /*whole=*/false);
    case KeyType::kString: return ConvertString(value, key);
    case KeyType::kStringList:
    case KeyType::kStrings: return ConvertStrings(value, key);
    case KeyType::kIntegerList:
    case KeyType::kNumberList: return ConvertList(value, key);
  }
  return value;
}

bool IsBuilt(const JsonValue& value, const KeySpec& key) {
  if (key.built.empty() || value.kind == JsonKind::kNull) return true;
  const std::string written = value.kind == JsonKind::kString ? value.text : WriteJson(value);
  for (const absl::string_view good : absl::StrSplit(key.built, '|')) {
    if (good == written) return true;
  }
  return false;
}

bool TakesAuto(const KeySpec& key) {
  const Reading reading = ReadingOf(key);
  if (key.auto_value == KeySpec::Auto::kRefused || reading == Reading::kOurs) return false;
  if (key.type == KeyType::kSection) {
    // DeepSpeed drops such a section inside of another; at the top only its monitors'.
    const bool monitor = !FindChoice("tensorboard|csv_monitor|wandb|comet", key.path).empty();
    return reading == Reading::kStrict && (!key.parent().empty() || monitor);
  }
  return FindChoice(key.exact, "auto").empty();
}

bool TakesNull(const KeySpec& key) {
  if (key.null == KeySpec::Null::kAllowed) return true;
  if (key.null == KeySpec::Null::kRefused || key.type == KeyType::kSection) return false;
  return ReadingOf(key) == Reading::kRaw;
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

bool IsAuto(const JsonValue& value) {
  return value.kind == JsonKind::kString && value.text == "auto";
}

}  // namespace ringzero
