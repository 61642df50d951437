// Cluster: all transports of a small world in one process, and waiting with a deadline, for tests.
//
//   Cluster cluster = MakeCluster(LocalTransports(), {options, options});
//   BlockCall arrived = PostEmpty(cluster[1], 0, key);
//   const BlockCall sent = SendFilled(cluster[0], 1, key, 7);
//   ExpectArrival(arrived, 7);          // fails the test after kDeadline
//
// TransportSuite: the fixture of a contract test suite, which runs over every transport. A new
// transport joins with one line in the .cc.
#ifndef RINGZERO_TESTS_P2P_CLUSTER_H_
#define RINGZERO_TESTS_P2P_CLUSTER_H_

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "p2p/transport.h"
#include "tests/p2p/transports.h"

namespace ringzero {

// Generous: a machine with two busy cores and a sanitizer must not fail.
inline constexpr std::chrono::seconds kDeadline(60);

class Cluster {
 public:
  explicit Cluster(std::vector<std::unique_ptr<Transport>> transports)
      : transports_(std::move(transports)) {}
  Transport& operator[](int worker) { return *transports_[worker]; }
  int size() const { return static_cast<int>(transports_.size()); }
  void Destroy(int worker) { transports_[worker].reset(); }

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
};

// What callbacks bring, in order. Thread-safe. Shared with its callbacks, so these may come late.
template <typename T>
class Waiter {
 public:
  std::function<void(absl::StatusOr<T>)> Callback() {
    return [state = state_](absl::StatusOr<T> result) {
      const std::lock_guard<std::mutex> lock(state->mutex);
      state->results.push_back(std::move(result));
      ++state->calls;
      state->changed.notify_all();
    };
  }
  absl::StatusOr<T> TakeResult() {
    std::unique_lock<std::mutex> lock(state_->mutex);
    const bool came =
        state_->changed.wait_for(lock, kDeadline, [this] { return !state_->results.empty(); });
    if (!came) return absl::DeadlineExceededError("the callback was not called");
    absl::StatusOr<T> result = std::move(state_->results.front());
    state_->results.pop_front();
    return result;
  }
  T Take() {
    absl::StatusOr<T> result = TakeResult();
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : T();
  }
  int calls() const {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->calls;
  }

 private:
  struct State {
    mutable std::mutex mutex;
    std::condition_variable changed;
    std::deque<absl::StatusOr<T>> results;
    int calls = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// What Dones bring, in order; likewise.
class Ends {
 public:
  Done Next() {
    return [callback = waiter_.Callback()](const absl::Status& end) {
      end.ok() ? callback(std::string()) : callback(end);
    };
  }
  absl::Status Take() { return waiter_.TakeResult().status(); }
  int calls() const { return waiter_.calls(); }

 private:
  Waiter<std::string> waiter_;
};

// Polls `condition` until it holds or the deadline passes.
bool Eventually(const std::function<bool()>& condition);

// One MiB each for parameters and sums.
TransportOptions SmallOptions();

Cluster MakeCluster(const MakeTransports& make, const std::vector<TransportOptions>& options);

// Allocates and fills with value, value + 1, …
Buffer Filled(Transport& transport, MemoryUse use, int values, float first);
// For a Post: full of what nobody sends.
Buffer Empty(Transport& transport, int values = 16);
// Whether it is full of first, first + 1, …
bool Holds(const Buffer& block, float first);

// A Send or a Post, and the block that must live until its end.
struct BlockCall {
  Buffer block;
  Ends ends;
  absl::Status Take() { return ends.Take(); }
};
// These fail the test if the transport refuses the call.
[[nodiscard]] BlockCall SendFilled(Transport& from, int to, MessageKey key, float first,
                                   int values = 16);
[[nodiscard]] BlockCall PostEmpty(Transport& at, int from, MessageKey key, int values = 16);
// Fails the test unless first, first + 1, … arrive.
void ExpectArrival(BlockCall& posted, float first);
// Sends one payload from block to block, and fails the test unless it arrives.
void PassOne(Transport& from, Transport& to, MessageKey key = {0, 5}, int values = 16);

struct Implementation {
  std::string name;
  MakeTransports transports;
  size_t hidden_bytes = 0;  // that it adds to each payload
  // Why the suites cannot run over it on this machine; empty if they can.
  std::string (*missing)() = [] { return std::string(); };
  std::string link = "";  // is part of LinkTo's answer
};

std::vector<Implementation> AllImplementations();

// A suite's fixture. Use with RINGZERO_FOR_ALL_TRANSPORTS(Suite).
class TransportSuite : public testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    if (const std::string missing = GetParam().missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
  Cluster Make(int workers, TransportOptions options = SmallOptions()) {
    return Make(std::vector<TransportOptions>(workers, options));
  }
  Cluster Make(const std::vector<TransportOptions>& options) {
    return MakeCluster(GetParam().transports, options);
  }
};

}  // namespace ringzero

#define RINGZERO_FOR_ALL_TRANSPORTS(Suite)                                      \
  INSTANTIATE_TEST_SUITE_P(All, Suite, testing::ValuesIn(AllImplementations()), \
                           [](const auto& info) { return info.param.name; })

#endif  // RINGZERO_TESTS_P2P_CLUSTER_H_
