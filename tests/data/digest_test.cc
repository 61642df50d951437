// Known answers of SHA-256 (FIPS 180-4 examples) and HMAC-SHA256 (RFC 4231), and that cutting a
// message into calls changes nothing.
#include "base/digest.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "absl/strings/escaping.h"

namespace ringzero {
namespace {

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
