// HMAC-SHA256 against the test cases of RFC 4231.
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "base/hmac_sha256.h"

namespace ringzero {
namespace {

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
