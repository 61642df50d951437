// For an optimizer that stands alone. FlatShards: who owns which parameters. ShardRing: gradient
// sums travel to their owners and updated shards around the ring, message by message.
//
//   TransportOptions needs = ShardRing::Needs(shards, WorkerId(1), /*lends=*/true);
//   RZ_ASSIGN_OR_RETURN(auto ring, ShardRing::Create(shards, std::move(transport), options));
//   RZ_ASSIGN_OR_RETURN(std::byte* sum, ring->TakeSum(shard, turn));  // of micro-batches before
//   … add this worker's …
//   RZ_RETURN_IF_ERROR(ring->PassSum(shard, turn));
//
// The sum of a shard visits worker 0, 1, …, N-1, then 0 again for the next lap, and retires to its
// owner after the last: a fixed left fold, the same for any N. A shard's new version goes to the
// right neighbour, which passes it on, and so do the squares of a complete sum, for the norm of
// all.
//
// On one host memory is lent: sums lie at worker 0, versions and squares at their owner, and
// messages are words. Elsewhere payload goes from block to block. A block is written again when a
// complete sum has come: it has something of every worker, so all are done with the update before.
//
// Every wait has a limit and a name; who waits too long ends the ring for all. Not thread-safe.
#ifndef RINGZERO_ZERO_OPTIMIZER_SHARD_RING_H_
#define RINGZERO_ZERO_OPTIMIZER_SHARD_RING_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "p2p/transport.h"
#include "zero/layout.h"

namespace ringzero {

// Which worker updates which parameters, and where they lie in its one flat shard.
//
//   RZ_ASSIGN_OR_RETURN(FlatShards shards, FlatShards::Make(parameters, /*workers=*/3));
//   shards.places[7];                    // parameter 7 of the model: shard 2, its number 1 there
//   shards.layouts[2].parameters[1];     // at offset_bytes, a multiple of 64
//
// By bytes: the largest parameter first, each to the shard that has least (the lower number where
// two have as little); within a shard in the order of the model. So the cut depends on nothing but
// sizes and order. A parameter is never cut: no shard is larger than the mean by more than one
// parameter, but where one parameter is half of the model, its owner holds half of all states and
// does half of all updates, however many workers there are. A value.
struct FlatShards {
  struct Place {
    int shard = 0;
    int parameter = 0;  // in layouts[shard]
  };
  std::vector<StageLayout> layouts;  // by worker; one may be empty
  std::vector<Place> places;         // by parameter of the model

  // InvalidArgument: no worker, no parameter, a name twice.
  static absl::StatusOr<FlatShards> Make(const std::vector<ParameterSpec>& parameters, int workers);

  int count() const { return static_cast<int>(layouts.size()); }
};

// "worker 0 owns 16640 bytes of parameters, worker 1 1292; the fullest has 1.86 times the mean".
// Moments are as many bytes for each value of a parameter, so they are shared in the same way.
std::string DescribeOwners(const FlatShards& shards);

class ShardRing {
 public:
  struct Options {
    bool lends = false;  // all workers share memory (p2p/connect.h, WorkersThatShare)
    std::chrono::milliseconds wait_timeout = std::chrono::minutes(10);
  };
  // One visit of the sums.
  struct Turn {
    int64_t update = 0;
    int lap = 0;
    int laps = 1;
  };

  // `shards` must outlive the ring. ResourceExhausted if the transport has less than Needs.
  static absl::StatusOr<std::unique_ptr<ShardRing>> Create(const FlatShards& shards,
                                                           std::unique_ptr<Transport> transport,
                                                           const Options& options);
  // Says goodbye.
  ~ShardRing();

  // What the transport of a worker needs.
  static TransportOptions Needs(const FlatShards& shards, WorkerId self, bool lends);

  WorkerId self() const { return transport_->self(); }
  int workers() const { return transport_->workers(); }

  // The sum of a shard, which this worker may add to until it passes it on. An empty one
  // (gradient_sum.h) for the first micro-batch of an update.
  absl::StatusOr<std::byte*> TakeSum(int shard, const Turn& turn);
  absl::Status PassSum(int shard, const Turn& turn);
  // At its owner, after the last turn; valid until the next update's first TakeSum.
  absl::StatusOr<const std::byte*> TakeCompleteSum(int64_t update);

  // Sends this shard's squares (by trainable parameter; SumSquares) around; all shards', by shard.
  absl::StatusOr<std::vector<std::vector<double>>> SpreadSquares(std::span<const double> mine,
                                                                 int64_t update);

  // Where the version of this worker's shard lies that update `update` reads; two of them take
  // turns. Null: the shard is empty.
  std::byte* Version(int64_t update);
  // Sends that version around, and shows all other shards' as they come.
  absl::Status Spread(int64_t update,
                      const std::function<void(int shard, const std::byte* parameters)>& show);

  // Ends the ring for all workers with `why`.
  void Abort(const absl::Status& why) { transport_->Abort(why); }

 private:
  struct Event;
  // A block that messages come into, or are sent from.
  struct Block {
    Buffer memory;
    std::shared_ptr<Event> leaves;  // what was sent from it; null: nothing was
    WorkerId to;                    // that goes there
    std::span<std::byte> First(size_t bytes) const {
      return memory ? memory.as<std::byte>().first(bytes) : std::span<std::byte>();
    }
  };
  // Memory of `home` that it lends.
  struct Place {
    WorkerId home;
    MemoryUse use = MemoryUse::kSums;
    size_t offset = 0;
  };
  // What goes all the way around, of every shard that has any.
  struct Round {
    uint8_t kind = 0;
    int64_t update = 0;
    std::string what;  // in waits: "shard 2<what>"
    int block = 0;     // of its owner's, in mine_
    std::function<size_t(const StageLayout&)> bytes;
    std::function<void(int shard, const std::byte* payload)> show;
  };

  ShardRing(const FlatShards& shards, std::unique_ptr<Transport> transport, const Options& options);
  absl::Status Allocate();
  absl::Status SendAround(const Round& round);
  // The block's payload goes to `to`, or a word about it.
  absl::Status Send(WorkerId to, MessageKey key, Block& block, size_t bytes);
  absl::Status Receive(WorkerId from, MessageKey key, std::span<std::byte> into,
                       const std::string& what);
  // Until what was sent from the block has left.
  absl::Status AwaitFree(Block& block);
  absl::Status Await(Event& event, const std::string& what, const std::string& too_long);
  // What has come: in `into`, or lent.
  absl::StatusOr<std::byte*> PayloadIn(std::span<std::byte> into, const Place& lent, size_t bytes);
  Place PlaceOfSum(int shard) const;

  const FlatShards& shards_;
  const std::unique_ptr<Transport> transport_;
  const Options options_;
  std::array<Block, 3> mine_;      // two versions, and squares
  std::vector<Buffer> lent_sums_;  // at worker 0, by shard
  // Without loans: what comes from others. Two blocks take turns.
  std::array<Block, 2> sums_, passing_;
  Block complete_;
  int64_t sums_taken_ = 0, passed_ = 0;
  std::map<std::pair<WorkerId, MemoryUse>, MappedMemory> lent_;  // that is known
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_OPTIMIZER_SHARD_RING_H_
