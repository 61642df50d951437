// What UcxPorts say to each other: one header for every active message, and the hello.
//
//   UcxHeader header = {.pass = peer.pass_out, .from = 1, .type = UcxType::kGoodbye};
//   header.credits[kind] = 2;                     // any message may carry credit
//
// Plain values in the byte order of the machine (x86-64 and ARM64 alike are little-endian).
#ifndef RINGZERO_P2P_UCX_UCX_PACKET_H_
#define RINGZERO_P2P_UCX_UCX_PACKET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/hmac_sha256.h"
#include "base/ids.h"
#include "p2p/transport.h"

namespace ringzero {

inline constexpr uint32_t kUcxMagic = 0x585a5552;  // "RUZX"
inline constexpr uint32_t kUcxVersion = 2;

// Payloads up to here travel behind their header, larger ones in a tagged message of their own.
inline constexpr size_t kUcxSmallBytes = 4096 + 64;

enum class UcxType : uint8_t {
  kHello = 1,     // data: UcxHello
  kRefusal,       // to a stranger: tag = its hello's nonce, text behind the header
  kParcel,        // a message, or what is announced of it
  kCredits,       // nothing but header.credits
  kAbort,         // data: text; code
  kGoodbye,       // nothing more will be sent
  kQuestion,      // tag = number, data: text
  kAnswer,        // likewise
  kHeartbeat,     // nothing
  kFarewell,      // the last word; code = 1 after a goodbye, else this worker ends without one
  kFarewellSeen,  // its answer
};

struct UcxHeader {
  uint64_t pass = 0;    // only workers of this job can know it (PassFor)
  uint64_t tag = 0;     // of a message's key, or a number
  uint64_t bytes = 0;   // of a message's payload
  uint32_t number = 0;  // of a message in its channel, from 0
  uint16_t from = 0;
  UcxType type = UcxType::kHeartbeat;
  uint8_t kind = 0;
  uint8_t ownership = 0;
  std::array<uint8_t, 3> unused = {};
  int32_t code = 0;
  std::array<uint8_t, kMaxMessageKinds> credits = {};  // slots of the channels to `from`, by kind
};
static_assert(sizeof(UcxHeader) == 56 && std::is_trivially_copyable_v<UcxHeader>);

struct UcxHello {
  uint32_t magic = kUcxMagic;
  uint32_t version = kUcxVersion;
  int32_t from = 0;
  int32_t workers = 0;
  uint64_t nonce = 0;  // whoever refuses shows that it has read this hello
  Digest proof = {};
  uint64_t peer_timeout_ms = 0;
  uint32_t small_bytes = kUcxSmallBytes;
  std::array<int32_t, kMaxMessageKinds> slots = {};
};
static_assert(std::is_trivially_copyable_v<UcxHello>);

// The proof of a hello. The same in every version, so that versions can be told apart safely.
inline Digest HelloProof(std::string_view secret, int from, int to) {
  return HmacSha256(secret, absl::StrCat("ringzero ucx hello ", from, " to ", to));
}

// What stands in every header from one worker to another.
inline uint64_t PassFor(std::string_view secret, int from, int to) {
  const Digest digest =
      HmacSha256(secret, absl::StrCat("ringzero ucx ", kUcxVersion, " pass ", from, " to ", to));
  uint64_t pass = 0;
  for (size_t i = 0; i < sizeof(pass); ++i) pass = pass << 8 | digest[i];
  return pass;
}

// Tag of the UCX message with the payload of the `number`-th message of a channel; `pass`: from its
// sender to its receiver, so that nobody else's bytes are taken for it.
inline uint64_t PayloadTag(uint64_t pass, uint8_t kind, uint32_t number) {
  return pass ^ (uint64_t{kind} << 40 | number);
}

}  // namespace ringzero

#endif  // RINGZERO_P2P_UCX_UCX_PACKET_H_
