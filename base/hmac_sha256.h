// HmacSha256 (RFC 2104): proves that whoever made it knows a key, without telling the key.
//
//   std::array<uint8_t, 32> proof = HmacSha256(secret, "hello 1 to 2");
//   if (SameDigest(proof, theirs)) ...
//
// Pure functions.
#ifndef RINGZERO_BASE_HMAC_SHA256_H_
#define RINGZERO_BASE_HMAC_SHA256_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace ringzero {

using Digest = std::array<uint8_t, 32>;

Digest HmacSha256(std::string_view key, std::string_view message);

// In a time that does not depend on where they differ.
bool SameDigest(const Digest& a, const Digest& b);

}  // namespace ringzero

#endif  // RINGZERO_BASE_HMAC_SHA256_H_
