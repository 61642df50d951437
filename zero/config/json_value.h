// Reads HJSON, the JSON with comments that DeepSpeed reads, into a tree whose values know where
// they were given.
//
//   RZ_ASSIGN_OR_RETURN(JsonValue root, ReadHjson(text, "gpt.json"));
//   const JsonValue* lr = root.Find("lr");        // lr->kind, lr->number, lr->place
//
// Order of members is kept; duplicate keys are refused at every level. Errors are InvalidArgument
// and begin with "gpt.json:12: ".
#ifndef RINGZERO_ZERO_CONFIG_JSON_VALUE_H_
#define RINGZERO_ZERO_CONFIG_JSON_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringzero {

// Where something was given: "run.json:12", "--set a.b=1", "run.json".
struct Place {
  std::string text;
  int line = std::numeric_limits<int>::max();  // in the file; a place without a line comes last
};

enum class Origin { kFile, kCommandLine, kEnvironment, kDefault, kDerived, kAuto };
// "user", "user (--set)", "environment", "default", "derived", "auto"
absl::string_view ToString(Origin origin);

struct JsonValue {
  enum class Kind { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  std::string key = {};  // this value's name, when it is a member of an object
  Place place = {};
  Origin origin = Origin::kFile;
  bool boolean = false;
  int64_t integer = 0;                   // kInteger
  double number = 0;                     // kInteger and kNumber
  std::string text = {};                 // kString
  std::vector<JsonValue> children = {};  // of an array or an object, in order

  bool is_object() const { return kind == Kind::kObject; }
  bool is_number() const { return kind == Kind::kInteger || kind == Kind::kNumber; }
  const JsonValue* Find(absl::string_view member) const;  // null: not an object, or not there
  JsonValue* Find(absl::string_view member);
  JsonValue With(JsonValue value) const;  // `value` with this key, place and origin

  static JsonValue Bool(bool value) { return {.kind = Kind::kBool, .boolean = value}; }
  static JsonValue Integer(int64_t value) {
    return {.kind = Kind::kInteger, .integer = value, .number = static_cast<double>(value)};
  }
  static JsonValue Number(double value) { return {.kind = Kind::kNumber, .number = value}; }
  static JsonValue String(std::string value) {
    return {.kind = Kind::kString, .text = std::move(value)};
  }
};

inline constexpr int kMaxJsonDepth = 64;
inline constexpr size_t kMaxConfigBytes = 256 << 10;  // a value takes some 200 bytes in memory

// JSON, and beyond it what hjson 3.1 (Python) takes: comments (#, //, /* */), commas left out or
// too many, keys without quotes, 'single' quotes, a text without quotes up to the end of its line,
// no outermost braces, an empty text. Numbers that are whole and below 1e10
// are integers, however written (5e8). `source` names the text in errors.
absl::StatusOr<JsonValue> ReadHjson(absl::string_view text, const std::string& source);

// One value, whose strings have quotes: --set KEY=VALUE, the registry's defaults.
absl::StatusOr<JsonValue> ReadJson(absl::string_view text, const std::string& source);

// The value on one line: {"a": [1, 2.5], "b": "x"}. Numbers print shortest, and read back equal.
std::string WriteJson(const JsonValue& value);

// InvalidArgument, naming the member, unless `found` has every member of `sample`, at every depth,
// and of its kind: a text, a bool, a whole number from 0 to a day's nanoseconds, or a number above
// 0.
absl::Status CheckMembers(const nlohmann::json& sample, const nlohmann::json& found);

// How many bytes at the start of `text` are whole characters of UTF-8.
size_t WholeUtf8(absl::string_view text);

// "a string", "an object", "true", "7": what an error says was found.
std::string Describe(const JsonValue& value);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_JSON_VALUE_H_
