// SHA-256 (FIPS 180-4), HMAC-SHA256 (RFC 2104) and random bytes, by OpenSSL's libcrypto; and a
// checksum, by xxHash.
//
//   Sha256 digest;                                             // a stream of bytes
//   digest.Update(std::as_bytes(std::span(values)));
//   std::string hex = digest.FinishHex();                      // 64 lower-case digits
//   Digest proof = HmacSha256(secret, "hello 1 to 2");         // its maker knows the secret
//   if (SameDigest(proof, theirs)) ...
//   std::string secret = RandomBytes(32);                      // nobody can guess it
//   std::string name = RandomHex(8);                           // 16 digits
#ifndef RINGZERO_BASE_CRYPTO_H_
#define RINGZERO_BASE_CRYPTO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace ringzero {

using Digest = std::array<uint8_t, 32>;

// One thread.
class Sha256 {
 public:
  Sha256();
  // Adds bytes to the end of the message. How the message is cut into calls does not matter.
  void Update(std::span<const std::byte> bytes);
  // The digest of all bytes so far, in hex. Ends the message: afterwards the object is as good as
  // new.
  std::string FinishHex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// The SHA-256 of one text, in hex. Thread-safe, as HmacSha256 and SameDigest are.
std::string Sha256Hex(std::string_view text);

Digest HmacSha256(std::string_view key, std::string_view message);

// Compares in a time that does not depend on where the digests differ.
bool SameDigest(const Digest& a, const Digest& b);

// 64 bits that change with any damage to a run of bytes. XXH3, as fast as memory is read. Not
// against intent. Equal on all machines. Thread-safe.
uint64_t Checksum(std::span<const std::byte> bytes);

// For secrets. Thread-safe.
std::string RandomBytes(size_t bytes);
std::string RandomHex(size_t bytes);

}  // namespace ringzero

#endif  // RINGZERO_BASE_CRYPTO_H_
