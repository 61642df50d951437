// Messages of several channels in one FIFO: an order that no wait contradicts, and windows enough.
#include "sharding/merged_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sharding/verify.h"
#include "sharding/wait_graph.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

MergedOrder OrderOf(const Plan& plan, const LinkedRing& ring) {
  absl::StatusOr<MergedOrder> order = MakeMergedOrder(plan, ring);
  EXPECT_TRUE(order.ok()) << order.status();
  EXPECT_EQ(CheckMergedOrder(plan, ring, *order), absl::OkStatus());
  return *std::move(order);
}

// N to 6, S to 3N, K to 2, all rules, stagger and all that travels besides.
std::vector<PlanShape> AllShapes() {
  std::vector<PlanShape> shapes;
  int number = 0;
  for (int n = 1; n <= 6; ++n) {
    for (int s = 1; s <= 3 * n; ++s) {
      for (const int k : {1, 2}) {
        for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
          for (const bool stagger : {false, true}) {
            if (stagger && rule == Rule::kDp) continue;
            if (!FullTier() && ++number % 5 != 0) continue;
            shapes.push_back({.workers = n,
                              .stages = s,
                              .zero_stage = (n + s + k) % 4,
                              .laps = k,
                              .rule = rule,
                              .slack = s % 3,
                              .stagger = stagger,
                              .predict = rule != Rule::kDp && (n + s) % 3 == 0,
                              .pending = 1 + s % 2});
          }
        }
      }
    }
  }
  return shapes;
}

TEST(MergedOrderTest, TwoKIsEnoughForPlainPlans) {
  for (const PlanShape& shape : AllShapes()) {
    SCOPED_TRACE(Describe(shape));
    const Plan plan = MakeTestPlan(shape);
    RZ_ASSIGN(const int window, ChooseWindow(plan, Merging::kPerPair));
    if (!shape.stagger && plan.zero_stage == 3) {
      EXPECT_EQ(window, 2 * plan.stages_per_worker());
    }
  }
}

TEST(MergedOrderTest, LongHopsInOneOrderNeedNoLargerWindow) {
  for (const PlanShape& shape : AllShapes()) {
    const Plan plan = MakeTestPlan(shape);
    EXPECT_EQ(*ChooseWindow(plan, Merging::kLongHops), *ChooseWindow(plan)) << Describe(shape);
  }
}

// With everything else that travels: accepted, with a window that Verify then takes.
TEST(MergedOrderTest, PlansWithEverythingAreAccepted) {
  for (PlanShape shape : PairwiseShapes()) {
    shape.one_host = false;  // there words take no FIFO of another
    if (shape.workers == 1) continue;
    for (const Merging merging : {Merging::kLongHops, Merging::kPerPair}) {
      Plan plan = MakeTestPlan(shape);
      SCOPED_TRACE(Describe(shape));
      RZ_ASSIGN(plan.window, ChooseWindow(plan, merging));
      EXPECT_EQ(Verify(plan, ProgramsOf(plan), merging), absl::OkStatus());
    }
  }
}

// Costs far from equal, with tokens that hold workers to them: due times are by cost, too.
TEST(MergedOrderTest, UnequalCostsWithStagger) {
  for (int n = 2; n <= 6; ++n) {
    for (const int s : {n, 2 * n - 1, 2 * n + 1}) {
      for (uint64_t seed = 1; seed <= (FullTier() ? 20 : 2); ++seed) {
        for (const Rule rule : {Rule::kCdpV1, Rule::kCdpV2}) {
          const PlanShape shape{.workers = n,
                                .stages = s,
                                .laps = 1 + static_cast<int>(seed % 2),
                                .rule = rule,
                                .stagger = true,
                                .costs = Costs::kRandom,
                                .seed = seed};
          for (const Merging merging : {Merging::kLongHops, Merging::kPerPair}) {
            const absl::StatusOr<int> window = ChooseWindow(MakeTestPlan(shape), merging);
            EXPECT_TRUE(window.ok()) << Describe(shape) << ": " << window.status();
          }
        }
      }
    }
  }
}

// What a transport asks for iteration by iteration is what Verify has checked.
TEST(MergedOrderTest, TransportsGetTheOrderThatIsChecked) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    const Plan plan = MakeTestPlan(
        Shape(absl::StrCat("4x6 ", ToString(rule), " laps=2 iterations=5 evaluate=2 collect=2",
                           " collector=1 statistics")));
    const LinkedRing ring = RingOf(plan);
    const MergedOrder order = OrderOf(plan, ring);
    ASSERT_GT(order.long_hops.size(), 20u);
    for (int self = kNoWorker.value; self < plan.workers; ++self) {
      LongHopOrderer orderer(plan, WorkerId(self));
      for (const int receive : order.long_hops) {
        const WorkerId to(ring.worker_of(receive)), from = ring.op(receive).peer;
        if (self >= 0 && to.value != self && from.value != self) continue;
        const absl::StatusOr<std::optional<MergedHop>> hop = orderer.Next();
        ASSERT_TRUE(hop.ok() && hop->has_value());
        EXPECT_EQ((*hop)->from, from);
        EXPECT_EQ((*hop)->to, to);
        EXPECT_EQ((*hop)->receive, ring.op(receive));
      }
      EXPECT_EQ(*orderer.Next(), std::nullopt);
    }
  }
}

class MergedMutationTest : public testing::TestWithParam<Rule> {
 protected:
  MergedMutationTest()
      : plan_(MakeTestPlan({.workers = 4, .stages = 8, .rule = GetParam(), .iterations = 4})),
        ring_(RingOf(plan_)),
        order_(OrderOf(plan_, ring_)) {}
  absl::Status Check(const MergedOrder& order) const {
    const absl::Status right = CheckMergedOrder(plan_, ring_, order);
    if (!right.ok()) return right;
    return WaitGraph(ring_, Merging::kPerPair, order).CheckProgress();
  }

  Plan plan_;
  LinkedRing ring_;
  MergedOrder order_;
};

TEST_P(MergedMutationTest, TheRightOnePasses) { EXPECT_EQ(Check(order_), absl::OkStatus()); }

TEST_P(MergedMutationTest, AMissingOrDoubleMessageIsRefused) {
  for (size_t i = 0; i < order_.long_hops.size(); ++i) {
    MergedOrder order = order_;
    order.long_hops.erase(order.long_hops.begin() + i);
    EXPECT_THAT(Check(order), Says("missing"));
    order = order_;
    order.long_hops.push_back(order.long_hops[i]);
    EXPECT_THAT(Check(order), Says("twice"));
  }
}

TEST_P(MergedMutationTest, AMessageInTheWrongQueueIsRefused) {
  MergedOrder order = order_;
  order.pairs[0].push_back(order.long_hops.back());
  order.long_hops.pop_back();
  EXPECT_THAT(Check(order), Says("wrong queue"));
}

// Neighbours in the order that must keep theirs: those of one channel, and those of which one's
// sender has first to get the other.
TEST_P(MergedMutationTest, SwappedMessagesOfAChannelAreRefused) {
  int swapped = 0;
  for (std::vector<int>* queue : {&order_.pairs[0], &order_.pairs[3], &order_.long_hops}) {
    for (size_t i = 1; i < queue->size(); ++i) {
      const Op &a = ring_.op((*queue)[i - 1]), &b = ring_.op((*queue)[i]);
      if (a.channel != b.channel || a.peer != b.peer ||
          ring_.worker_of((*queue)[i - 1]) != ring_.worker_of((*queue)[i])) {
        continue;
      }
      std::swap((*queue)[i - 1], (*queue)[i]);
      EXPECT_FALSE(Check(order_).ok());
      std::swap((*queue)[i - 1], (*queue)[i]);
      ++swapped;
    }
  }
  EXPECT_GT(swapped, 10);
}

// Moved by a whole iteration, a message waits for what waits for it.
TEST_P(MergedMutationTest, ALateMessageIsRefused) {
  int refused = 0, tried = 0;
  for (size_t i = 0; i < order_.long_hops.size(); ++i) {
    const Op& op = ring_.op(order_.long_hops[i]);
    if (op.channel != Channel::kRetire || op.iteration.value > 1) continue;
    // Behind everything that worker 3 sends and the owner gets, as late as its channel allows.
    MergedOrder order = order_;
    const auto at = order.long_hops.begin() + i;
    const auto end = std::find_if(at + 1, order.long_hops.end(), [&](int receive) {
      return ring_.op(receive).channel == op.channel && ring_.op(receive).peer == op.peer &&
             ring_.worker_of(receive) == ring_.worker_of(order_.long_hops[i]);
    });
    if (end == at + 1 || end == order.long_hops.end()) continue;
    std::rotate(at, at + 1, end);
    ++tried;
    const absl::Status status = Check(order);
    if (status.ok()) continue;
    EXPECT_THAT(status, Says("waits in a merged FIFO behind"));
    ++refused;
  }
  EXPECT_GT(tried, 0);
  EXPECT_GT(refused, 0);
}

TEST_P(MergedMutationTest, TheReverseIsRefused) {
  MergedOrder order = order_;
  std::reverse(order.long_hops.begin(), order.long_hops.end());
  EXPECT_FALSE(Check(order).ok());
}

TEST_P(MergedMutationTest, AWindowTooSmallIsRefused) {
  plan_.window = 1;
  const LinkedRing ring = RingOf(plan_);
  const MergedOrder order = OrderOf(plan_, ring);
  EXPECT_FALSE(WaitGraph(ring, Merging::kPerPair, order).CheckProgress().ok());
}

INSTANTIATE_TEST_SUITE_P(Rules, MergedMutationTest,
                         testing::Values(Rule::kDp, Rule::kCdpV1, Rule::kCdpV2),
                         [](const auto& info) { return ToString(info.param); });

}  // namespace
}  // namespace ringzero
