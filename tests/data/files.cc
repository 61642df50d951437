// Makes the files that the tests read.
#include "tests/data/files.h"

#include <zlib.h>

#include <fstream>
#include <iterator>

#include "base/check.h"

namespace ringzero::testing {

void WriteFile(const std::string& path, std::span<const uint8_t> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  RZ_CHECK(file.good(), path);
}

Bytes ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  RZ_CHECK(file.good(), path);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

Bytes Gzip(const Bytes& plain) {
  z_stream stream = {};
  RZ_CHECK(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib");
  Bytes packed(deflateBound(&stream, plain.size()));
  stream.next_in = const_cast<uint8_t*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  RZ_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

Bytes BigEndianWords(const std::vector<uint32_t>& numbers, const Bytes& rest) {
  Bytes bytes;
  for (uint32_t number : numbers) {
    for (int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<uint8_t>(number >> shift));
  }
  return bytes + rest;
}

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Bytes ToBytes(const std::string& text) { return Bytes(text.begin(), text.end()); }

std::vector<Bytes> Truncated(const Bytes& whole, size_t least) {
  std::vector<Bytes> all;
  for (size_t length = least; length < whole.size(); ++length) {
    all.emplace_back(whole.begin(), whole.begin() + length);
  }
  return all;
}

std::vector<Bytes> WithABitChanged(const Bytes& whole) {
  std::vector<Bytes> all(8 * whole.size(), whole);
  for (size_t bit = 0; bit < all.size(); ++bit) {
    all[bit][bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  return all;
}

}  // namespace ringzero::testing
