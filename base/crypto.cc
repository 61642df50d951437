// libcrypto fails only without memory, in a build that has no SHA-256, or where the system has no
// random bytes.
#include "base/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "absl/strings/escaping.h"
#include "base/check.h"

namespace ringzero {
namespace {

// Never null: some versions of libcrypto refuse a null pointer.
const unsigned char* BytesOf(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.empty() ? "" : text.data());
}

void Begin(EVP_MD_CTX* context) {
  RZ_CHECK(EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1, "libcrypto has no SHA-256");
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) { Begin(context_.get()); }

void Sha256::Update(std::span<const std::byte> bytes) {
  RZ_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "SHA-256");
}

std::string Sha256::FinishHex() {
  Digest digest;
  RZ_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1, "SHA-256");
  Begin(context_.get());
  return absl::BytesToHexString(std::string(digest.begin(), digest.end()));
}

std::string Sha256Hex(std::string_view text) {
  Sha256 digest;
  digest.Update(std::as_bytes(std::span(text.data(), text.size())));
  return digest.FinishHex();
}

Digest HmacSha256(std::string_view key, std::string_view message) {
  Digest digest;
  const bool made = HMAC(EVP_sha256(), BytesOf(key), static_cast<int>(key.size()), BytesOf(message),
                         message.size(), digest.data(), nullptr) != nullptr;
  RZ_CHECK(made, "HMAC-SHA256");
  return digest;
}

bool SameDigest(const Digest& a, const Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string RandomBytes(size_t bytes) {
  std::string random(bytes, '\0');
  auto* const memory = reinterpret_cast<unsigned char*>(random.data());
  RZ_CHECK(RAND_bytes(memory, static_cast<int>(bytes)) == 1, "libcrypto has no random bytes");
  return random;
}

std::string RandomHex(size_t bytes) { return absl::BytesToHexString(RandomBytes(bytes)); }

}  // namespace ringzero
