// Known answers of SHA-256 (FIPS 180-4 examples), and that cutting a message into calls changes
// nothing.
#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace ringzero {
namespace {

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string Digest(const std::string& text) {
  Sha256 digest;
  digest.Update(AsBytes(text));
  return digest.FinishHex();
}

TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(Digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Digest(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EveryCutOfEveryLengthGivesTheSame) {
  std::string text;
  for (int length = 0; length <= 130; ++length, text += static_cast<char>('a' + length % 26)) {
    const std::string whole = Digest(text);
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
  digest.Finish();
  digest.Update(AsBytes("abc"));
  EXPECT_EQ(digest.FinishHex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace ringzero
