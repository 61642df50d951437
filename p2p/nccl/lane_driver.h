// LaneDriver: the thread that starts a worker's lane operations and looks when they are complete.
//
//   LaneDriver driver(std::move(lanes), {.stall_limit = std::chrono::seconds(60),
//                                        .on_failure = [](const absl::Status& why) { ... }});
//   driver.Start({.lane = 2, .direction = LaneOp::Direction::kReceive, .peer = WorkerId(1),
//                 .block = block, .done = [] { ... }});
//
// All calls of a Lane are this thread's. It sleeps while nothing is under way, and looks every
// `poll_interval` while something is (a device cannot wake it). An operation's block must stay until
// it is complete, or its lane was aborted. The first failure aborts all lanes and is told once:
// whatever was under way is then dropped and its `done` not called. Thread-safe; no call blocks but
// the destructor, which aborts what is under way.
#ifndef RINGZERO_P2P_NCCL_LANE_DRIVER_H_
#define RINGZERO_P2P_NCCL_LANE_DRIVER_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "p2p/deadline.h"
#include "p2p/nccl/lane.h"

namespace ringzero {

struct LaneDriverOptions {
  // Both ends of an operation are started when their payload is there, so one that takes so long
  // is stuck: the peer's order differs, or a device hangs.
  std::chrono::milliseconds stall_limit = std::chrono::seconds(60);
  std::chrono::microseconds poll_interval = std::chrono::microseconds(20);
  // On the driver's thread, once. Never after Abort.
  std::function<void(const absl::Status&)> on_failure;
};

class LaneDriver {
 public:
  struct Operation {
    int lane = 0;
    LaneOp::Direction direction = LaneOp::Direction::kSend;
    WorkerId peer;
    std::span<std::byte> block;
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
  struct Line {  // a lane and what runs in it
    std::unique_ptr<Lane> lane;
    std::deque<Running> running;
    int64_t completed = 0;
  };

  void Run();
  void Launch(Operation operation);
  void Poll(Line& line);
  void Break(const absl::Status& why);
  void AbortLanes();
  bool Idle() const;

  const LaneDriverOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Operation> started_;             // not yet seen by the thread
  std::vector<std::function<void()>> posted_;  // likewise
  bool abort_ = false;
  bool stopping_ = false;
  // The thread's own.
  std::vector<Line> lines_;
  bool aborted_ = false;
  std::thread thread_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_NCCL_LANE_DRIVER_H_
