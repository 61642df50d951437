// After start-up a message allocates nothing: operator new is counted over 10,000 of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "p2p/ucx/ucx_transport.h"
#include "tests/p2p/cluster.h"

namespace {

std::atomic<uint64_t> allocations{0};  // of all threads

void* Allocate(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  std::abort();
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace ringzero {
namespace {

constexpr uint64_t kWarmUp = 500;   // rounds of four messages: a small and a large one each way
constexpr uint64_t kRounds = 2500;  // 10,000 messages

struct Mode {
  std::string name;
  MakeTransports transports;
  ProgressMode progress;
};

// One end of two that send each other a small and a large payload, from block to block.
// Its callbacks capture one pointer, which std::function keeps without memory.
class Player {
 public:
  explicit Player(Transport& transport)
      : transport_(transport), other_(1 - transport.self().value) {
    for (const int values : {16, 2000}) {
      from_.push_back(Filled(transport, MemoryUse::kSums, values, 0));
      to_.push_back(Filled(transport, MemoryUse::kSums, values, 0));
    }
  }

  void PostNext() {
    Call(transport_.Post(other_, {0, posted_}, to_[0].as<std::byte>(),
                         [this](auto& end) { Call(end); }));
    Call(transport_.Post(other_, {1, posted_++}, to_[1].as<std::byte>(), [this](auto& end) {
      Call(end);
      if (end.ok()) Take();
    }));
  }
  void Serve() {
    const uint64_t turn = served_++;
    for (const uint8_t kind : {0, 1}) {
      Call(transport_.Send(other_, {kind, turn}, from_[kind].as<std::byte>(),
                           [this](auto& end) { Call(end); }));
    }
  }
  uint64_t rounds() const { return done_; }
  bool failed() const { return failed_; }

 private:
  void Call(const absl::Status& status) {
    if (!status.ok()) failed_ = true;
  }
  void Take() {
    if (posted_ < kWarmUp + kRounds) PostNext();
    if (served_ < kWarmUp + kRounds) Serve();
    ++done_;
  }

  Transport& transport_;
  const WorkerId other_;
  std::vector<Buffer> from_, to_;
  uint64_t posted_ = 0;
  uint64_t served_ = 0;
  std::atomic<uint64_t> done_{0};
  std::atomic<bool> failed_{false};
};

class Allocations : public testing::TestWithParam<Mode> {
 protected:
  Cluster Make() const {
    TransportOptions options = SmallOptions();
    options.progress = GetParam().progress;
    return MakeCluster(GetParam().transports, {options, options});
  }
  // After the warm-up.
  template <typename Each>
  static void ExpectNone(Cluster& cluster, const Each& first, const Each& second) {
    const auto reach = [&](uint64_t rounds) {
      const auto end = std::chrono::steady_clock::now() + kDeadline;
      while (std::min(first.rounds(), second.rounds()) < rounds && !first.failed() &&
             !second.failed()) {
        if (std::chrono::steady_clock::now() > end) return false;
        const bool busy = cluster[0].Poll() | cluster[1].Poll();
        if (!busy) std::this_thread::yield();
      }
      return !first.failed() && !second.failed();
    };
    ASSERT_TRUE(reach(kWarmUp));
    const uint64_t before = allocations;
    ASSERT_TRUE(reach(kWarmUp + kRounds));
    EXPECT_EQ(allocations - before, 0u);
  }
};

TEST_P(Allocations, AMessageNeedsNone) {
  Cluster cluster = Make();
  Player first(cluster[0]), second(cluster[1]);
  first.PostNext();
  second.PostNext();
  first.Serve();
  ExpectNone(cluster, first, second);
}

std::vector<Mode> AllModes() {
  std::vector<Mode> all;
  const auto add = [&all](const std::string& name, const MakeTransports& transports) {
    all.push_back({name, transports, ProgressMode::kThread});
    all.push_back({"polled_" + name, transports, ProgressMode::kCaller});
  };
  add("local", LocalTransports());
  add("shm", ShmTransports());
  if (!UcxVersion().empty()) {  // whose own allocations are not by operator new
    add("ucx", UcxTransports());
    add("ucx_tcp", UcxTcpTransports());
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Allocations, testing::ValuesIn(AllModes()),
                         [](const auto& info) { return info.param.name; });

TEST(AllocationCount, SeesAVector) {
  const uint64_t before = allocations;
  const std::vector<int> ten(10);
  EXPECT_GE(allocations - before, 1u);
}

}  // namespace
}  // namespace ringzero
