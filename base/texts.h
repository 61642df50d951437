// Joins texts of any bytes into one text, "5:hello0:3:abc", cuts texts, and takes their line ends.
//
//   std::string all = JoinTexts({"hello", "", "abc"});
//   absl::string_view rest = all;
//   while (std::optional<std::string> text = TakeText(rest)) …
//   const auto [worker, workers] = SplitOnce("2 of 4", " of ");
//
// Pure functions.
#ifndef RINGZERO_BASE_TEXTS_H_
#define RINGZERO_BASE_TEXTS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ringzero {

// What is before and behind the first separator; without a separator all of `text`, and "".
inline std::pair<absl::string_view, absl::string_view> SplitOnce(absl::string_view text,
                                                                 absl::string_view separator) {
  return absl::StrSplit(text, absl::MaxSplits(separator, 1));
}

// With a space in place of each end of a line.
inline std::string OneLine(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\n", " "}, {"\r", " "}});
}

inline std::string JoinTexts(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) absl::StrAppend(&all, text.size(), ":", text);
  return all;
}

// Takes the first text off the front of `all`. Nothing, and `all` stays as it is, if `all` has no
// text or its first text is cut short.
inline std::optional<std::string> TakeText(absl::string_view& all) {
  const size_t colon = all.find(':');
  size_t size = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(all.substr(0, colon), &size) ||
      size > all.size() - colon - 1) {
    return std::nullopt;
  }
  std::string text(all.substr(colon + 1, size));
  all.remove_prefix(colon + 1 + size);
  return text;
}

}  // namespace ringzero

#endif  // RINGZERO_BASE_TEXTS_H_
