// HMAC as RFC 2104 has it, over base/sha256.h.
#include "base/hmac_sha256.h"

#include <cstddef>
#include <span>
#include <string>

#include "base/sha256.h"

namespace ringzero {
namespace {

constexpr size_t kBlockBytes = 64;

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Digest DigestOf(std::string_view first, std::string_view second) {
  Sha256 digest;
  digest.Update(BytesOf(first));
  digest.Update(BytesOf(second));
  return digest.Finish();
}

std::string_view TextOf(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Digest HmacSha256(std::string_view key, std::string_view message) {
  std::string block(kBlockBytes, '\0');
  const Digest short_key = DigestOf(key, "");
  const std::string_view used = key.size() > kBlockBytes ? TextOf(short_key) : key;
  used.copy(block.data(), used.size());
  std::string inner = block, outer = block;
  for (char& each : inner) each ^= 0x36;
  for (char& each : outer) each ^= 0x5c;
  const Digest first = DigestOf(inner, message);
  return DigestOf(outer, TextOf(first));
}

bool SameDigest(const Digest& a, const Digest& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace ringzero
