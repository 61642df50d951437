// LaneWord: what the ends of lanes say to each other, as the text of a question.
//
//   std::string text = ToText(LaneWord{.type = LaneWord::Type::kOffer, .kind = 3, …});
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

namespace ringzero {

struct LaneWord {
  enum class Type : uint8_t {
    kOffer = 1,  // a payload waits in its sender's block
    kGo,         // its receive is started: send it
    kGoodbye,
  };
  Type type = Type::kOffer;
  uint8_t kind = 0;
  uint16_t unused = 0;
  uint32_t block = 0;  // kOffer: the message's number in its channel
  uint64_t tag = 0;
  uint64_t bytes = 0;
  uint64_t number = 0;  // of the offers between these two, counted by the sender
};
static_assert(sizeof(LaneWord) == 32);

// What no question of a user may begin with.
inline constexpr std::string_view kLaneWordMark = "\x01ringzero lane 2\x01";

// The first word, and the answer to it: whoever came too late to hear the other's gets it so.
inline constexpr std::string_view kLaneHello = "\x01ringzero lane 2\x01hello";

// The answer to a question that came after our goodbye.
inline constexpr std::string_view kLaneGone = "\x01ringzero lane gone\x01";

inline std::string ToText(const LaneWord& word) {
  std::string text(kLaneWordMark);
  text.append(reinterpret_cast<const char*>(&word), sizeof(word));
  return text;
}

inline bool IsLaneWord(std::string_view text) { return text.starts_with(kLaneWordMark); }

inline absl::StatusOr<LaneWord> ParseLaneWord(std::string_view text) {
  if (text.size() != kLaneWordMark.size() + sizeof(LaneWord)) {
    return Internal("a lane's word has ", text.size(), " bytes");
  }
  LaneWord word;
  std::memcpy(&word, text.data() + kLaneWordMark.size(), sizeof(word));
  constexpr uint64_t kMostBytes = uint64_t{1} << 48;  // no sum of sizes overflows
  if (word.bytes > kMostBytes || word.type < LaneWord::Type::kOffer ||
      word.type > LaneWord::Type::kGoodbye || word.kind >= kMaxMessageKinds) {
    return absl::InternalError("a lane's word means nothing");
  }
  return word;
}

}  // namespace ringzero

#endif  // RINGZERO_P2P_NCCL_LANE_WORD_H_
