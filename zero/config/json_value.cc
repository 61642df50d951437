// The JSON tree: finding members, making values, and writing them on one line.
#include "zero/config/json_value.h"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ringzero {
namespace {

std::string WriteNumber(double value) {
  if (std::floor(value) == value && std::abs(value) < 1e15) return absl::StrFormat("%.0f", value);
  for (int digits = 1; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

std::string Quote(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

const JsonValue* JsonValue::Find(absl::string_view member) const {
  if (kind != Kind::kObject) return nullptr;
  for (const JsonValue& child : children) {
    if (child.key == member) return &child;
  }
  return nullptr;
}

JsonValue* JsonValue::Find(absl::string_view member) {
  return const_cast<JsonValue*>(std::as_const(*this).Find(member));
}

JsonValue JsonValue::Object() {
  JsonValue value;
  value.kind = Kind::kObject;
  return value;
}

JsonValue JsonValue::Bool(bool v) {
  JsonValue value;
  value.kind = Kind::kBool;
  value.boolean = v;
  return value;
}

JsonValue JsonValue::Integer(int64_t v) {
  JsonValue value;
  value.kind = Kind::kInteger;
  value.integer = v;
  value.number = static_cast<double>(v);
  return value;
}

JsonValue JsonValue::Number(double v) {
  JsonValue value;
  value.kind = Kind::kNumber;
  value.number = v;
  return value;
}

JsonValue JsonValue::String(std::string v) {
  JsonValue value;
  value.kind = Kind::kString;
  value.text = std::move(v);
  return value;
}

std::string WriteJson(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::kNull: return "null";
    case JsonValue::Kind::kBool: return value.boolean ? "true" : "false";
    case JsonValue::Kind::kInteger: return absl::StrCat(value.integer);
    case JsonValue::Kind::kNumber: return WriteNumber(value.number);
    case JsonValue::Kind::kString: return Quote(value.text);
    case JsonValue::Kind::kArray:
    case JsonValue::Kind::kObject: break;
  }
  std::string out = value.is_object() ? "{" : "[";
  const char* separator = "";
  for (const JsonValue& child : value.children) {
    absl::StrAppend(&out, separator);
    if (value.is_object()) absl::StrAppend(&out, Quote(child.key), ": ");
    absl::StrAppend(&out, WriteJson(child));
    separator = ", ";
  }
  return out + (value.is_object() ? "}" : "]");
}

std::string Describe(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::kObject: return "an object";
    case JsonValue::Kind::kArray: return absl::StrCat("the list ", WriteJson(value));
    case JsonValue::Kind::kString: return absl::StrCat("the string ", WriteJson(value));
    default: return WriteJson(value);
  }
}

}  // namespace ringzero
