// Files for tests of the readers.
#ifndef RINGZERO_TESTS_DATA_FILES_H_
#define RINGZERO_TESTS_DATA_FILES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/p2p/temporary_folder.h"

namespace ringzero::testing {

using Bytes = std::vector<uint8_t>;

void WriteFile(const std::string& path, std::span<const uint8_t> bytes);
Bytes ReadFile(const std::string& path);
// One gzip member.
Bytes Gzip(const Bytes& plain);
// `numbers` as big-endian words of 32 bits, then `rest`.
Bytes BigEndianWords(const std::vector<uint32_t>& numbers, const Bytes& rest);
Bytes operator+(Bytes a, const Bytes& b);
Bytes ToBytes(const std::string& text);
// All that `whole` begins with, from `least` bytes on.
std::vector<Bytes> Truncated(const Bytes& whole, size_t least = 0);
// `whole`, one of its bits changed: each in turn.
std::vector<Bytes> WithABitChanged(const Bytes& whole);

}  // namespace ringzero::testing

#endif  // RINGZERO_TESTS_DATA_FILES_H_
