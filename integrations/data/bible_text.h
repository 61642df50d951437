// The data file of the Bible Retrieval System: how Debian's package bible-kjv-text keeps the King
// James Bible (/usr/lib/bible.data).
//
// All numbers are big-endian words of 32 bits:
//     0  "EC02" and a title, filled with zeros
//    84  bytes of text per window (the last one may have fewer)
//    88  number of windows
//    92  where each window begins in the file, and where the last one ends
// A window is the output of compress(1) without its first three bytes 1f 9d 90: LZW with codes of 9
// to 16 bits, least significant bit first, 256 for "clear".
#ifndef RINGZERO_INTEGRATIONS_DATA_BIBLE_TEXT_H_
#define RINGZERO_INTEGRATIONS_DATA_BIBLE_TEXT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ringzero {

bool IsBibleData(std::span<const uint8_t> file);

// The whole text, as stored: a line of title, then a line per verse ("Ge1:1 In the beginning …").
// InvalidArgument names `path`: truncated, windows out of range, codes that mean nothing.
absl::StatusOr<std::vector<uint8_t>> DecodeBibleData(std::span<const uint8_t> file,
                                                     const std::string& path);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_DATA_BIBLE_TEXT_H_
