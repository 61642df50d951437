// Per end a queue; heads that are each other's counterpart meet.
#include "tests/p2p/memory_lane.h"

#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace ringzero {

class MemoryLaneGroup {
 public:
  MemoryLaneGroup(std::string name, const std::vector<WorkerId>& workers, PayloadMemory memory)
      : name_(std::move(name)), memory_(std::move(memory)) {
    for (const WorkerId worker : workers) ends_[worker.value];
  }

  const std::string& name() const { return name_; }

  absl::Status Start(WorkerId self, const LaneOp& op) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ends_.count(op.peer.value) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("memory lane ", name_, " has no worker ", op.peer.value));
    }
    End& end = ends_.at(self.value);
    if (end.aborted) return Gone(self);
    end.started.push_back(op);
    MoveOn(self.value);
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Completed(WorkerId self) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const End& end = ends_.at(self.value);
    if (end.aborted) return Gone(self);
    return end.completed;
  }

  void Abort(WorkerId self) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_.at(self.value).aborted = true;
    ends_.at(self.value).started.clear();
  }

 private:
  struct End {
    std::deque<LaneOp> started;  // and not complete
    int64_t completed = 0;
    bool aborted = false;
  };

  absl::Status Gone(WorkerId self) const {
    return absl::CancelledError(
        absl::StrCat("memory lane ", name_, " was aborted at worker ", self.value));
  }

  static bool Meet(const LaneOp& a, const LaneOp& b, int a_self, int b_self) {
    return a.direction != b.direction && a.peer.value == b_self && b.peer.value == a_self &&
           a.block.size() == b.block.size();
  }

  void Copy(const LaneOp& a, const LaneOp& b) const {
    const bool a_sends = a.direction == LaneOp::Direction::kSend;
    const LaneOp& from = a_sends ? a : b;
    const LaneOp& to = a_sends ? b : a;
    if (from.block.empty()) return;
    const absl::Status copied = memory_.copy(to.block.data(), from.block.data(), from.block.size());
    RZ_CHECK(copied.ok(), std::string(copied.message()));
  }

  // What has become possible at `self`, and then at the others that were waiting for it.
  void MoveOn(int self) {
    for (std::deque<int> changed = {self}; !changed.empty(); changed.pop_front()) {
      const int at = changed.front();
      End& end = ends_.at(at);
      while (!end.started.empty()) {
        const LaneOp op = end.started.front();
        if (op.peer.value == at) {  // with oneself: the next two make a pair
          if (end.started.size() < 2 || !Meet(op, end.started[1], at, at)) break;
          Copy(op, end.started[1]);
          end.started.erase(end.started.begin(), end.started.begin() + 2);
          end.completed += 2;
          continue;
        }
        End& other = ends_.at(op.peer.value);
        if (other.started.empty() || !Meet(op, other.started.front(), at, op.peer.value)) break;
        Copy(op, other.started.front());
        end.started.pop_front();
        other.started.pop_front();
        ++end.completed;
        ++other.completed;
        changed.push_back(op.peer.value);
      }
    }
  }

  const std::string name_;
  const PayloadMemory memory_;
  std::mutex mutex_;
  std::map<int, End> ends_;  // by worker
};

namespace {

class MemoryLane final : public Lane {
 public:
  MemoryLane(std::shared_ptr<MemoryLaneGroup> group, WorkerId self)
      : group_(std::move(group)), self_(self) {}
  ~MemoryLane() override { group_->Abort(self_); }

  std::string name() const override { return absl::StrCat("memory ", group_->name()); }
  absl::Status Start(const LaneOp& op) override { return group_->Start(self_, op); }
  absl::StatusOr<int64_t> Completed() override { return group_->Completed(self_); }
  void Abort() override { group_->Abort(self_); }

 private:
  const std::shared_ptr<MemoryLaneGroup> group_;  // of all ends together
  const WorkerId self_;
};

}  // namespace

std::shared_ptr<MemoryLaneGroup> MakeMemoryLaneGroup(std::string name,
                                                     const std::vector<WorkerId>& workers,
                                                     PayloadMemory memory) {
  return std::make_shared<MemoryLaneGroup>(std::move(name), workers, std::move(memory));
}

std::unique_ptr<Lane> MakeMemoryLane(std::shared_ptr<MemoryLaneGroup> group, WorkerId self) {
  return std::make_unique<MemoryLane>(std::move(group), self);
}

}  // namespace ringzero
