// Reads HJSON as hjson 3.1 for Python does, which DeepSpeed uses, and writes JSON on one line.
#include "zero/config/json_value.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <locale>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr size_t kMaxShownWord = 40;  // characters

// hjson's white space: form feeds and vertical tabs are none.
constexpr absl::string_view kSpace = " \t\n\r";

bool IsSpace(char c) { return kSpace.find(c) != absl::string_view::npos; }

bool IsPunctuation(char c) { return absl::string_view("{}[],:").find(c) != std::string::npos; }

// "-1.5e3", exactly as JSON writes numbers, and not too large.
bool IsJsonNumber(absl::string_view text) {
  return (absl::StartsWith(text, "-") ||
          absl::ascii_isdigit(static_cast<unsigned char>(text[0]))) &&
         nlohmann::json::accept(text);
}

class Reader {
 public:
  enum class Quoteless { kAllowed, kRefused };

  Reader(absl::string_view text, const std::string& source, Quoteless quoteless)
      : text_(text), source_(source), quoteless_(quoteless) {}

  absl::StatusOr<JsonValue> Read() {
    RZ_RETURN_IF_ERROR(CheckText());
    RZ_RETURN_IF_ERROR(SkipSpace());
    JsonValue root = {.place = Here()};
    if (quoteless_ == Quoteless::kAllowed && Peek() != '{' && Peek() != '[') {
      root.kind = JsonValue::Kind::kObject;  // without braces
      if (!AtEnd()) RZ_RETURN_IF_ERROR(ReadMembers(root, /*closing=*/'\0'));
      return root;
    }
    RZ_RETURN_IF_ERROR(ReadValue(root));
    RZ_RETURN_IF_ERROR(SkipSpace());
    if (!AtEnd()) return Error("more text behind the end");
    return root;
  }

 private:
  Place Here() const { return {.text = absl::StrCat(source_, ":", line_), .line = line_}; }

  absl::Status ErrorAt(int line, absl::string_view message) const {
    return InvalidArgument(source_, ":", line, ": ", message);
  }
  absl::Status Error(absl::string_view message) const {
    return ErrorAt(line_, absl::StrCat("not valid JSON: ", message));
  }

  // For a text that ends too early, perhaps because a word without quotes has taken a bracket.
  absl::Status EndError(absl::string_view message) const {
    if (greedy_word_.empty()) return Error(message);
    const absl::string_view shown = greedy_word_.substr(0, kMaxShownWord);
    return ErrorAt(greedy_line_,
                   absl::StrCat("not valid JSON: ", message, ": the word without quotes ",
                                absl::Utf8SafeCEscape(shown.substr(0, WholeUtf8(shown))),
                                " goes on to the end of its line"));
  }

  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool AtEnd() const { return at_ >= text_.size(); }
  void Advance(size_t count) {
    for (; count > 0 && !AtEnd(); --count) line_ += text_[at_++] == '\n' ? 1 : 0;
  }

  absl::Status CheckText() {
    if (text_.size() > kMaxConfigBytes) {
      return InvalidArgument(source_, ": more than ", kMaxConfigBytes >> 10, " KiB");
    }
    if (absl::StartsWith(text_, "\xef\xbb\xbf")) text_.remove_prefix(3);
    const size_t broken = WholeUtf8(text_);
    if (broken == text_.size()) return absl::OkStatus();
    Advance(broken);
    return Error("ill-formed UTF-8");
  }

  absl::Status SkipSpace() {
    while (!AtEnd()) {
      const char c = Peek();
      if (IsSpace(c)) {
        Advance(1);
      } else if (c == '#' || (c == '/' && Peek(1) == '/')) {
        while (!AtEnd() && Peek() != '\n') Advance(1);
      } else if (c == '/' && Peek(1) == '*') {
        const size_t end = text_.find("*/", at_ + 2);
        if (end == absl::string_view::npos) return Error("a comment without its */");
        Advance(end + 2 - at_);
      } else {
        break;
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadValue(JsonValue& out) {
    out.place = Here();
    const char c = Peek();
    if (AtEnd()) return EndError("the text ends where a value was wanted");
    if (c == '{' || c == '[') return ReadBrackets(out);
    if (c != '"' && c != '\'') return ReadQuoteless(out);
    out.kind = JsonValue::Kind::kString;
    return ReadString(out.text);
  }

  absl::Status ReadBrackets(JsonValue& out) {
    const bool object = Peek() == '{';
    if (++depth_ > kMaxJsonDepth) {
      return ErrorAt(line_, absl::StrCat("more than ", kMaxJsonDepth, " levels of brackets"));
    }
    out.kind = object ? JsonValue::Kind::kObject : JsonValue::Kind::kArray;
    Advance(1);
    RZ_RETURN_IF_ERROR(SkipSpace());
    const char closing = object ? '}' : ']';
    RZ_RETURN_IF_ERROR(Peek() == closing ? Close()
                       : object          ? ReadMembers(out, closing)
                                         : ReadItems(out));
    --depth_;
    return absl::OkStatus();
  }

  absl::Status Close() {
    Advance(1);
    return absl::OkStatus();
  }

  absl::Status SkipComma() {
    RZ_RETURN_IF_ERROR(SkipSpace());
    if (Peek() != ',') return absl::OkStatus();
    Advance(1);
    return SkipSpace();
  }

  // `closing` '\0': the outermost object without braces, which ends with the text.
  absl::Status ReadMembers(JsonValue& object, char closing) {
    std::set<std::string> names;
    do {
      JsonValue member;
      RZ_RETURN_IF_ERROR(ReadKey(member.key));
      if (!names.insert(member.key).second) {
        return ErrorAt(line_,
                       absl::StrCat(Path(member.key), ": duplicate key, first given on line ",
                                    object.Find(member.key)->place.line));
      }
      RZ_RETURN_IF_ERROR(SkipSpace());
      if (Peek() != ':') return Error(absl::StrCat("wanted ':' after the key ", Path(member.key)));
      Advance(1);
      RZ_RETURN_IF_ERROR(SkipSpace());
      path_.push_back(member.key);
      RZ_RETURN_IF_ERROR(ReadValue(member));
      path_.pop_back();
      object.children.push_back(std::move(member));
      RZ_RETURN_IF_ERROR(SkipComma());
    } while (closing == '\0' ? !AtEnd() : Peek() != closing);
    return closing == '\0' ? absl::OkStatus() : Close();
  }

  absl::Status ReadItems(JsonValue& array) {
    do {
      array.children.emplace_back();
      RZ_RETURN_IF_ERROR(ReadValue(array.children.back()));
      RZ_RETURN_IF_ERROR(SkipComma());
    } while (Peek() != ']');
    return Close();
  }

  std::string Path(const std::string& name) const {
    std::string path;
    for (const std::string& outer : path_) absl::StrAppend(&path, outer, ".");
    return absl::Utf8SafeCEscape(path + name);
  }

  absl::Status ReadKey(std::string& key) {
    if (Peek() == '"' || Peek() == '\'') return ReadString(key);
    const size_t begin = at_;
    while (!AtEnd() && Peek() != ':') {
      if (IsPunctuation(Peek())) {
        return Error(absl::StrCat("'", std::string(1, Peek()), "' where a key was wanted"));
      }
      if (IsSpace(Peek())) break;
      Advance(1);
    }
    if (AtEnd()) return EndError("the text ends inside an object");
    key = std::string(text_.substr(begin, at_ - begin));
    if (key.empty()) return Error("':' without a key before it");
    return absl::OkStatus();
  }

  absl::Status ReadString(std::string& out) {
    const char quote = Peek();
    Advance(1);
    std::string literal = "\"";  // as JSON writes it
    while (!AtEnd() && Peek() != quote) {
      const char c = Peek();
      if (static_cast<unsigned char>(c) < 0x20) return Error("a control character in a string");
      const bool escape = c == '\\' && Peek(1) != '\0';
      if (c == '"' || (escape && Peek(1) != '\'')) literal += '\\';
      literal += escape ? Peek(1) : c;
      Advance(escape ? 2 : 1);
    }
    if (AtEnd()) return Error("a string without its end");
    const nlohmann::json read = nlohmann::json::parse(literal + '"', nullptr, false);
    if (!read.is_string()) return Error("a wrong escape in a string");
    out = read.get<std::string>();
    return Close();
  }

  // true, false, null or a number if a delimiter follows; otherwise a string up to the line's end.
  absl::Status ReadQuoteless(JsonValue& out) {
    if (IsPunctuation(Peek())) {
      return Error(absl::StrCat("'", std::string(1, Peek()), "' where a value was wanted"));
    }
    const size_t begin = at_;
    bool is_first = true;  // a word with a delimiter in it is a text
    for (size_t end = begin;; ++end) {
      const char c = end < text_.size() ? text_[end] : '\n';
      const char next = end + 1 < text_.size() ? text_[end + 1] : '\0';
      const bool eol = c == '\n' || c == '\r';
      const bool comment = c == '#' || (c == '/' && (next == '/' || next == '*'));
      if (!eol && !comment && c != ',' && c != '}' && c != ']') continue;
      const absl::string_view word = text_.substr(begin, end - begin);
      const auto read = std::exchange(is_first, false) ? ReadWord(word) : std::nullopt;
      if (read.has_value()) {
        out = out.With(*read);
        Advance(end - begin);
        return absl::OkStatus();
      }
      if (!eol) continue;
      if (quoteless_ == Quoteless::kRefused) return Error("a word without quotes");
      if (greedy_word_.empty() && word.find_first_of("}]") != absl::string_view::npos) {
        greedy_word_ = word;
        greedy_line_ = line_;
      }
      out.kind = JsonValue::Kind::kString;
      out.text = std::string(absl::StripAsciiWhitespace(word));
      Advance(end - begin);
      return absl::OkStatus();
    }
  }

  static std::optional<JsonValue> ReadWord(absl::string_view text) {
    const absl::string_view word = absl::StripTrailingAsciiWhitespace(text);
    const absl::string_view number = text.substr(0, text.find_last_not_of(" \t") + 1);
    if (word == "null") return JsonValue();
    if (word == "true" || word == "false") return JsonValue::Bool(word == "true");
    if (!number.empty() && IsJsonNumber(number)) return ReadNumber(number);
    return {};
  }

  // As hjson does: 5e8 and 1.0 are integers, below 1e10.
  static JsonValue ReadNumber(absl::string_view word) {
    int64_t integer = 0;
    if (absl::SimpleAtoi(word, &integer)) return JsonValue::Integer(integer);
    const double number = std::strtod(std::string(word).c_str(), nullptr);
    const bool fraction = word.find_first_of(".eE") != absl::string_view::npos;
    if (fraction && std::floor(number) == number && std::abs(number) < 1e10) {
      return JsonValue::Integer(static_cast<int64_t>(number));
    }
    return JsonValue::Number(number);
  }

  absl::string_view text_;
  const std::string& source_;
  const Quoteless quoteless_;
  size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;
  std::vector<std::string> path_;  // keys of the objects not closed yet
  absl::string_view greedy_word_;  // the first word without quotes that has a closing bracket
  int greedy_line_ = 0;
};

std::string WriteNumber(double value) {
  if (std::floor(value) == value && std::abs(value) < 1e16) return absl::StrFormat("%.0f", value);
  return nlohmann::json(value).dump();
}

std::string Quote(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

absl::string_view ToString(Origin origin) {
  constexpr absl::string_view kNames[] = {"user",    "user (--set)", "environment",
                                          "default", "derived",      "auto"};
  return kNames[static_cast<int>(origin)];
}

size_t WholeUtf8(absl::string_view text) {
  using Utf8 = std::codecvt<char32_t, char8_t, std::mbstate_t>;
  std::mbstate_t state{};
  const auto* begin = reinterpret_cast<const char8_t*>(text.data());
  const int length = std::use_facet<Utf8>(std::locale::classic())
                         .length(state, begin, begin + text.size(), text.size());
  const auto whole = static_cast<size_t>(length);
  // GCC 12's facet takes halves of UTF-16's surrogates (ED A0 to ED BF) for characters. A byte ED
  // below `whole` begins a character of three bytes.
  for (size_t at = text.find('\xed'); at < whole; at = text.find('\xed', at + 1)) {
    if (static_cast<unsigned char>(text[at + 1]) > 0x9f) return at;
  }
  return whole;
}

absl::StatusOr<JsonValue> ReadHjson(absl::string_view text, const std::string& source) {
  return Reader(text, source, Reader::Quoteless::kAllowed).Read();
}

absl::StatusOr<JsonValue> ReadJson(absl::string_view text, const std::string& source) {
  return Reader(text, source, Reader::Quoteless::kRefused).Read();
}

const JsonValue* JsonValue::Find(absl::string_view member) const {
  const auto child = std::ranges::find(children, member, &JsonValue::key);
  return is_object() && child != children.end() ? &*child : nullptr;
}

JsonValue* JsonValue::Find(absl::string_view member) {
  return const_cast<JsonValue*>(std::as_const(*this).Find(member));
}

JsonValue JsonValue::With(JsonValue value) const {
  value.key = key;
  value.place = place;
  value.origin = origin;
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

absl::Status CheckMembers(const nlohmann::json& sample, const nlohmann::json& found) {
  using Json = nlohmann::json;
  constexpr int64_t kMost = int64_t{86400} * 1'000'000'000;
  const Json members = sample.flatten(), values = found.flatten();
  for (const auto& [path, wanted] : members.items()) {
    const Json value = values.value(path, Json());
    const bool whole = wanted.is_number_integer(), number = wanted.is_number();
    const bool fits = whole    ? value.is_number_integer() && value >= 0 && value <= kMost
                      : number ? value.is_number() && value > 0
                               : value.type() == wanted.type();
    if (fits) continue;
    const std::string kind = whole    ? absl::StrCat("a whole number from 0 to ", kMost)
                             : number ? "a number above 0"
                             : wanted.is_boolean() ? "true or false"
                                                   : "a text";
    return InvalidArgument("\"", path.substr(1), "\": wanted ", kind, ", found ",
                           value.is_null() ? "nothing" : value.dump());
  }
  return absl::OkStatus();
}

}  // namespace ringzero
