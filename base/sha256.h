// SHA-256 (FIPS 180-4) of a stream of bytes: digests of parameters and files.
//
//   Sha256 digest;
//   digest.Update(std::as_bytes(std::span(values)));
//   std::string hex = digest.FinishHex();   // 64 lower-case digits
#ifndef RINGZERO_BASE_SHA256_H_
#define RINGZERO_BASE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ringzero {

class Sha256 {
 public:
  // Adds bytes to the end of the message; how they are cut into calls does not matter.
  void Update(std::span<const std::byte> bytes);
  // The digest of all bytes so far. Ends the message: afterwards the object is as good as new.
  std::array<uint8_t, 32> Finish();
  std::string FinishHex();

 private:
  static constexpr std::array<uint32_t, 8> kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                                     0xa54ff53a, 0x510e527f, 0x9b05688c,
                                                     0x1f83d9ab, 0x5be0cd19};
  void Compress(const std::byte* block);

  std::array<uint32_t, 8> state_ = kStart;
  std::array<std::byte, 64> pending_;  // the message's unfinished block
  uint64_t length_ = 0;                // bytes so far
};

}  // namespace ringzero

#endif  // RINGZERO_BASE_SHA256_H_
