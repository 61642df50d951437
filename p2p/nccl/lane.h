// Lane: one worker's end of a FIFO of payload among a group of workers: what an NCCL communicator
// and its stream are.
//
//   RZ_RETURN_IF_ERROR(lane->Start({LaneOp::Direction::kSend, WorkerId(1), block}));
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

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/deadline.h"

namespace ringzero {

struct LaneOp {
  enum class Direction : uint8_t { kSend, kReceive };
  Direction direction = Direction::kSend;
  WorkerId peer;  // of the lane's group; it may be this worker, which then starts both
  std::span<std::byte> block;
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

struct LaneDriverOptions {
  // Both ends of an operation are started when their payload is there, so one that takes so long
  // is stuck: the peer's order differs, or a device hangs.
  std::chrono::milliseconds stall_limit = std::chrono::seconds(60);
  // On the driver's thread, once. Never after Abort.
  std::function<void(const absl::Status&)> on_failure;
};

// LaneDriver: the thread that starts a worker's lane operations and looks when they are complete.
//
//   LaneDriver driver(std::move(lanes), {.stall_limit = std::chrono::seconds(60),
//                                        .on_failure = [](const absl::Status& why) { ... }});
//   driver.Start({.lane = 2, .op = {LaneOp::Direction::kReceive, WorkerId(1), block},
//                 .done = [] { ... }});
//
// All calls of a Lane are this thread's. It sleeps while nothing is under way, and looks every
// 20 µs while something is (a device cannot wake it). An operation's block must stay until it is
// complete, or its lane was aborted. The first failure aborts all lanes and is told once: whatever
// was under way is then dropped and its `done` not called. Thread-safe; no call blocks but
// the destructor, which aborts what is under way.
class LaneDriver {
 public:
  struct Operation {
    int lane = 0;
    LaneOp op;
    std::function<void()> done;  // on the driver's thread
  };

  LaneDriver(std::vector<std::unique_ptr<Lane>> lanes, LaneDriverOptions options);
  ~LaneDriver();

  void Start(Operation operation);
  // Runs it on the driver's thread, soon.
  void Post(std::function<void()> call);
  // Gives up all lanes, soon; operations started later are dropped.
  void Abort();

 private:
  struct Running {
    Operation operation;
    Deadline stalled;
  };
  struct Line {                  // a lane and what runs in it
    std::unique_ptr<Lane> lane;  // null: this worker has no end of it
    std::deque<Running> running;
    int64_t completed = 0;
  };

  void Run();
  void Launch(Operation operation);
  void Poll(Line& line);
  void Break(const absl::Status& why);
  void AbortLanes();

  const LaneDriverOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> posted_;  // not yet seen by the thread
  bool abort_ = false;
  bool stopping_ = false;
  // The thread's own.
  std::vector<Line> lines_;
  bool aborted_ = false;
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_NCCL_LANE_H_
