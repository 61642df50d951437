// Bytes and characters, for the reader of HJSON.
//
//   FindBrokenUtf8("\xff");   // 0
#ifndef RINGZERO_ZERO_CONFIG_HJSON_TEXT_H_
#define RINGZERO_ZERO_CONFIG_HJSON_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace ringzero {

// Where the first byte stands that no UTF-8 character explains, or npos.
size_t FindBrokenUtf8(absl::string_view text);

// Appends a character by its number; surrogates are the caller's business.
void AppendUtf8(uint32_t point, std::string& out);

// "-1.5e3", exactly as JSON writes numbers.
bool IsJsonNumber(absl::string_view text);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_HJSON_TEXT_H_
