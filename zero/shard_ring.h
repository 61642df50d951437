// ShardRing: gradient sums travel to their owners and updated shards around the ring, message by
// message, for an optimizer that stands alone.
//
//   TransportOptions needs = ShardRing::Needs(shards, WorkerId(1));
//   ShardRing ring(shards, std::move(transport), std::chrono::minutes(10));
//   RZ_ASSIGN_OR_RETURN(Buffer sum, ring.TakeSum(shard, turn));    // of the micro-batches before
//   … add this worker's …
//   RZ_RETURN_IF_ERROR(ring.PassSum(shard, turn, std::move(sum)));
//
// The sum of a shard visits worker 0, 1, …, N-1, then 0 again for the next lap, and retires to its
// owner after the last: a fixed left fold, the same for any N. A shard's new version is lent to the
// right neighbour, which passes it on, and so are the squares of a complete sum, for the norm of
// all. Every wait has a limit and a name; who waits too long ends the ring for all. Not
// thread-safe.
#ifndef RINGZERO_ZERO_SHARD_RING_H_
#define RINGZERO_ZERO_SHARD_RING_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "p2p/transport.h"
#include "zero/flat_shards.h"

namespace ringzero {

class ShardRing {
 public:
  // One visit of the sums.
  struct Turn {
    int64_t update = 0;
    int lap = 0;
    int laps = 1;
  };

  ShardRing(const FlatShards& shards, std::unique_ptr<Transport> transport,
            std::chrono::milliseconds wait_timeout);
  // Says goodbye. The caller has dropped its buffers.
  ~ShardRing();

  // What the transport of a worker needs.
  static TransportOptions Needs(const FlatShards& shards, WorkerId self);

  WorkerId self() const { return transport_->self(); }
  int workers() const { return transport_->workers(); }

  // New memory with an empty sum (gradient_sum.h) for the first micro-batch of an update.
  absl::StatusOr<Buffer> TakeSum(int shard, const Turn& turn);
  absl::Status PassSum(int shard, const Turn& turn, Buffer sum);
  // At its owner, after the last turn.
  absl::StatusOr<Buffer> TakeCompleteSum(int64_t update);

  // Sends this shard's squares (by trainable parameter; SumSquares) around; all shards', by shard.
  absl::StatusOr<std::vector<std::vector<double>>> SpreadSquares(std::span<const double> mine,
                                                                 int64_t update);

  // Memory for a version of this worker's shard: two of them.
  absl::StatusOr<Buffer> AllocateVersion();
  // When nobody else holds it any more.
  absl::StatusOr<Buffer> Reclaim(SharedBuffer version, int64_t update);
  // Sends `mine` around (empty: this worker has no shard), and shows all other shards' as they
  // come.
  absl::Status Spread(const SharedBuffer& mine, int64_t update,
                      const std::function<void(int shard, const std::byte* parameters)>& show);

  // Ends the ring for all workers with `why`.
  void Abort(const absl::Status& why) { transport_->Abort(why); }

 private:
  // What goes all the way around, of every shard that has any.
  struct Round {
    uint8_t kind = 0;
    int64_t update = 0;
    std::string what;  // in waits: "shard 2<what>"
    std::function<size_t(int shard)> bytes;
    std::function<void(int shard, const std::byte* payload)> show;
  };
  absl::Status SendAround(const SharedBuffer& mine, const Round& round);
  // Waits until what was allocated before is dropped, here or elsewhere: `whose`, in words.
  absl::StatusOr<Buffer> AllocateWhenFree(const std::function<absl::StatusOr<Buffer>()>& allocate,
                                          const std::string& whose);
  template <typename Handle>
  absl::StatusOr<Handle> Receive(WorkerId from, MessageKey key, size_t bytes,
                                 const std::string& what);
  absl::Status TooLong(const std::string& what);

  const FlatShards& shards_;
  const std::unique_ptr<Transport> transport_;
  const std::chrono::milliseconds wait_timeout_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_SHARD_RING_H_
