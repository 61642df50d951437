// Reads HJSON as hjson 3.1 for Python does, which DeepSpeed uses, into a tree that knows its lines.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "zero/config/hjson_text.h"
#include "zero/config/json_value.h"

namespace ringzero {
namespace {

constexpr size_t kMaxNumber = 400;    // characters
constexpr size_t kMaxShownWord = 40;  // likewise

// hjson's white space: form feeds and vertical tabs are none.
constexpr absl::string_view kSpace = " \t\n\r";

bool IsSpace(char c) { return kSpace.find(c) != absl::string_view::npos; }

bool IsPunctuation(char c) { return absl::string_view("{}[],:").find(c) != std::string::npos; }

class Reader {
 public:
  enum class Quoteless { kAllowed, kRefused };

  Reader(absl::string_view text, const std::string& source, Quoteless quoteless)
      : text_(text), source_(source), quoteless_(quoteless) {}

  absl::StatusOr<JsonValue> ReadFile() {
    RZ_RETURN_IF_ERROR(CheckText());
    RZ_RETURN_IF_ERROR(SkipSpace());
    if (at_ < text_.size() && (text_[at_] == '{' || text_[at_] == '[')) return ReadRoot();
    JsonValue root = JsonValue::Object();  // the outermost braces may be missing
    root.line = line_;
    if (at_ < text_.size()) RZ_RETURN_IF_ERROR(ReadMembers(root, /*closing=*/'\0'));
    return root;
  }

  absl::StatusOr<JsonValue> ReadRoot() {
    RZ_RETURN_IF_ERROR(CheckText());
    JsonValue root;
    RZ_RETURN_IF_ERROR(SkipSpace());
    RZ_RETURN_IF_ERROR(ReadValue(root));
    RZ_RETURN_IF_ERROR(SkipSpace());
    if (at_ < text_.size()) return Error("more text behind the end");
    return root;
  }

 private:
  absl::Status Error(absl::string_view message) const {
    return absl::InvalidArgumentError(
        absl::StrCat(source_, ":", line_, ": not valid JSON: ", message));
  }

  // Where the text ends too early, perhaps because a word without quotes has taken a bracket.
  absl::Status EndError(absl::string_view message) const {
    if (greedy_word_.empty()) return Error(message);
    const absl::string_view shown = greedy_word_.substr(0, kMaxShownWord);
    return absl::InvalidArgumentError(absl::StrCat(
        source_, ":", greedy_line_, ": not valid JSON: ", message, ": the word without quotes ",
        absl::Utf8SafeCEscape(shown.substr(0, FindBrokenUtf8(shown))),
        " goes on to the end of its line"));
  }

  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool AtEnd() const { return at_ >= text_.size(); }
  void Advance(size_t count) {
    for (; count > 0 && !AtEnd(); --count) {
      if (text_[at_++] != '\n') continue;
      ++line_;
      line_begin_ = at_;
    }
  }

  absl::Status CheckText() {
    if (text_.size() > kMaxConfigBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(source_, ": more than ", kMaxConfigBytes >> 10, " KiB"));
    }
    if (absl::StartsWith(text_, "\xef\xbb\xbf")) text_.remove_prefix(3);
    const size_t broken = FindBrokenUtf8(text_);
    if (broken == absl::string_view::npos) return absl::OkStatus();
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
    out.line = line_;
    const char c = Peek();
    if (AtEnd()) return EndError("the text ends where a value was wanted");
    if (c == '{' || c == '[') return ReadBrackets(out);
    if (c != '"' && c != '\'') return ReadQuoteless(out);
    out.kind = JsonValue::Kind::kString;
    if (text_.substr(at_, 3) == "'''") return ReadLines(out.text);
    return ReadString(out.text);
  }

  absl::Status ReadBrackets(JsonValue& out) {
    const bool object = Peek() == '{';
    if (++depth_ > kMaxJsonDepth) {
      return absl::InvalidArgumentError(
          absl::StrCat(source_, ":", line_, ": more than ", kMaxJsonDepth, " levels of brackets"));
    }
    out.kind = object ? JsonValue::Kind::kObject : JsonValue::Kind::kArray;
    Advance(1);
    RZ_RETURN_IF_ERROR(SkipSpace());
    if (object) {
      RZ_RETURN_IF_ERROR(Peek() == '}' ? Close() : ReadMembers(out, '}'));
    } else {
      RZ_RETURN_IF_ERROR(Peek() == ']' ? Close() : ReadItems(out));
    }
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
      if (!names.insert(member.key).second) return Duplicate(object, member.key);
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

  absl::Status Duplicate(const JsonValue& object, const std::string& name) const {
    return absl::InvalidArgumentError(absl::StrCat(source_, ":", line_, ": ", Path(name),
                                                   ": duplicate key, first given on line ",
                                                   object.Find(name)->line));
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
    while (!AtEnd() && Peek() != quote) {
      const char c = Peek();
      if (static_cast<unsigned char>(c) < 0x20) return Error("a control character in a string");
      if (c == '\\') {
        RZ_RETURN_IF_ERROR(ReadEscape(out));
      } else {
        out += c;
        Advance(1);
      }
    }
    if (AtEnd()) return Error("a string without its end");
    return Close();
  }

  absl::Status ReadEscape(std::string& out) {
    constexpr absl::string_view kNames = "\"'\\/bfnrt";
    constexpr absl::string_view kMeanings = "\"'\\/\b\f\n\r\t";
    const char c = Peek(1);
    if (c != 'u') {
      const size_t which = c == '\0' ? std::string::npos : kNames.find(c);
      if (which == std::string::npos) return Error("an unknown escape in a string");
      out += kMeanings[which];
      Advance(2);
      return absl::OkStatus();
    }
    uint32_t point = 0;
    if (!ReadUnit(point)) return Error("a \\u escape without four hexadecimal digits");
    if (point >= 0xd800 && point < 0xdc00 && Peek() == '\\' && Peek(1) == 'u') {
      uint32_t low = 0;
      if (!ReadUnit(low)) return Error("a \\u escape without four hexadecimal digits");
      if (low < 0xdc00 || low > 0xdfff) return Error("half a surrogate pair in a string");
      point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    }
    if (point >= 0xd800 && point <= 0xdfff) return Error("half a surrogate pair in a string");
    AppendUtf8(point, out);
    return absl::OkStatus();
  }

  bool ReadUnit(uint32_t& unit) {
    const absl::string_view digits = text_.substr(std::min(at_ + 2, text_.size()), 4);
    unit = 0;
    for (const char c : digits) {
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
      const int value = absl::ascii_isdigit(static_cast<unsigned char>(c))
                            ? c - '0'
                            : absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10;
      unit = unit * 16 + static_cast<uint32_t>(value);
    }
    if (digits.size() != 4) return false;
    Advance(6);
    return true;
  }

  // '''…''': lines, less the indentation of the quotes.
  absl::Status ReadLines(std::string& out) {
    const size_t indent = at_ - line_begin_;
    const auto skip = [&](size_t most) {
      for (; most > 0 && (Peek() == ' ' || Peek() == '\t' || Peek() == '\r'); --most) Advance(1);
    };
    Advance(3);
    skip(std::numeric_limits<size_t>::max());
    if (Peek() == '\n') {
      Advance(1);
      skip(indent);
    }
    while (text_.substr(at_, 3) != "'''") {
      if (AtEnd()) return Error("a string without its '''");
      const char c = Peek();
      Advance(1);
      if (c != '\r') out += c;
      if (c == '\n') skip(indent);
    }
    Advance(3);
    if (!out.empty() && out.back() == '\n') out.pop_back();
    return absl::OkStatus();
  }

  // true, false, null or a number where a delimiter follows it; else a string up to the line's end.
  absl::Status ReadQuoteless(JsonValue& out) {
    if (IsPunctuation(Peek())) {
      return Error(absl::StrCat("'", std::string(1, Peek()), "' where a value was wanted"));
    }
    const size_t begin = at_;
    for (size_t end = begin;; ++end) {
      const char c = end < text_.size() ? text_[end] : '\n';
      const char next = end + 1 < text_.size() ? text_[end + 1] : '\0';
      const bool eol = c == '\n' || c == '\r';
      const bool comment = c == '#' || (c == '/' && (next == '/' || next == '*'));
      if (!eol && !comment && c != ',' && c != '}' && c != ']') continue;
      const absl::string_view word = text_.substr(begin, end - begin);
      if (ReadWord(word, out)) {
        Advance(end - begin);
        return CheckNumber(out, word);
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

  static bool ReadWord(absl::string_view text, JsonValue& out) {
    const absl::string_view word = absl::StripTrailingAsciiWhitespace(text);
    const absl::string_view number = text.substr(0, text.find_last_not_of(" \t") + 1);
    const int line = out.line;
    std::string key = std::move(out.key);
    bool found = true;
    if (word == "null") {
      out = JsonValue();
    } else if (word == "true" || word == "false") {
      out = JsonValue::Bool(word == "true");
    } else if (number.size() < kMaxNumber && IsJsonNumber(number)) {
      out = ReadNumber(number);
    } else {
      found = false;
    }
    out.line = line;
    out.key = std::move(key);
    return found;
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

  absl::Status CheckNumber(const JsonValue& value, absl::string_view word) const {
    if (value.kind != JsonValue::Kind::kNumber || std::isfinite(value.number)) {
      return absl::OkStatus();
    }
    return Error(absl::StrCat("the number ", word.substr(0, 40), " is too large"));
  }

  absl::string_view text_;
  const std::string& source_;
  const Quoteless quoteless_;
  size_t at_ = 0;
  size_t line_begin_ = 0;
  int line_ = 1;
  int depth_ = 0;
  std::vector<std::string> path_;  // keys of the objects not closed yet
  absl::string_view greedy_word_;  // the first one without quotes that has a closing bracket in it
  int greedy_line_ = 0;
};

}  // namespace

absl::StatusOr<JsonValue> ReadHjson(absl::string_view text, const std::string& source) {
  return Reader(text, source, Reader::Quoteless::kAllowed).ReadFile();
}

absl::StatusOr<JsonValue> ReadJson(absl::string_view text, const std::string& source) {
  return Reader(text, source, Reader::Quoteless::kRefused).ReadRoot();
}

}  // namespace ringzero
