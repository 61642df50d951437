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
inline constexpr uint32_t kShmVersion = 7;
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

// A word of a ring (p2p/shm/shm_rings.h) begins with a token. The text of an abort, a question or
// an answer, or a small payload (`bytes` of it, at most kMaxTextBytes) fills the words that follow,
// the last one with zeros.
struct ShmToken {
  enum class Type : uint8_t {
    kAbort = 1,
    kGoodbye,
    kQuestion,
    kAnswer,
    kWord,
    kBlock,  // a payload that lies in a block of the sender
    kSmall,  // a payload that follows
    kTaken,  // of a kBlock: it may be written again
  };
  Type type = Type::kWord;
  uint8_t kind = 0;     // of a message
  uint8_t use = 0;      // kBlock: MemoryUse, in which of the sender's arenas the block lies
  uint32_t number = 0;  // kTaken: of the message in its channel
  int32_t code = 0;     // kAbort: absl::StatusCode
  uint64_t tag = 0;     // kQuestion, kAnswer: the question's number
  uint64_t offset = 0;  // kBlock
  uint64_t bytes = 0;
};
static_assert(sizeof(ShmToken) == 40);

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_PACKET_H_
