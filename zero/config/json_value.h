// Reads JSON text into a tree that remembers lines: comments allowed, duplicate keys refused.
//
//   RZ_ASSIGN_OR_RETURN(JsonValue root, ReadJson(text, "gpt.json"));
//   const JsonValue* lr = root.Find("lr");        // lr->kind, lr->number, lr->line
//
// Order of members is kept. Errors are InvalidArgument and begin with "gpt.json:12: ".
#ifndef RINGZERO_ZERO_CONFIG_JSON_VALUE_H_
#define RINGZERO_ZERO_CONFIG_JSON_VALUE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringzero {

struct JsonValue {
  enum class Kind { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  std::string key;            // this value's name, when it is a member of an object
  int line = 0;               // in the text that it was read from; 0: not from a file
  std::string override_text;  // "a.b=1" when it came from --set a.b=1
  bool boolean = false;
  int64_t integer = 0;              // kInteger
  double number = 0;                // kInteger and kNumber
  std::string text;                 // kString
  std::vector<JsonValue> children;  // of an array or an object, in order

  bool is_object() const { return kind == Kind::kObject; }
  const JsonValue* Find(absl::string_view member) const;  // null: not an object, or not there
  JsonValue* Find(absl::string_view member);

  static JsonValue Object();
  static JsonValue Bool(bool value);
  static JsonValue Integer(int64_t value);
  static JsonValue Number(double value);
  static JsonValue String(std::string value);
};

inline constexpr int kMaxJsonDepth = 64;

// `source` names the text in errors.
absl::StatusOr<JsonValue> ReadJson(absl::string_view text, const std::string& source);

// The value on one line: {"a": [1, 2.5], "b": "x"}. Numbers print shortest, and read back equal.
std::string WriteJson(const JsonValue& value);

// "a string", "an object", "true", "7": what an error says was found.
std::string Describe(const JsonValue& value);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_JSON_VALUE_H_
