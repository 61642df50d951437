// A queue ordered by time and a thread that empties it into the real transport.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "base/status.h"
#include "base/system_names.h"
#include "p2p/transport_decorator.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

class FaultyTransport final : public TransportDecorator {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, FaultOptions faults)
      : TransportDecorator(std::move(inner)),
        faults_(std::move(faults)),
        thread_(NamedThread("rz-faults", [this] { Run(); })) {}

  // Delayed messages go out first, as fast as they may: a destroyed transport has sent what it
  // accepted.
  ~FaultyTransport() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      changed_.notify_one();
    }
    thread_.join();
    DestroyInner();
  }

  std::string name() const override { return absl::StrCat("faulty ", inner().name()); }
  absl::Status Send(WorkerId to, MessageKey key, std::span<const std::byte> block,
                    Done sent) override {
    return Send({.to = to, .key = key, .block = block, .sent = std::move(sent)});
  }
  absl::Status Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                    Done arrived) override {
    auto flip = [this, block, arrived = std::move(arrived)](const absl::Status& came) {
      if (came.ok() && Flips()) FlipABit(block);
      arrived(came);
    };
    return inner().Post(from, key, block, std::move(flip));
  }

  absl::Status SendWord(WorkerId to, MessageKey key) override {
    return Send({.to = to, .key = key});
  }
  void Abort(const absl::Status& why) override {
    inner().Abort(why);  // first: it is what the senders of the queue are told
    const std::lock_guard<std::mutex> lock(mutex_);
    DropQueue();
    changed_.notify_one();
  }
  std::vector<Undelivered> undelivered() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Undelivered> waiting = inner().undelivered();
    for (const auto& [due, message] : queue_) waiting.push_back({message.to, message.key});
    return waiting;
  }
  absl::Status Close() override {
    RZ_RETURN_IF_ERROR(inner().status());
    const std::lock_guard<std::mutex> lock(mutex_);
    if (queue_.empty()) RZ_RETURN_IF_ERROR(inner().Close());
    closing_ = true;
    return absl::OkStatus();
  }

 private:
  struct Message {
    WorkerId to;
    MessageKey key;
    std::span<const std::byte> block = {};
    Done sent = nullptr;  // null: it is a word
  };

  absl::Status Send(Message message) {
    RZ_RETURN_IF_ERROR(inner().status());
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closing_) return absl::FailedPreconditionError("a message after a goodbye");
    if (++messages_ == faults_.act_at_message && faults_.act) faults_.act();
    if (faults_.delay == nullptr) return SendNow(std::move(message));
    Clock::time_point& due = due_[{message.to, message.key.kind}];
    due = std::max(due, Clock::now() + faults_.delay(message.to, message.key));
    queue_.emplace(due, std::move(message));
    changed_.notify_one();
    return absl::OkStatus();
  }

  absl::Status SendNow(Message message) {
    if (message.sent == nullptr) return inner().SendWord(message.to, message.key);
    return inner().Send(message.to, message.key, message.block, std::move(message.sent));
  }

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      TellSenders(lock);
      if (queue_.empty()) {
        CloseInner();
        if (stopping_) return;
        changed_.wait(lock);
        continue;
      }
      const Clock::time_point due = queue_.begin()->first;
      if (!stopping_ && due > Clock::now()) {
        changed_.wait_until(lock, due);
        continue;
      }
      Message message = std::move(queue_.begin()->second);
      queue_.erase(queue_.begin());
      // The lock is kept: sends never block, and so their order is the queue's.
      const Done on_sent = message.sent;
      const absl::Status sent = SendNow(std::move(message));
      if (!sent.ok()) {
        inner().Abort(sent);
        if (on_sent != nullptr) withheld_.push_back(on_sent);
        DropQueue();
      }
    }
  }

  void TellSenders(std::unique_lock<std::mutex>& lock) {
    while (!withheld_.empty()) {
      const std::vector<Done> withheld = std::exchange(withheld_, {});
      lock.unlock();
      for (const Done& sent : withheld) sent(inner().status());
      lock.lock();
    }
  }

  // mutex_ held, as next
  void DropQueue() {
    for (auto& [due, message] : queue_) {
      if (message.sent != nullptr) withheld_.push_back(std::move(message.sent));
    }
    queue_.clear();
  }

  void CloseInner() {
    if (!closing_ || !inner().status().ok()) return;
    const absl::Status closed = inner().Close();  // does nothing the second time
    if (!closed.ok()) inner().Abort(closed);
  }

  // Is it the turn of what has just arrived?
  bool Flips() { return faults_.flip_message != 0 && ++arrived_ == faults_.flip_message; }
  void FlipABit(std::span<std::byte> payload) const {
    if (payload.empty()) return;
    const uint64_t bit = SplitMix64(faults_.seed ^ faults_.flip_message) % (8 * payload.size());
    payload[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }

  const FaultOptions faults_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t messages_ = 0;
  std::atomic<uint64_t> arrived_{0};
  std::map<std::pair<WorkerId, uint8_t>, Clock::time_point> due_;  // by channel: its newest message
  std::multimap<Clock::time_point, Message> queue_;  // equal times: in order of insertion
  std::vector<Done> withheld_;                       // of messages that will not be sent
  bool closing_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Transport> MakeFaulty(std::unique_ptr<Transport> transport, FaultOptions faults) {
  return std::make_unique<FaultyTransport>(std::move(transport), std::move(faults));
}

}  // namespace ringzero
