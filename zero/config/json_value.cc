// The JSON tree: built from nlohmann's events, with lines counted by the iterator that feeds it.
#include "zero/config/json_value.h"

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ringzero {
namespace {

// Walks over the text and counts the lines that the lexer has consumed: an event's line is then the
// line on which its token ends.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (*at_ == '\n') ++*line_;
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int* line_;
};

// Parser events to tree. Each handler returns false to stop; status() then says why.
class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(std::string source, const int* line) : source_(std::move(source)), line_(line) {}

  bool null() override { return Add(JsonValue()); }
  bool boolean(bool value) override { return Add(JsonValue::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Add(JsonValue::Integer(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Add(JsonValue::Number(static_cast<double>(value)));
    }
    return Add(JsonValue::Integer(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return Add(JsonValue::Number(value));
  }
  bool string(string_t& value) override { return Add(JsonValue::String(std::move(value))); }
  bool binary(binary_t&) override { return Fail("binary data is not JSON"); }
  bool start_object(size_t) override { return Open(JsonValue::Kind::kObject); }
  bool start_array(size_t) override { return Open(JsonValue::Kind::kArray); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (const JsonValue* first = open_.back().Find(name); first != nullptr) {
      return Fail(absl::StrCat(Path(name), ": duplicate key, first given on line ", first->line));
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error …"
    std::string message = error.what();
    if (size_t column = message.find("column "); column != std::string::npos) {
      if (size_t colon = message.find(": ", column); colon != std::string::npos) {
        message = message.substr(colon + 2);
      }
    } else if (size_t bracket = message.find("] "); bracket != std::string::npos) {
      message = message.substr(bracket + 2);
    }
    return Fail(absl::StrCat("not valid JSON: ", message));
  }

  const absl::Status& status() const { return status_; }
  JsonValue TakeRoot() { return std::move(root_); }

 private:
  bool Fail(const std::string& message) {
    status_ = absl::InvalidArgumentError(absl::StrCat(source_, ":", *line_, ": ", message));
    return false;
  }

  std::string Path(const std::string& name) const {
    std::string path;
    for (const JsonValue& value : open_) {
      if (!value.key.empty()) absl::StrAppend(&path, value.key, ".");
    }
    return path + name;
  }

  bool Open(JsonValue::Kind kind) {
    if (open_.size() >= kMaxJsonDepth) {
      return Fail(absl::StrCat("more than ", kMaxJsonDepth, " levels of brackets"));
    }
    JsonValue value;
    value.kind = kind;
    value.key = std::exchange(key_, "");
    value.line = *line_;
    open_.push_back(std::move(value));
    return true;
  }

  bool Close() {
    JsonValue value = std::move(open_.back());
    open_.pop_back();
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back().children.push_back(std::move(value));
    }
    return true;
  }

  bool Add(JsonValue value) {
    value.key = std::exchange(key_, "");
    value.line = *line_;
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back().children.push_back(std::move(value));
    }
    return true;
  }

  const std::string source_;
  const int* line_;
  absl::Status status_;
  JsonValue root_;
  std::vector<JsonValue> open_;  // objects and arrays not closed yet, outermost first
  std::string key_;              // of the value that comes next
};

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

absl::StatusOr<JsonValue> ReadJson(absl::string_view text, const std::string& source) {
  int line = 1;
  TreeBuilder builder(source, &line);
  const CountingIterator begin(text.data(), &line);
  const CountingIterator end(text.data() + text.size(), &line);
  const bool good =
      nlohmann::json::sax_parse(begin, end, &builder, nlohmann::json::input_format_t::json,
                                /*strict=*/true, /*ignore_comments=*/true);
  if (!builder.status().ok()) return builder.status();
  if (!good) return absl::InvalidArgumentError(absl::StrCat(source, ": not valid JSON"));
  return builder.TakeRoot();
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
