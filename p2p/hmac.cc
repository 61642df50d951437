// Two passes of SHA-256.
#include "p2p/hmac.h"

#include <algorithm>
#include <span>

#include "base/sha256.h"

namespace ringzero {

Mac HmacSha256(const std::string& secret, const std::string& text) {
  constexpr size_t kBlockBytes = 64;
  std::array<uint8_t, kBlockBytes> key = {};
  Sha256 digest;
  if (secret.size() > kBlockBytes) {
    digest.Update(std::as_bytes(std::span(secret)));
    const Mac shorter = digest.Finish();
    std::copy(shorter.begin(), shorter.end(), key.begin());
  } else {
    std::copy(secret.begin(), secret.end(), key.begin());
  }
  std::array<uint8_t, kBlockBytes> inner;
  std::array<uint8_t, kBlockBytes> outer;
  for (size_t i = 0; i < kBlockBytes; ++i) {
    inner[i] = key[i] ^ 0x36;
    outer[i] = key[i] ^ 0x5c;
  }
  digest.Update(std::as_bytes(std::span(inner)));
  digest.Update(std::as_bytes(std::span(text)));
  const Mac inside = digest.Finish();
  digest.Update(std::as_bytes(std::span(outer)));
  digest.Update(std::as_bytes(std::span(inside)));
  return digest.Finish();
}

bool Same(const Mac& a, const Mac& b) {
  uint8_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) different |= a[i] ^ b[i];
  return different == 0;
}

}  // namespace ringzero
