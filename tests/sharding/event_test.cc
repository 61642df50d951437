// Events keep what they say in 32 bytes, and a prediction tells of every operation.
#include "sharding/study/event.h"

#include <gtest/gtest.h>

#include <random>

#include "sharding/study/simulate.h"
#include "tests/sharding/event_rules.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

TEST(EventTest, PacksAndUnpacksEveryOperationOfPrograms) {
  const Plan plan = MakeResolvedPlan(Shape("3x5 laps=2 stagger evaluate=2 collect=2 statistics"));
  uint32_t message = 0;
  for (const Program& program : ProgramsOf(plan)) {
    for (const Op& op : program.ops) {
      for (const EventKind kind : {EventKind::kBegin, EventKind::kEnd, EventKind::kWait}) {
        const Event event{
            .time = 1000000000 * int64_t{message}, .kind = kind, .op = op, .message = message++};
        RZ_ASSIGN(const Event back, Unpack(Pack(event)));
        EXPECT_EQ(back, event) << ToString(event);
      }
    }
  }
  EXPECT_GT(message, 1000u);
}

TEST(EventTest, PacksTheLargest) {
  const Event event{.time = INT64_MAX,
                    .kind = EventKind::kWaited,
                    .op = {.kind = OpKind::kKeep,
                           .channel = Channel::kStates,
                           .copy = Copy::kState,
                           .stage = StageId(65534),
                           .iteration = Iteration(INT32_MAX),
                           .lap = Lap(65534),
                           .version = Version(INT32_MAX),
                           .peer = WorkerId(65534)},
                    .message = UINT32_MAX};
  EXPECT_EQ(*Unpack(Pack(event)), event);
}

TEST(EventTest, RefusesWhatIsNoEvent) {
  PackedEvent words = Pack({.op = {.kind = OpKind::kForward}});
  for (const uint64_t bad : {uint64_t{4} << 24, uint64_t{kOpKindCount} << 16,
                             uint64_t{kChannelCount} << 8, uint64_t{7}, uint64_t{1} << 48}) {
    PackedEvent changed = words;
    changed[3] |= bad;
    EXPECT_EQ(Unpack(changed).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(EventTest, PrintsLikeAProgram) {
  const Op send{.kind = OpKind::kSend,
                .channel = Channel::kSum,
                .stage = StageId(3),
                .iteration = Iteration(5),
                .lap = Lap(0),
                .peer = WorkerId(1)};
  EXPECT_EQ(ToString(Event{.time = 81500, .op = send, .message = 12}),
            "81500 begin Send sum s3 t5 l0 w1 #12");
  const Op forward{.kind = OpKind::kForward, .stage = StageId(2), .iteration = Iteration(5)};
  EXPECT_EQ(ToString(Event{.time = 7, .kind = EventKind::kEnd, .op = forward}), "7 end F2 t5");
}

TEST(EventTest, NamesWhyAWorkerWaits) {
  const Op copy{.kind = OpKind::kReceive, .channel = Channel::kInject, .copy = Copy::kForward};
  EXPECT_EQ(CauseOf(copy), WaitCause::kParameters);
  Op evaluated = copy;
  evaluated.copy = Copy::kEvaluation;
  EXPECT_EQ(CauseOf(evaluated), WaitCause::kOther);
  EXPECT_EQ(CauseOf({.kind = OpKind::kAdd}), WaitCause::kGradientSums);
  EXPECT_EQ(CauseOf({.kind = OpKind::kUpdate}), WaitCause::kUpdate);
  EXPECT_EQ(CauseOf({.kind = OpKind::kUpdate, .peer = WorkerId(1)}), WaitCause::kGradientSums);
  EXPECT_EQ(CauseOf({.kind = OpKind::kReceive, .channel = Channel::kToken}), WaitCause::kToken);
}

TEST(PredictedEventsTest, TellOfEveryPlannedOperation) {
  for (const PlanShape& shape : PairwiseShapes()) {
    const Plan plan = MakeResolvedPlan(shape);
    RZ_ASSIGN(const std::vector<std::vector<Event>> events,
              PredictEvents(plan, {.latency_ticks = 1, .add_ticks = 1, .update_ticks = 2}));
    EXPECT_EQ(CheckEvents(plan, events), absl::OkStatus()) << Describe(shape);
  }
}

TEST(PredictedEventsTest, WaitsAreThoseOfTheSimulation) {
  const Plan plan = MakeResolvedPlan(
      {.workers = 3, .stages = 6, .rule = Rule::kDp, .costs = Costs::kBackwardTwice});
  const SimulationOptions options{.latency_ticks = 1, .update_ticks = 3};
  const Simulation simulation = *Simulate(plan, options);
  const auto events = *PredictEvents(plan, options);
  int64_t all = 0;
  for (int w = 0; w < plan.workers; ++w) {
    int64_t waited = 0;
    for (const Event& event : events[w]) {
      if (event.kind == EventKind::kWait) waited -= event.time;
      if (event.kind == EventKind::kWaited) waited += event.time;
    }
    const WaitTicks& waits = simulation.workers[w].waits;
    EXPECT_EQ(waited, waits.parameters + waits.gradient_sums + waits.update + waits.token +
                          waits.evaluation);
    all += waited;
  }
  EXPECT_GT(all, 0);
}

// The oracle itself sees what is wrong.
TEST(EventRulesTest, FindsWhatIsMissingDoubleOrOutOfOrder) {
  const Plan plan = MakeResolvedPlan({.workers = 2, .stages = 2});
  const auto good = *PredictEvents(plan, {.latency_ticks = 1});
  ASSERT_EQ(CheckEvents(plan, good), absl::OkStatus());
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    auto bad = good;
    std::vector<Event>& events = bad[random() % 2];
    const size_t at = random() % events.size();
    switch (random() % 3) {
      case 0: events.erase(events.begin() + static_cast<ptrdiff_t>(at)); break;
      case 1: events.insert(events.begin() + static_cast<ptrdiff_t>(at), events[at]); break;
      default: events[at].op.stage.value ^= 1; break;
    }
    EXPECT_NE(CheckEvents(plan, bad), absl::OkStatus());
  }
}

}  // namespace
}  // namespace ringzero
