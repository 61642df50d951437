// Many threads, channels and relays at once, in an order that a seed chooses. For TSan above
// all.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "tests/p2p/cluster.h"

namespace ringzero {
namespace {

constexpr int kWorkers = 4;
constexpr uint64_t kMessages = 120;  // of each kind, from each worker to the next
constexpr uint64_t kHops = 3;        // so many of them are one payload, which goes on and grows
constexpr uint64_t kBlocks = 3;      // for payloads that come
constexpr uint64_t kOwn = kBlocks;   // the block of payloads that start here
constexpr uint8_t kWordKind = 2;

// One worker: a thread that posts and another that sends, each what its seed chooses among all that
// can be done. Message t of a kind holds t, t + 1, …, comes into block t % kBlocks, and leaves from
// there as message t + 1.
class Relay {
 public:
  Relay(Transport& transport, uint64_t seed) : transport_(transport), seed_(seed) {
    for (const int values : {16, 3000}) {
      Line& line = lines_.emplace_back();
      for (uint64_t i = 0; i <= kOwn; ++i) line.blocks.push_back(Empty(transport, values));
    }
    const bool between_hosts = transport.name() == "shm+ucx";
    if (!between_hosts && !transport.MemoryOf(transport.self(), MemoryUse::kSums).bytes.empty()) {
      lines_.emplace_back();  // of kWordKind
    }
  }

  void Run() {
    std::thread poster([this] { Work(&Relay::PostNext, 2 * seed_); });
    Work(&Relay::SendNext, 2 * seed_ + 1);
    poster.join();
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t calls = (2 * 2 + (lines_.size() > kWordKind ? 1 : 0)) * kMessages;
    EXPECT_TRUE(changed_.wait_for(lock, kDeadline, [&] { return ended_ == calls; }));
  }

 private:
  struct Line {                  // of one kind
    std::vector<Buffer> blocks;  // words have none
    std::vector<bool> is_free = std::vector<bool>(kOwn + 1, true);
    std::vector<bool> has_come = std::vector<bool>(kMessages, false);
    uint64_t posted = 0;  // so many messages: the poster's own
    uint64_t sent = 0;    // the sender's own
  };
  WorkerId Next() const { return WorkerId((transport_.self().value + 1) % kWorkers); }
  WorkerId Before() const { return WorkerId((transport_.self().value + kWorkers - 1) % kWorkers); }

  // Until all messages of all lines are posted, or sent.
  void Work(bool (Relay::*step)(uint8_t kind), uint64_t seed) {
    std::mt19937_64 random(seed);
    for (uint64_t steps = 0; steps < lines_.size() * kMessages;) {
      uint64_t before = 0;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        before = ended_;
      }
      const size_t first = random() % lines_.size();
      bool stepped = false;
      for (size_t i = 0; i < lines_.size() && !stepped; ++i) {
        stepped = (this->*step)(static_cast<uint8_t>((first + i) % lines_.size()));
      }
      steps += stepped ? 1 : 0;
      if (stepped) continue;
      std::unique_lock<std::mutex> lock(mutex_);
      if (!changed_.wait_for(lock, kDeadline, [&] { return ended_ != before; })) {
        ADD_FAILURE() << "nothing moves";
        return;
      }
    }
  }

  // These return whether it could be done.
  bool PostNext(uint8_t kind) {
    Line& line = lines_[kind];
    const uint64_t tag = line.posted;
    if (tag == kMessages || !Take(line, tag % kBlocks)) return false;
    ++line.posted;
    const auto end = [this, &line, tag](const absl::Status& end) { Arrive(line, tag, end); };
    EXPECT_EQ(kind == kWordKind ? transport_.ExpectWord(Before(), {kind, tag}, end)
                                : transport_.Post(Before(), {kind, tag},
                                                  line.blocks[tag % kBlocks].as<std::byte>(), end),
              absl::OkStatus());
    return true;
  }

  bool SendNext(uint8_t kind) {
    Line& line = lines_[kind];
    const uint64_t tag = line.sent;
    if (tag == kMessages) return false;
    if (kind == kWordKind) {
      EXPECT_EQ(transport_.SendWord(Next(), {kind, tag}), absl::OkStatus());
      ++line.sent;
      return true;
    }
    const bool starts = tag % kHops == 0;
    if (starts ? !Take(line, kOwn) : !HasCome(line, tag - 1)) return false;
    const uint64_t place = starts ? kOwn : (tag - 1) % kBlocks;
    const std::span<float> values = line.blocks[place].as<float>();
    if (starts) std::iota(values.begin(), values.end(), static_cast<float>(tag));
    ++line.sent;
    const auto end = [this, &line, place](const absl::Status& end) { Free(line, place, end); };
    EXPECT_EQ(transport_.Send(Next(), {kind, tag}, std::as_bytes(values), end), absl::OkStatus());
    return true;
  }

  bool Take(Line& line, uint64_t place) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!line.is_free[place]) return false;
    line.is_free[place] = false;
    return true;
  }
  bool HasCome(const Line& line, uint64_t tag) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return line.has_come[tag];
  }

  void Arrive(Line& line, uint64_t tag, const absl::Status& end) {
    const bool is_word = line.blocks.empty();
    if (!is_word) {
      Buffer& block = line.blocks[tag % kBlocks];
      EXPECT_TRUE(Holds(block, static_cast<float>(tag)));
      for (float& value : block.as<float>()) value += 1;
    }
    if (is_word || (tag + 1) % kHops == 0) return Free(line, tag % kBlocks, end);
    EXPECT_EQ(end, absl::OkStatus());
    const std::lock_guard<std::mutex> lock(mutex_);
    line.has_come[tag] = true;
    ++ended_;
    changed_.notify_all();
  }

  void Free(Line& line, uint64_t place, const absl::Status& end) {
    EXPECT_EQ(end, absl::OkStatus());
    const std::lock_guard<std::mutex> lock(mutex_);
    line.is_free[place] = true;
    ++ended_;
    changed_.notify_all();
  }

  Transport& transport_;
  const uint64_t seed_;
  std::vector<Line> lines_;  // by kind
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t ended_ = 0;  // calls
};

class TransportStress : public TransportSuite {};

TEST_P(TransportStress, RelaysFromManyThreads) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    Cluster cluster = Make(kWorkers);
    std::vector<std::unique_ptr<Relay>> relays;
    std::vector<std::thread> threads;
    for (int w = 0; w < kWorkers; ++w) {
      relays.push_back(std::make_unique<Relay>(cluster[w], seed * kWorkers + w));
    }
    for (int w = 0; w < kWorkers; ++w) threads.emplace_back([&, w] { relays[w]->Run(); });
    for (std::thread& thread : threads) thread.join();
    for (int w = 0; w < kWorkers; ++w) {
      EXPECT_EQ(cluster[w].stats().messages_sent[1], kMessages);
      EXPECT_TRUE(cluster[w].Close().ok());
    }
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
    // Over UCX the larger one is fetched; one that nobody fetches keeps its sender for a second.
    const int large = seed % 10 == 0 ? 1500 : 1000;
    {
      std::vector<std::vector<Buffer>> blocks(3);  // outlive all transports
      Cluster cluster = Make(3);
      std::vector<std::thread> threads;
      for (int w = 0; w < 3; ++w) {
        threads.emplace_back([&, w, ending = random() % 40, destroy = random() % 2 == 0] {
          const auto count = [&](const absl::Status&) { ++called; };
          for (uint64_t i = 0; i < 20; ++i) {
            const WorkerId next((w + 1) % 3);
            const WorkerId before((w + 2) % 3);
            const int values = i % 4 == 3 ? large : 16;
            Buffer& to = blocks[w].emplace_back(Empty(cluster[w], values));
            if (cluster[w].Post(before, {0, i}, to.as<std::byte>(), count).ok()) ++accepted;
            Buffer& from = blocks[w].emplace_back(Empty(cluster[w], values));
            if (cluster[w].Send(next, {0, i}, from.as<std::byte>(), count).ok()) ++accepted;
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
