// A header comes out as it went in, whichever of its two forms it travelled in.
#include "p2p/ucx/ucx_packet.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "p2p/transport.h"

namespace ringzero {
namespace {

constexpr size_t kPayload = 64;
constexpr UcxPair kPair = {.secret = "a secret",
                           .from = 3,
                           .to = 4,
                           .nonce_of_from = "0123456789abcdef",
                           .nonce_of_to = "fedcba9876543210"};

UcxHeader Block() {
  UcxHeader header;
  header.pass = PassFor(kPair);
  header.tag = 0x0123456789abcdef;
  header.bytes = kPayload;
  header.number = 0xfedc;
  header.from = 0xffff;
  header.type = UcxType::kBlock;
  header.kind = kMaxMessageKinds - 1;
  return header;
}

// What was said in another start, to another worker or by another is no proof.
TEST(UcxPacket, ProofAndPassAreOfOnePairInOneStart) {
  std::vector<UcxPair> others(5, kPair);
  others[0].secret = "of another start";
  others[1].from = 5;
  others[2].to = 5;
  others[3].nonce_of_from = "another nonce 16";
  others[4].nonce_of_to = "another nonce 16";
  for (const UcxPair& other : others) {
    EXPECT_FALSE(SameDigest(HelloProof(other), HelloProof(kPair))) << &other - others.data();
    EXPECT_NE(PassFor(other), PassFor(kPair)) << &other - others.data();
  }
}

TEST(UcxPacket, AMessageWithItsPayloadHasAShortHeader) {
  const UcxHeader sent = Block();
  UcxShortHeader memory;
  const std::span<const std::byte> bytes = Pack(sent, true, memory);
  EXPECT_EQ(bytes.size(), sizeof(UcxShortHeader));
  const std::optional<UcxHeader> got = Unpack(bytes, kPayload);
  EXPECT_TRUE(got == sent);
}

TEST(UcxPacket, AllElseTravelsWhole) {
  UcxHeader sent = Block();
  sent.type = UcxType::kNote;
  sent.code = -7;
  UcxShortHeader memory;
  const std::optional<UcxHeader> got = Unpack(Pack(sent, false, memory), kPayload);
  EXPECT_TRUE(got == sent);
}

TEST(UcxPacket, AShortNumberIsTheFirstSuchOneFromThere) {
  for (const uint32_t first : {0u, 1u, 0xfffeu, 0xffffu, 0x10000u, 0x12345u, 0xfffffffeu}) {
    for (const uint32_t ahead : {0u, 1u, 2u, 0x8000u, 0xfffeu}) {
      const uint32_t number = first + ahead;
      EXPECT_EQ(WholeNumber(number & 0xffff, first), number) << first << " + " << ahead;
    }
  }
}

TEST(UcxPacket, OnlyTheTwoSizesAreHeaders) {
  const std::string bytes(sizeof(UcxHeader) + 400, 'x');
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const bool taken = size == sizeof(UcxShortHeader) || size >= sizeof(UcxHeader);
    EXPECT_EQ(Unpack(std::as_bytes(std::span(bytes.data(), size)), 0).has_value(), taken) << size;
  }
}

}  // namespace
}  // namespace ringzero
