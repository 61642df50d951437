// Lane: one worker's end of a FIFO of payload among a group of workers: what an NCCL communicator
// and its stream are.
//
//   RZ_RETURN_IF_ERROR(lane->Start({LaneOp::Direction::kSend, WorkerId(1), data, bytes}));
//   RZ_ASSIGN_OR_RETURN(int64_t done, lane->Completed());    // of all started, from the first on
//
// Operations run one after the other in the order in which they were started, each when its
// counterpart is the next one at `peer`. So two workers that start what they have between them in
// different orders hang, as do three in a circle: whoever starts operations knows an order that all
// ends keep. There are no names: the n-th send meets the n-th receive, and their sizes are equal.
//
// A payload must lie where the lane can reach it (its maker says where), and must stay until its
// operation is complete, or Abort has returned. A receive that was started occupies the device
// until its sender comes. No call blocks. One thread at a time.
#ifndef RINGZERO_P2P_NCCL_LANE_H_
#define RINGZERO_P2P_NCCL_LANE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"

namespace ringzero {

struct LaneOp {
  enum class Direction : uint8_t { kSend, kReceive };
  Direction direction = Direction::kSend;
  WorkerId peer;  // of the lane's group; it may be this worker, which then starts both
  std::byte* data = nullptr;
  size_t bytes = 0;
};

class Lane {
 public:
  virtual ~Lane() = default;

  virtual std::string name() const = 0;  // "memory 0 -> 1", "nccl long hops"

  // An error: the lane is broken, and nothing more of it completes.
  virtual absl::Status Start(const LaneOp& op) = 0;
  // How many operations are complete since the first. The lane's own error if it has one: a peer of
  // NCCL's that is gone, a device that failed.
  virtual absl::StatusOr<int64_t> Completed() = 0;
  // Gives up all that is under way. Afterwards no payload is touched. Idempotent.
  virtual void Abort() = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_NCCL_LANE_H_
