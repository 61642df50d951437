// What the workers of one host say to each other, but for payload, and the sockets that carry its
// beginning.
//
//   SendResult sent = SendPacket(socket, {bytes, size}, {memory_file});
//   ReceiveResult got = ReceivePacket(socket, buffer);   // got.kind == kPacket: got.bytes of it
//
// Workers that were not forked together prove first who they are, each by a MAC over both nonces
// and both numbers, for which it must know the job's secret:
//
//   connects: Opening{from, to, nonce}   ->
//                                        <-  Challenge{nonce, mac}
//             mac                        ->
//                                        <-  Welcome; from the host's lowest worker: descriptors
//
// Then each sends a ShmHello, and ShmTokens in rings. Both ends run on one machine and are checked
// for one version, so all of these are plain structs. Functions without state.
#ifndef RINGZERO_P2P_SHM_SHM_PACKET_H_
#define RINGZERO_P2P_SHM_SHM_PACKET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/crypto.h"
#include "base/unique_fd.h"
#include "p2p/transport.h"

namespace ringzero {

// Packets over a Unix SOCK_SEQPACKET socket, with descriptors where needed; never blocks, never
// signals.
inline constexpr int kMaxDescriptors = 4;  // in one packet

enum class SendResult { kSent, kFull, kBroken };
SendResult SendPacket(int socket, std::span<const std::byte> packet,
                      std::span<const int> descriptors = {});

struct ReceiveResult {
  enum class Kind { kPacket, kNothing, kClosed };
  Kind kind = Kind::kNothing;
  size_t bytes = 0;  // a longer packet is cut off at the buffer's size
  std::vector<UniqueFd> descriptors = {};
};
ReceiveResult ReceivePacket(int socket, std::span<std::byte> buffer);

using Nonce = std::array<uint8_t, 32>;

struct Opening {
  static constexpr uint32_t kMagic = 0x525A4F32;  // "RZO2": a change of the protocol changes it
  uint32_t magic = kMagic;
  int32_t from = 0;
  int32_t to = 0;
  Nonce nonce = {};
};

struct Challenge {
  Nonce nonce = {};
  Digest mac = {};
};

struct Welcome {
  static constexpr uint32_t kMagic = 0x525A5731;  // "RZW1"
  uint32_t magic = kMagic;
};

// What is proved of a connection from worker `from` to worker `to`.
enum class Prover { kConnects, kAccepts };
inline Digest ProofOf(Prover prover, const std::string& secret, const Opening& opening,
                      const Nonce& challenge) {
  std::string text = absl::StrCat("ringzero shm ", prover == Prover::kConnects ? "from " : "to ",
                                  opening.from, " ", opening.to, " ");
  text.append(opening.nonce.begin(), opening.nonce.end());
  text.append(challenge.begin(), challenge.end());
  return HmacSha256(secret, text);
}

inline constexpr uint32_t kShmMagic = 0x525A5348;  // "RZSH"
inline constexpr uint32_t kShmVersion = 8;
// A payload up to here is written into the ring, behind its token.
inline constexpr size_t kShmSmallBytes = 448;

// The first packet on a connection, with two descriptors: the memory of the parameters and of the
// sums.
struct ShmHello {
  uint32_t magic = kShmMagic;
  uint32_t version = kShmVersion;
  int32_t worker = 0;
  int32_t workers = 0;
  uint64_t arena_bytes[kMemoryUses] = {};
};

// A word of a ring (shm_rings.h) begins with a token. The text of a note, or a small payload
// (`bytes` of it, at most kMaxTextBytes) fills the words that follow, the last one with zeros.
struct ShmToken {
  enum class Type : uint8_t {
    kNote = 1,
    kWord,
    kBlock,  // a payload that lies in a block of the sender
    kSmall,  // a payload that follows
    kTaken,  // of a kBlock: it may be written again
  };
  Type type = Type::kWord;
  uint8_t kind = 0;     // of a message, or of a note
  uint8_t use = 0;      // kBlock: MemoryUse, in which of the sender's arenas the block lies
  uint32_t number = 0;  // kTaken: of the message in its channel
  int32_t code = 0;     // kNote: absl::StatusCode
  uint64_t tag = 0;     // of a message; kNote: its number
  uint64_t offset = 0;  // kBlock
  uint64_t bytes = 0;
};
static_assert(sizeof(ShmToken) == 40);

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_PACKET_H_
