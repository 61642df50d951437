// Many threads, channels, relays and drops at once, in an order that a seed chooses. For TSan above
// all.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/p2p/implementations.h"

namespace ringzero {
namespace {

constexpr int kWorkers = 4;
constexpr int kRounds = 60;  // messages that each worker starts in each channel
constexpr int kHops = 3;     // each goes on this many times
constexpr uint8_t kSharedKind = 0;
constexpr uint8_t kOwnedKind = 1;
constexpr int kValues = 64;

// One worker: its own thread starts messages, another takes what came, adds, and hands it on.
class Relay {
 public:
  Relay(Transport& transport, uint64_t seed) : transport_(transport), random_(seed) {}

  void Run() {
    std::thread consumer([this] { Consume(); });
    Produce();
    consumer.join();
  }
  int arrived() const { return arrived_; }

 private:
  struct Item {
    uint64_t tag;
    SharedBuffer shared;
    Buffer owned;
  };
  WorkerId Next() const { return WorkerId((transport_.self().value + 1) % kWorkers); }
  WorkerId Before() const { return WorkerId((transport_.self().value + kWorkers - 1) % kWorkers); }

  // Hops of a channel alternate: hop h of round r has the tag r * kHops + h; every worker sends
  // them in this order because it forwards before it starts the next.
  void Produce() {
    for (uint64_t tag = 0; tag < kRounds * kHops; ++tag) {
      if (tag % kHops == 0) {
        Send({tag, Filled(transport_, MemoryUse::kParameters, kValues, tag).Seal(),
              Filled(transport_, MemoryUse::kSums, kValues, tag)});
      }
      ExpectBoth(tag);  // not earlier: its answer is forwarded with the next tag
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return sent_ > tag; });  // the consumer sends the relayed ones
    }
  }

  void ExpectBoth(uint64_t tag) {
    ASSERT_TRUE(transport_
                    .ExpectShared(Before(), {kSharedKind, tag}, kValues * sizeof(float),
                                  [this, tag](absl::StatusOr<SharedBuffer> result) {
                                    ASSERT_TRUE(result.ok()) << result.status();
                                    Push({tag, *std::move(result), Buffer()});
                                  })
                    .ok());
    ASSERT_TRUE(transport_
                    .ExpectOwned(Before(), {kOwnedKind, tag}, kValues * sizeof(float),
                                 [this, tag](absl::StatusOr<Buffer> result) {
                                   ASSERT_TRUE(result.ok()) << result.status();
                                   Push({tag, SharedBuffer(), *std::move(result)});
                                 })
                    .ok());
  }

  void Push(Item item) {
    const std::lock_guard<std::mutex> lock(mutex_);
    items_.push_back(std::move(item));
    changed_.notify_all();
  }

  void Consume() {
    std::vector<Item> pair(kRounds * kHops);
    for (int taken = 0; taken < 2 * kRounds * kHops; ++taken) {
      Item item = Pop();
      Check(item);
      Item& both = pair[item.tag];
      if (item.shared) both.shared = std::move(item.shared);
      if (item.owned) both.owned = std::move(item.owned);
      both.tag = item.tag;
      if (both.shared && both.owned) Forward(std::move(both));
    }
  }

  Item Pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !items_.empty(); });
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  void Check(const Item& item) {
    ++arrived_;
    const uint64_t started = item.tag / kHops * kHops;
    if (item.shared) {
      EXPECT_EQ(item.shared.as<float>()[3], started + 3);
    }
    if (item.owned) {  // one was added per hop
      EXPECT_EQ(item.owned.as<float>()[3], item.tag + 3);
    }
  }

  void Forward(Item item) {
    ++item.tag;
    if (item.tag % kHops == 0) return;  // the journey's end: both handles drop here
    for (float& value : item.owned.as<float>()) value += 1;
    if (random_() % 3 == 0) std::this_thread::yield();
    Send(std::move(item));
  }

  void Send(Item item) {
    SharedBuffer reader = item.shared;  // lives a little longer than the message
    EXPECT_TRUE(transport_.Share(Next(), {kSharedKind, item.tag}, std::move(item.shared)).ok());
    EXPECT_TRUE(transport_.Give(Next(), {kOwnedKind, item.tag}, std::move(item.owned)).ok());
    const std::lock_guard<std::mutex> lock(mutex_);
    sent_ = item.tag + 1;
    changed_.notify_all();
  }

  Transport& transport_;
  std::mt19937_64 random_;
  std::atomic<int> arrived_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  uint64_t sent_ = 0;
};

class TransportStress : public TransportSuite {};

TEST_P(TransportStress, RelaysFromManyThreads) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    TransportOptions options = SmallOptions();
    options.slots = {static_cast<int>(2 + seed)};  // with 1 a full ring of relays cannot move
    Cluster cluster = Make(kWorkers, options);
    std::vector<std::unique_ptr<Relay>> relays;
    std::vector<std::thread> threads;
    for (int w = 0; w < kWorkers; ++w) {
      relays.push_back(std::make_unique<Relay>(cluster[w], seed * kWorkers + w));
    }
    for (int w = 0; w < kWorkers; ++w) threads.emplace_back([&, w] { relays[w]->Run(); });
    for (std::thread& thread : threads) thread.join();
    for (int w = 0; w < kWorkers; ++w) {
      EXPECT_EQ(relays[w]->arrived(), 2 * kRounds * kHops);
      EXPECT_EQ(cluster[w].stats().messages_sent[kOwnedKind], kRounds * kHops);
      EXPECT_EQ(cluster[w].stats().bytes_copied, 0u);
    }
    for (int w = 0; w < kWorkers; ++w) EXPECT_TRUE(cluster[w].Close().ok());
    for (int w = 0; w < kWorkers; ++w) {
      cluster.Destroy(w);
      if (w + 1 < kWorkers) {
        EXPECT_TRUE(cluster[w + 1].status().ok());
      }
    }
  }
}

TEST_P(TransportStress, AbortsAndDestructionsInAnyOrder) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    std::atomic<int> accepted{0};
    std::atomic<int> called{0};
    {
      Cluster cluster = Make(3);
      std::vector<std::thread> threads;
      for (int w = 0; w < 3; ++w) {
        threads.emplace_back([&, w, ending = random() % 40, destroy = random() % 2 == 0] {
          for (uint64_t i = 0; i < 20; ++i) {
            const WorkerId next((w + 1) % 3);
            const WorkerId before((w + 2) % 3);
            const auto count = [&](const absl::StatusOr<Buffer>&) { ++called; };
            if (cluster[w].ExpectOwned(before, {0, i}, 64, count).ok()) ++accepted;
            absl::StatusOr<Buffer> sum = cluster[w].Allocate(64, MemoryUse::kSums);
            if (sum.ok()) cluster[w].Give(next, {0, i}, *std::move(sum)).IgnoreError();
            if (i == ending) cluster[w].Abort(absl::InternalError("by chance"));
          }
          if (destroy) cluster.Destroy(w);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    EXPECT_EQ(called, accepted);
  }
}

RINGZERO_FOR_ALL_TRANSPORTS(TransportStress);

}  // namespace
}  // namespace ringzero
