// What the workers of one host say to each other: a packet at first, then words in rings; no
// payload.
//
// Both ends run on one machine and are checked for one version, so these are plain structs.
#ifndef RINGZERO_P2P_SHM_SHM_PACKET_H_
#define RINGZERO_P2P_SHM_SHM_PACKET_H_

#include <cstddef>
#include <cstdint>

#include "p2p/transport.h"

namespace ringzero {

inline constexpr uint32_t kShmMagic = 0x525A5348;  // "RZSH"
inline constexpr uint32_t kShmVersion = 6;
// A payload up to here is written into the ring, behind its token.
inline constexpr size_t kShmSmallBytes = 448;
inline constexpr int kMemoryUses = 2;

// The first packet on a connection, with four descriptors: data and holder counts of the
// parameters, then of the sums.
struct ShmHello {
  uint32_t magic = kShmMagic;
  uint32_t version = kShmVersion;
  int32_t worker = 0;
  int32_t workers = 0;
  uint64_t arena_bytes[kMemoryUses] = {};
  int32_t slots[kMaxMessageKinds] = {};  // the sender's, for what it receives
};

// A word of a ring (p2p/shm/shm_rings.h) begins with a token. The text of an abort, a question or
// an answer, or a small payload (`bytes` of it, at most kMaxTextBytes) fills the words that follow,
// the last one with zeros.
struct ShmToken {
  enum class Type : uint8_t {
    kMessage = 1,
    kCredit,
    kAbort,
    kGoodbye,
    kQuestion,
    kAnswer,
    kWord,
    kBlock,  // a payload that lies in a block of the sender
    kSmall,  // a payload that follows
    kTaken,  // of a kBlock: it may be written again
  };
  Type type = Type::kMessage;
  uint8_t kind = 0;       // of a message or a credit
  uint8_t ownership = 0;  // Ownership
  uint8_t use = 0;        // MemoryUse: in which arena the block lies
  int32_t origin = 0;     // whose arena
  uint32_t block = 0;     // kMessage: its index in the arena. kTaken: the message's number
  int32_t code = 0;       // kAbort: absl::StatusCode
  uint64_t tag = 0;       // kQuestion, kAnswer: the question's number
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(ShmToken) == 40);

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_PACKET_H_
