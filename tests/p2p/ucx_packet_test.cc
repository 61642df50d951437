// A header comes out as it went in, whichever of its three forms it travelled in.
#include "p2p/ucx/ucx_packet.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace ringzero {
namespace {

constexpr size_t kPayload = 64;
constexpr UcxPair kPair = {.secret = "a secret",
                           .from = 3,
                           .to = 4,
                           .nonce_of_from = "0123456789abcdef",
                           .nonce_of_to = "fedcba9876543210"};

UcxHeader Parcel() {
  UcxHeader header;
  header.pass = PassFor(kPair);
  header.tag = 0x0123456789abcdef;
  header.bytes = kPayload;
  header.number = 0xfedc;
  header.from = 0xffff;
  header.type = UcxType::kParcel;
  header.kind = kMaxMessageKinds - 1;
  header.ownership = 1;
  return header;
}

void ExpectSame(const UcxHeader& got, const UcxHeader& sent) {
  EXPECT_EQ(got.pass, sent.pass);
  EXPECT_EQ(got.tag, sent.tag);
  EXPECT_EQ(got.bytes, sent.bytes);
  EXPECT_EQ(got.number, sent.number);
  EXPECT_EQ(got.from, sent.from);
  EXPECT_EQ(got.type, sent.type);
  EXPECT_EQ(got.kind, sent.kind);
  EXPECT_EQ(got.ownership, sent.ownership);
  EXPECT_EQ(got.code, sent.code);
  EXPECT_EQ(got.credits, sent.credits);
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

TEST(UcxPacket, AParcelWithItsPayloadHasAShortHeader) {
  UcxHeader header = Parcel();
  for (const int kind : {0, 7, kMaxMessageKinds - 1}) {
    for (const uint8_t credit : {uint8_t{0}, uint8_t{1}, kUcxMostShortCredit}) {
      header.credits = {};
      header.credits[kind] = credit;
      UcxShortHeader memory;
      const std::span<const std::byte> sent = Pack(header, true, memory);
      EXPECT_EQ(sent.size(), sizeof(UcxShortHeader));
      const std::optional<UcxHeader> got = Unpack(sent, kPayload);
      ASSERT_TRUE(got.has_value());
      ExpectSame(*got, header);
    }
  }
}

TEST(UcxPacket, WhatTheShortHeaderHasNoRoomForTravelsWhole) {
  std::vector<UcxHeader> headers(4, Parcel());
  headers[0].credits[2] = 1;
  headers[0].credits[5] = 1;
  headers[1].credits[0] = kUcxMostShortCredit + 1;
  headers[2].credits.fill(255);
  headers[3].type = UcxType::kAbort;
  headers[3].code = -7;
  for (const UcxHeader& header : headers) {
    UcxShortHeader memory;
    const std::span<const std::byte> sent = Pack(header, header.type == UcxType::kParcel, memory);
    EXPECT_EQ(sent.size(), sizeof(UcxHeader));
    const std::optional<UcxHeader> got = Unpack(sent, kPayload);
    ASSERT_TRUE(got.has_value());
    ExpectSame(*got, header);
  }
}

TEST(UcxPacket, AShortNumberIsTheFirstSuchOneFromTheDelivered) {
  for (const uint32_t delivered : {0u, 1u, 0xfffeu, 0xffffu, 0x10000u, 0x12345u, 0xfffffffeu}) {
    for (const uint32_t ahead : {0u, 1u, 2u, 0x8000u, kUcxMostSlots - 1}) {
      const uint32_t number = delivered + ahead;
      EXPECT_EQ(WholeNumber(number & 0xffff, delivered), number) << delivered << " + " << ahead;
    }
  }
}

TEST(UcxPacket, AMessageFromBlockToBlockHasAShortHeader) {
  UcxHeader sent = Parcel();
  sent.type = UcxType::kBlock;
  sent.ownership = 0;
  UcxBlockHeader memory;
  const std::span<const std::byte> bytes = PackBlock(sent, memory);
  EXPECT_EQ(bytes.size(), sizeof(UcxBlockHeader));
  const std::optional<UcxHeader> got = Unpack(bytes, kPayload);
  ASSERT_TRUE(got.has_value());
  ExpectSame(*got, sent);
}

TEST(UcxPacket, OnlyTheThreeSizesAreHeaders) {
  const std::string bytes(sizeof(UcxHeader) + 400, 'x');
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const bool taken = size == sizeof(UcxShortHeader) || size == sizeof(UcxBlockHeader) ||
                       size >= sizeof(UcxHeader);
    EXPECT_EQ(Unpack(std::as_bytes(std::span(bytes.data(), size)), 0).has_value(), taken) << size;
  }
}

// Whatever the bytes, the kinds that come out index the arrays of kinds.
TEST(UcxPacket, NoShortHeaderLeadsOutside) {
  std::mt19937 random(1);
  for (int i = 0; i < 10000; ++i) {
    UcxShortHeader bytes;
    for (std::byte& each : bytes) each = static_cast<std::byte>(random());
    const std::optional<UcxHeader> got = Unpack(bytes, kPayload);
    ASSERT_TRUE(got.has_value());
    EXPECT_LT(got->kind, kMaxMessageKinds);
    EXPECT_EQ(got->pass & 0xffff, 0u);
    EXPECT_LE(got->number, kUcxMostSlots);
  }
}

}  // namespace
}  // namespace ringzero
