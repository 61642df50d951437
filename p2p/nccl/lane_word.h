// LaneWord: what the ends of lanes say to each other, as the text of a question.
//
//   std::string text = ToText(LaneWord{.type = LaneWord::Type::kAnnounce, .kind = 3, …});
//   absl::StatusOr<LaneWord> word = ParseLaneWord(text);      // whatever came in, no crash
//
// Both ends are checked for one version when they meet, so it is the plain bytes of a struct.
#ifndef RINGZERO_P2P_NCCL_LANE_WORD_H_
#define RINGZERO_P2P_NCCL_LANE_WORD_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "p2p/transport.h"
#include "p2p/wire.h"

namespace ringzero {

struct LaneWord {
  enum class Type : uint8_t {
    kAnnounce = 1,  // its sender has a payload and credit for it
    kGo,            // its receive is started: send it
    kCredit,        // a slot of the channel is free again
    kGoodbye,
    kOffer,  // a payload waits in its sender's block
  };
  Type type = Type::kAnnounce;
  uint8_t kind = 0;
  uint8_t ownership = 0;  // Ownership
  uint8_t unused = 0;
  uint32_t block = 0;  // kOffer: the message's number in its channel
  uint64_t tag = 0;
  uint64_t bytes = 0;
  uint64_t number = 0;  // of the announcements between these two, counted by the sender
};
static_assert(sizeof(LaneWord) == 32);

// The first word, and the answer to it: whoever came too late to hear the other's gets it so.
struct LaneHello {
  int32_t slots[kMaxMessageKinds] = {};  // the sender's, for what it receives
};

// What no question of a user may begin with.
inline constexpr std::string_view kLaneWordMark = "\x01ringzero lane 1\x01";

// The answer to a question that came after our goodbye.
inline constexpr std::string_view kLaneGone = "\x01ringzero lane gone\x01";

inline std::string ToText(const LaneWord& word) {
  std::string text(kLaneWordMark);
  text.append(reinterpret_cast<const char*>(&word), sizeof(word));
  return text;
}

inline std::string ToText(const LaneHello& hello) {
  std::string text(kLaneWordMark);
  text.append(reinterpret_cast<const char*>(&hello), sizeof(hello));
  return text;
}

inline bool IsLaneHello(std::string_view text) {
  return text.starts_with(kLaneWordMark) && text.size() == kLaneWordMark.size() + sizeof(LaneHello);
}

inline absl::StatusOr<LaneHello> ParseLaneHello(std::string_view text) {
  LaneHello hello;
  std::memcpy(&hello, text.data() + kLaneWordMark.size(), sizeof(hello));
  for (const int32_t slots : hello.slots) {
    if (slots < 1) return Internal("a lane's hello has ", slots, " slots");
  }
  return hello;
}

inline bool IsLaneWord(std::string_view text) { return text.starts_with(kLaneWordMark); }

inline absl::StatusOr<LaneWord> ParseLaneWord(std::string_view text) {
  if (text.size() != kLaneWordMark.size() + sizeof(LaneWord)) {
    return Internal("a lane's word has ", text.size(), " bytes");
  }
  LaneWord word;
  std::memcpy(&word, text.data() + kLaneWordMark.size(), sizeof(word));
  constexpr uint64_t kMostBytes = uint64_t{1} << 48;  // no sum of sizes overflows
  if (word.bytes > kMostBytes || word.type < LaneWord::Type::kAnnounce ||
      word.type > LaneWord::Type::kOffer || word.kind >= kMaxMessageKinds ||
      word.ownership > static_cast<uint8_t>(Ownership::kOwned)) {
    return absl::InternalError("a lane's word means nothing");
  }
  return word;
}

}  // namespace ringzero

#endif  // RINGZERO_P2P_NCCL_LANE_WORD_H_
