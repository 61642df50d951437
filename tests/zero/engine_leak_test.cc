// 200 engines started and stopped in one process, to their end or in the middle: nothing stays.
#include <dirent.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/zero/toy_ring.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

int CountEntries(const char* folder_name) {
  int count = 0;
  DIR* folder = opendir(folder_name);
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

int CountMappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

struct Held {
  int descriptors = CountEntries("/proc/self/fd");
  int threads = CountEntries("/proc/self/task");
  int mappings = CountMappings();
};

const ToyOptions kToy{.workers = 4, .stages = 4, .iterations = 2, .window = 2};

void RunToTheEnd(const MakeTransports& transports) {
  RZ_ASSIGN(const ToyResult result, RunToyRing(kToy, transports));
}

// Each engine leaves with its first forward begun, while the others wait for it.
void StopInTheMiddle(const MakeTransports& transports) {
  std::vector<TransportOptions> needs;
  for (int w = 0; w < kToy.workers; ++w) {
    auto each = TransportNeeds(ToyPlan(kToy), WorkerId(w), 1);
    EXPECT_TRUE(each.ok()) << each.status();
    needs.push_back(*std::move(each));
  }
  RZ_ASSIGN(auto made, transports(needs));
  std::vector<std::unique_ptr<Engine>> ring;
  for (int w = 0; w < kToy.workers; ++w) {
    EngineOptions options{.plan = ToyPlan(kToy),
                          .self = WorkerId(w),
                          .transport = std::move(made[w]),
                          .layouts = ToyLayouts(kToy)};
    options.metrics_count = 1;
    RZ_ASSIGN(std::unique_ptr<Engine> engine, Engine::Create(std::move(options)));
    ring.push_back(std::move(engine));
  }
  for (std::unique_ptr<Engine>& engine : ring) {
    EXPECT_TRUE(engine->BeginForward(StageId(0)).ok());
  }
}

TEST(EngineLeakTest, TwoHundredEnginesLeaveNothing) {
  int engines = 0;
  const auto round = [&] {
    for (const MakeTransports& transports : {LocalTransports(), ShmTransports()}) {
      RunToTheEnd(transports);
      StopInTheMiddle(transports);
      engines += 2 * kToy.workers;
    }
  };
  // What is made once and kept (locales, the allocator's arenas and stacks) is there after these.
  for (int i = 0; i < 3; ++i) round();
  engines = 0;
  const Held before;
  while (engines < 200) round();
  const Held after;
  EXPECT_EQ(engines, 208);
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
#if !defined(__SANITIZE_ADDRESS__)
  // AddressSanitizer maps memory of its own all along: 20 mappings for 200 engines, 70 for 1600.
  // The allocator may map an arena for a thread more than before, never one for each engine.
  EXPECT_LE(after.mappings, before.mappings + 16);
#endif
}

}  // namespace
}  // namespace ringzero
