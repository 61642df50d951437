// Reads HJSON, the JSON with comments that DeepSpeed reads, into a tree that remembers lines.
//
//   RZ_ASSIGN_OR_RETURN(JsonValue root, ReadHjson(text, "gpt.json"));
//   const JsonValue* lr = root.Find("lr");        // lr->kind, lr->number, lr->line
//
// Order of members is kept; duplicate keys are refused at every level. Errors are InvalidArgument
// and begin with "gpt.json:12: ".
#ifndef RINGZERO_ZERO_CONFIG_JSON_VALUE_H_
#define RINGZERO_ZERO_CONFIG_JSON_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringzero {

struct JsonValue {
  enum class Kind { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  std::string key = {};            // this value's name, when it is a member of an object
  int line = 0;                    // in the text that it was read from; 0: not from a file
  std::string override_text = {};  // "a.b=1" when it came from --set a.b=1
  bool from_environment = false;   // then override_text is what a launcher says
  bool boolean = false;
  int64_t integer = 0;                   // kInteger
  double number = 0;                     // kInteger and kNumber
  std::string text = {};                 // kString
  std::vector<JsonValue> children = {};  // of an array or an object, in order

  bool is_object() const { return kind == Kind::kObject; }
  bool is_number() const { return kind == Kind::kInteger || kind == Kind::kNumber; }
  const JsonValue* Find(absl::string_view member) const;  // null: not an object, or not there
  JsonValue* Find(absl::string_view member);

  static JsonValue Object() { return {.kind = Kind::kObject}; }
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

// Where the first byte stands that no UTF-8 character explains, or npos.
size_t FindBrokenUtf8(absl::string_view text);

// "a string", "an object", "true", "7": what an error says was found.
std::string Describe(const JsonValue& value);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_JSON_VALUE_H_
