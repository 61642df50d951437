// What shm really backs by memory while engines run is what the certificate says of it: states and
// pools.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "sharding/memory/block_table.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/toy_ring.h"
#include "zero/optimizer/optimizer.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

// Of the memory files that workers of this process have: of each the mapping with the most pages,
// which is its owner's. (Shares of pages would not do: they change while they are read.) -1: the
// kernel does not tell.
int64_t BackedBytes() {
  std::ifstream smaps("/proc/self/smaps");
  if (!smaps) return -1;
  std::map<std::string, int64_t> files;  // by inode
  std::string inode;
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::string name, access, offset, device;
    words >> name;
    if (!absl::EndsWith(name, ":")) {
      words >> access >> offset >> device >> inode;
      if (!absl::StrContains(line, "memfd:ringzero-worker-")) inode.clear();
    }
    int64_t kib = 0;
    if (name != "Rss:" || inode.empty() || !(words >> kib)) continue;
    files[inode] = std::max(files[inode], kib * 1024);
  }
  int64_t bytes = 0;
  for (const auto& [file, most] : files) bytes += most;
  return bytes;
}

// Looks again and again while it lives.
class Watch {
 public:
  Watch()
      : thread_([this] {
          while (!stop_) most_ = std::max(most_, BackedBytes());
        }) {}
  int64_t Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return most_;
  }
  ~Watch() { Stop(); }

 private:
  std::atomic<bool> stop_{false};
  int64_t most_ = 0;
  std::thread thread_;
};

void ExpectPools(const ToyOptions& options) {
  SCOPED_TRACE(testing::Message() << options.workers << " workers, " << ToString(options.rule));
  Plan plan = ToyPlan(options);
  RZ_ASSIGN(plan.window, SmallestWindow(plan));  // as RunToyRing
  const std::vector<StageLayout> layouts = ToyLayouts(options);
  RZ_ASSIGN(const auto forecast,
            ForecastMemory(plan, {.moment_bytes = MomentBytes(options.optimizer, layouts)}));
  int64_t predicted = 0, with_rings = 0;
  for (int w = 0; w < options.workers; ++w) {
    const MemoryBytes& states = forecast.workers[w];
    for (const PoolKind kind : {PoolKind::kHandles, PoolKind::kShared}) {
      RZ_ASSIGN(const auto pools,
                PoolBytes({.plan = plan, .self = WorkerId(w), .metrics_count = 2, .kind = kind}));
      ASSERT_GE(pools, 0);
      const bool handles = kind == PoolKind::kHandles;
      // In stage 0 of ZeRO masters do not travel, and are not there.
      const int64_t parameters = plan.zero_stage > 0 ? states.masters + states.versions : 0;
      (handles ? predicted : with_rings) += parameters + states.sums + pools;
    }
  }
  EXPECT_GT(with_rings, predicted);
  Watch watch;
  const absl::StatusOr<ToyResult> run = RunToyRing(options, ShmTransports());
  const int64_t found = watch.Stop();
  ASSERT_TRUE(run.ok()) << run.status();
  if (found < 0) GTEST_SKIP() << "this kernel has no /proc/self/smaps";
  // Holder counts are a page or two for each arena.
  const int64_t counts = int64_t{16384} * options.workers;
  EXPECT_LE(found, predicted + counts);
  EXPECT_GE(static_cast<double>(found), 0.97 * static_cast<double>(predicted));
}

TEST(PoolMemoryTest, ShmBacksWhatTheCertificateSays) {
  for (const int workers : {2, 4}) {
    for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
      ToyOptions options{.workers = workers, .stages = 2 * workers, .iterations = 6, .rule = rule};
      // So that its memory is touched well before the end, of which Watch may miss some.
      options.collection.every = 2;
      options.width = 300'000;
      for (const int zero_stage : {0, 1, 3}) {
        options.zero_stage = zero_stage;
        ExpectPools(options);
      }
    }
  }
}

TEST(PoolMemoryTest, ALoneWorkerHasWhatItKeeps) {
  Plan plan = ToyPlan({.workers = 1, .stages = 2, .iterations = 2});
  RZ_ASSIGN(const auto travels, PoolBytes({.plan = plan, .metrics_count = 3}));
  // Sums and states of two versions are kept for collections.
  plan.collection.every = 1;
  for (StagePlan& stage : plan.stages) stage.state_bytes = 64;
  RZ_ASSIGN(const auto kept, PoolBytes({.plan = plan, .metrics_count = 3}));
  EXPECT_EQ(kept - travels, 2 * (plan.stages[0].sum_bytes + plan.stages[1].sum_bytes + 2 * 64));
}

}  // namespace
}  // namespace ringzero
