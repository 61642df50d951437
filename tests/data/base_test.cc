// Known answers of the counter-based generator, the hashes, SHA-256 (FIPS 180-4 examples) and HMAC
// (RFC 4231).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <span>
#include <string>

#include "absl/strings/escaping.h"
#include "base/crypto.h"
#include "base/philox.h"

namespace ringzero {
namespace {

using ::testing::ElementsAre;

// From Random123's kat_vectors: philox4x32, 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, 0),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Philox4x32({~0u, ~0u, ~0u, ~0u}, ~uint64_t{0}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0'a4093822),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Philox, PlacesIndexAndStreamInTheCounter) {
  EXPECT_EQ(PhiloxAt(7, 0x0000000400000003, 0x0000000200000001), Philox4x32({1, 2, 3, 4}, 7));
  static_assert(PhiloxAt(1, 2, 3) == PhiloxAt(1, 2, 3));  // usable in constants
}

TEST(Hashes, KnownAnswers) {
  EXPECT_EQ(SplitMix64(0), 0xe220a8397b1dcdafu);  // the reference's first two outputs of seed 0
  EXPECT_EQ(SplitMix64(0x9E3779B97F4A7C15), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(HashName(""), 0xcbf29ce484222325u);
  EXPECT_EQ(HashName("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(HashName("foobar"), 0x85944171f73967e8u);
}

TEST(Hashes, MixedKeysDependOnOrderAndCount) {
  const std::set<uint64_t> keys = {MixKeys({1, 2}),    MixKeys({2, 1}), MixKeys({1, 2, 0}),
                                   MixKeys({0, 1, 2}), MixKeys({1}),    MixKeys({0})};
  EXPECT_EQ(keys.size(), 6u);
}

TEST(UniformFloat, LiesInTheHalfOpenIntervalWithTheRightMoments) {
  EXPECT_EQ(UniformFloat(0), 0.0f);
  EXPECT_LT(UniformFloat(~0u), 1.0f);
  double sum = 0, squares = 0;
  constexpr int kBlocks = 100000;
  for (int i = 0; i < kBlocks; ++i) {
    for (uint32_t bits : PhiloxAt(5, 0, i)) {
      const double u = UniformFloat(bits) - 0.5;
      sum += u;
      squares += u * u;
    }
  }
  EXPECT_NEAR(sum / (4 * kBlocks), 0, 4 * std::sqrt(1 / 12.0 / (4 * kBlocks)));
  EXPECT_NEAR(squares / (4 * kBlocks), 1 / 12.0, 1e-3);
}

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EveryCutOfEveryLengthGivesTheSame) {
  std::string text;
  for (int length = 0; length <= 130; ++length, text += static_cast<char>('a' + length % 26)) {
    const std::string whole = Sha256Hex(text);
    for (int cut = 0; cut <= length; ++cut) {
      Sha256 digest;
      digest.Update(AsBytes(text).first(cut));
      digest.Update(AsBytes(text).subspan(cut));
      EXPECT_EQ(digest.FinishHex(), whole) << length << " cut at " << cut;
    }
  }
}

TEST(Sha256, IsAsGoodAsNewAfterFinish) {
  Sha256 digest;
  digest.Update(AsBytes("something else"));
  digest.FinishHex();
  digest.Update(AsBytes("abc"));
  EXPECT_EQ(digest.FinishHex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

std::string Hex(const Digest& mac) {
  return absl::BytesToHexString(std::string(mac.begin(), mac.end()));
}

TEST(Hmac, AgreesWithTheStandard) {
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  // A key longer than a block.
  EXPECT_EQ(Hex(HmacSha256(std::string(131, '\xaa'),
                           "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  // Python's hmac: no key, no message.
  EXPECT_EQ(Hex(HmacSha256({}, {})),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(Hmac, ADifferenceAnywhereIsOne) {
  const Digest mac = HmacSha256("secret", "text");
  EXPECT_TRUE(SameDigest(mac, HmacSha256("secret", "text")));
  for (size_t i = 0; i < mac.size(); ++i) {
    Digest other = mac;
    other[i] ^= 1;
    EXPECT_FALSE(SameDigest(mac, other));
  }
}

}  // namespace
}  // namespace ringzero
