// UTF-8 and the shape of a number.
#include "zero/config/hjson_text.h"

#include "absl/strings/ascii.h"

namespace ringzero {

size_t FindBrokenUtf8(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t at = 0; at < text.size();) {
    const unsigned char first = byte(at);
    const size_t length = first < 0x80                     ? 1
                          : first >= 0xc2 && first <= 0xdf ? 2
                          : (first & 0xf0) == 0xe0         ? 3
                          : first >= 0xf0 && first <= 0xf4 ? 4
                                                           : 0;
    if (length == 0 || at + length > text.size()) return at;
    for (size_t i = 1; i < length; ++i) {
      if ((byte(at + i) & 0xc0) != 0x80) return at;
    }
    const unsigned char second = length > 2 ? byte(at + 1) : 0x80;
    const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    const bool beyond = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
    if (overlong || beyond) return at;
    at += length;
  }
  return absl::string_view::npos;
}

void AppendUtf8(uint32_t point, std::string& out) {
  const auto tail = [](uint32_t bits) { return static_cast<char>(0x80 | (bits & 0x3f)); };
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += {static_cast<char>(0xc0 | (point >> 6)), tail(point)};
  } else if (point < 0x10000) {
    out += {static_cast<char>(0xe0 | (point >> 12)), tail(point >> 6), tail(point)};
  } else {
    out +=
        {static_cast<char>(0xf0 | (point >> 18)), tail(point >> 12), tail(point >> 6), tail(point)};
  }
}

bool IsJsonNumber(absl::string_view text) {
  const auto digits = [&] {
    size_t count = 0;
    while (!text.empty() && absl::ascii_isdigit(text[0])) {
      text.remove_prefix(1);
      ++count;
    }
    return count;
  };
  if (!text.empty() && text[0] == '-') text.remove_prefix(1);
  const bool zero = !text.empty() && text[0] == '0';
  const size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  if (!text.empty() && (text[0] == 'e' || text[0] == 'E')) {
    text.remove_prefix(1);
    if (!text.empty() && (text[0] == '+' || text[0] == '-')) text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  return text.empty();
}

}  // namespace ringzero
