// What a worker holds of others' messages: never less than any window of credit can deliver.
#include "zero/received_needs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/buffer.h"
#include "sharding/program.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

Plan MakePlan(int workers, int stages, Rule rule) {
  Plan plan{.workers = workers, .laps = 2, .rule = rule, .window = 3, .iterations = 40};
  plan.zero_stage = stages == 5 ? 0 : 3;
  plan.evaluation = {.every = 7, .laps = 2};
  for (int j = 0; j < stages; ++j) {
    const int64_t bytes = 64 * (1 + j % 3);  // three sizes
    plan.stages.push_back({.name = "s",
                           .first_layer = j,
                           .end_layer = j + 1,
                           .parameter_bytes = bytes,
                           .sum_bytes = bytes,
                           .owner = WorkerId(j % workers)});
  }
  return plan;
}

// The whole run, by brute force: for each channel and each window of messages that follow each
// other.
ReceivedBytes MostInAnyWindow(const Plan& plan, WorkerId self) {
  const auto program = MakeProgram(plan, self, WholeRun(plan));
  EXPECT_TRUE(program.ok()) << program.status();
  std::map<std::pair<WorkerId, Channel>, std::vector<size_t>> messages;
  for (const Op& op : program->ops) {
    if (op.kind != OpKind::kReceive || op.peer == self) continue;
    messages[{op.peer, op.channel}].push_back(MessageBytes(plan, op, 1));
  }
  ReceivedBytes most;
  for (const auto& [channel, sizes] : messages) {
    std::map<size_t, size_t> by_size;
    for (size_t begin = 0; begin < sizes.size(); ++begin) {
      std::map<size_t, size_t> alive;
      const size_t end = std::min(sizes.size(), begin + 2 * static_cast<size_t>(plan.window));
      for (size_t i = begin; i < end; ++i) ++alive[sizes[i]];
      for (const auto& [size, count] : alive) by_size[size] = std::max(by_size[size], count);
    }
    for (const auto& [size, count] : by_size) {
      const size_t bytes = count * (AlignPayload(size) + kPayloadAlignment);
      (IsOwnedMessage(channel.second) ? most.sums : most.parameters) += bytes;
    }
  }
  return most;
}

// What is really used is never more than what is set aside, and not next to nothing: a channel's
// credit is used up.
TEST(ReceivedNeedsTest, UseIsWithinTheNeeds) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const int workers : {2, 3, 4}) {
      for (int each = 0; each < 4 * workers; ++each) {
        Plan plan = MakePlan(workers, 4 * workers, rule);
        plan.zero_stage = each % 4;
        const int w = each / 4;
        RZ_ASSIGN(const auto needs, ReceivedNeeds(plan, WorkerId(w), 1));
        RZ_ASSIGN(const auto use, ReceivedUse(plan, WorkerId(w), 1));
        EXPECT_LE(use.parameters, needs.parameters);
        EXPECT_LE(use.sums, needs.sums);
        // In stage 0 of ZeRO no parameters travel.
        const size_t least = plan.zero_stage == 0 ? 0 : static_cast<size_t>(plan.window);
        EXPECT_GE(use.parameters, least * (64 + kPayloadAlignment));
        EXPECT_GT(use.sums, 0u);
      }
    }
  }
}

TEST(ReceivedNeedsTest, AFewIterationsTellOfAll) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const int workers : {2, 3, 4}) {
      for (const int stages : {2, 5, 12}) {
        const Plan plan = MakePlan(workers, stages, rule);
        for (int w = 0; w < workers; ++w) {
          RZ_ASSIGN(const auto needs, ReceivedNeeds(plan, WorkerId(w), 1));
          const ReceivedBytes most = MostInAnyWindow(plan, WorkerId(w));
          EXPECT_GE(needs.parameters, most.parameters)
              << ToString(rule) << " " << workers << " " << stages << " " << w;
          EXPECT_GE(needs.sums, most.sums)
              << ToString(rule) << " " << workers << " " << stages << " " << w;
        }
      }
    }
  }
}

// Of held copies what their slots can take, and some that leave: whatever the run's length.
TEST(ReceivedNeedsTest, HeldCopiesAreCountedBySlots) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    Plan plan = MakePlan(3, 6, rule);
    plan.zero_stage = 2;
    RZ_ASSIGN(const auto needs, ReceivedNeeds(plan, WorkerId(1), 1));
    size_t others = 0;  // of one version
    for (const StagePlan& stage : plan.stages) {
      if (stage.owner == WorkerId(1)) continue;
      others += AlignPayload(static_cast<size_t>(stage.parameter_bytes)) + kPayloadAlignment;
    }
    EXPECT_GE(needs.parameters, (rule == Rule::kDp ? 1 : 2) * others);
    plan.iterations = 75;  // ends as far after an evaluation
    EXPECT_EQ(ReceivedNeeds(plan, WorkerId(1), 1)->parameters, needs.parameters);
  }
}

TEST(ReceivedNeedsTest, NothingTravelsToOneWorker) {
  RZ_ASSIGN(const auto needs, ReceivedNeeds(MakePlan(1, 4, Rule::kCdpV2), WorkerId(0), 1));
  EXPECT_EQ(needs.parameters + needs.sums, 0u);
}

}  // namespace
}  // namespace ringzero
