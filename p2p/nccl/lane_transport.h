// LaneTransport: a Transport whose payload goes over lanes and whose words go over another
// Transport.
//
//   ... `words`: local, shm or ucx, made with LaneWordsOptions(options, news) ...
//   RZ_ASSIGN_OR_RETURN(auto transport, CreateLaneTransport(
//       {.name = "nccl", .words = std::move(words), .news = news, …}, options));
//
// A callback comes when the lane says that its operation is complete. Otherwise as Transport says
// (docs/p2p.md).
#ifndef RINGZERO_P2P_NCCL_LANE_TRANSPORT_H_
#define RINGZERO_P2P_NCCL_LANE_TRANSPORT_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "p2p/arena.h"
#include "p2p/nccl/lane.h"
#include "p2p/transport.h"

namespace ringzero {

using WorkerPair = std::pair<WorkerId, WorkerId>;  // from, to

// Which lane (number in LaneParts::lanes) carries what; by worker. kNoLane: such a message is an
// error.
inline constexpr int kNoLane = -1;
struct LaneRoutes {
  std::vector<int> to;    // from this worker
  std::vector<int> from;  // to this worker
};

// How the transport for words tells that it has failed: by `listener`, if there is one yet.
struct LaneNews {
  std::mutex mutex;
  std::function<void(const absl::Status&)> listener;
};

// How the transport for words must be created: without payload, `options`' limits, its end told to
// `news`.
TransportOptions LaneWordsOptions(const TransportOptions& options, std::shared_ptr<LaneNews> news);

struct LaneParts {
  std::string name;  // of the transport
  std::unique_ptr<Transport> words;
  std::shared_ptr<LaneNews> news;            // shared with words' options
  std::vector<std::unique_ptr<Lane>> lanes;  // null: no route of this worker's takes it
  LaneRoutes routes;
  PayloadMemory memory;  // that the lanes reach
  // Kinds whose payload means nothing (the plan's tokens): they take no lane, and nothing is
  // written into the block that is posted for one. The same at all workers.
  std::vector<uint8_t> word_kinds;
};

// InvalidArgument for options that cannot be, or routes that name no lane.
absl::StatusOr<std::unique_ptr<Transport>> CreateLaneTransport(LaneParts parts,
                                                               const TransportOptions& options);

// What the ends of lanes say to each other, as the text of a question: the plain bytes of a struct,
// as both ends are checked for one version when they meet.
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

// Whatever came in: Internal if it means nothing.
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

#endif  // RINGZERO_P2P_NCCL_LANE_TRANSPORT_H_
