// What UcxPorts say to each other: a message's header, in its two forms, and the hello.
//
//   UcxHeader header = {.pass = peer.pass_out, .from = 1, .type = UcxType::kGoodbye};
//   UcxShortHeader memory;
//   worker.SendMessage(to, {.header = Pack(header, small, memory), …});
//   std::optional<UcxHeader> same = Unpack(message.header, message.data.size());
//
// Plain values in the byte order of the machine (x86-64 and ARM64 alike are little-endian).
#ifndef RINGZERO_P2P_UCX_UCX_PACKET_H_
#define RINGZERO_P2P_UCX_UCX_PACKET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/crypto.h"

namespace ringzero {

inline constexpr uint32_t kUcxMagic = 0x585a5552;  // "RUZX"
inline constexpr uint32_t kUcxVersion = 7;

// A worker tells these bytes at the rendezvous, in front of its address: random, new in each start.
inline constexpr size_t kUcxNonceBytes = 16;

// Payloads up to here travel behind their header, larger ones are offered and fetched.
inline constexpr size_t kUcxSmallBytes = 4096 + 64;

enum class UcxType : uint8_t {
  kHello = 1,     // data: UcxHello
  kRefusal,       // to a stranger: tag = its hello's nonce, text behind the header
  kBlock,         // a message from block to block: its payload, or the offer of it
  kNote,          // kind, tag = number, code; data: text
  kGoodbye,       // the note after which no message is sent: once all payload has left
  kHeartbeat,     // nothing
  kFarewell,      // the last word; code = 1 after a goodbye, else this worker ends without one
  kFarewellSeen,  // its answer
};

struct UcxHeader {
  uint64_t pass = 0;    // a cookie (PassFor); its low 16 bits are 0
  uint64_t tag = 0;     // of a message's key, or a number
  uint64_t bytes = 0;   // of a message's payload
  uint32_t number = 0;  // of a message in its channel, from 0
  uint16_t from = 0;
  UcxType type = UcxType::kHeartbeat;
  uint8_t kind = 0;  // of a message's key, or of a note
  int32_t code = 0;
  uint32_t unused = 0;
  bool operator==(const UcxHeader&) const = default;
};
static_assert(sizeof(UcxHeader) == 40 && std::is_trivially_copyable_v<UcxHeader>);

// The header of a small message, whose payload is behind it: so short that a message of a few bytes
// is one cache line of UCX's shared memory, and one of 64 bytes is still written into its queue
// directly.
//
//   pass | from: 8 bytes; tag: 8; then from the lowest bit: number 16, kind 8
using UcxShortHeader = std::array<std::byte, 19>;

// `header` as it is sent: itself, or in `memory`; both must outlive the result. `with_payload`: a
// kBlock whose payload is behind it.
inline std::span<const std::byte> Pack(const UcxHeader& header, bool with_payload,
                                       UcxShortHeader& memory) {
  if (!with_payload) return std::as_bytes(std::span(&header, 1));
  const uint64_t pass_and_from = header.pass | header.from;
  const auto number = static_cast<uint16_t>(header.number);
  std::memcpy(memory.data(), &pass_and_from, 8);
  std::memcpy(memory.data() + 8, &header.tag, 8);
  std::memcpy(memory.data() + 16, &number, 2);
  std::memcpy(memory.data() + 18, &header.kind, 1);
  return memory;
}

// The header of a message with so many bytes behind it; of a short one, `number` is modulo 2^16.
// Nothing if it is too short to be one.
inline std::optional<UcxHeader> Unpack(std::span<const std::byte> bytes, size_t payload_bytes) {
  UcxHeader header;
  if (bytes.size() >= sizeof(header)) {
    std::memcpy(&header, bytes.data(), sizeof(header));
    return header;
  }
  if (bytes.size() != sizeof(UcxShortHeader)) return std::nullopt;
  uint64_t pass_and_from = 0;
  uint16_t number = 0;
  std::memcpy(&pass_and_from, bytes.data(), 8);
  std::memcpy(&header.tag, bytes.data() + 8, 8);
  std::memcpy(&number, bytes.data() + 16, 2);
  std::memcpy(&header.kind, bytes.data() + 18, 1);
  header.pass = pass_and_from & ~uint64_t{0xffff};
  header.from = static_cast<uint16_t>(pass_and_from);
  header.number = number;
  header.bytes = payload_bytes;
  header.type = UcxType::kBlock;
  return header;
}

// The number of a message whose short header says `low`: the first such one from `first` on.
inline uint32_t WholeNumber(uint32_t low, uint32_t first) {
  return first + ((low - first) & 0xffff);
}

struct UcxHello {
  uint32_t magic = kUcxMagic;
  uint32_t version = kUcxVersion;
  int32_t from = 0;
  int32_t workers = 0;
  uint64_t nonce = 0;  // whoever refuses shows that it has read this hello
  Digest proof = {};
  uint64_t peer_timeout_ms = 0;
  uint32_t small_bytes = kUcxSmallBytes;
};
static_assert(std::is_trivially_copyable_v<UcxHello>);

// Two workers, one of whom speaks to the other, and what proves it. The nonces are of this start
// alone: what was said in another start proves nothing.
struct UcxPair {
  std::string_view secret;  // the seat's, which the start's name is part of
  int from = 0;
  int to = 0;
  std::string_view nonce_of_from, nonce_of_to;  // as each has told it
};

inline Digest UcxMac(const std::string& purpose, const UcxPair& pair) {
  std::string text = absl::StrCat("ringzero ucx ", purpose, " ", pair.from, " to ", pair.to, " ");
  text.append(pair.nonce_of_from).append(pair.nonce_of_to);
  return HmacSha256(pair.secret, text);
}

// The proof of a hello. The same in every version, so that versions can be told apart safely.
inline Digest HelloProof(const UcxPair& pair) { return UcxMac("hello", pair); }

// What stands in every header from one worker to another. A cookie: nobody can guess it, whoever
// reads the traffic has it, and nothing behind it is sealed by it.
inline uint64_t PassFor(const UcxPair& pair) {
  const Digest digest = UcxMac(absl::StrCat(kUcxVersion, " pass"), pair);
  uint64_t pass = 0;
  for (size_t i = 0; i < sizeof(pass); ++i) pass = pass << 8 | digest[i];
  return pass & ~uint64_t{0xffff};
}

}  // namespace ringzero

#endif  // RINGZERO_P2P_UCX_UCX_PACKET_H_
