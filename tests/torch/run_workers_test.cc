// A user's entry: workers as processes or threads, what they return and report, and whose fault it
// was.
#include "integrations/torch/run_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "integrations/torch/describe_model.h"
#include "integrations/torch/train_model.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using Choice = TransportChoice;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Model TwoLayers() {
  return {.layers = {{.name = "a", .build = [] { return MakeLayer(torch::nn::Linear(3, 4)); }},
                     {.name = "b", .build = [] { return MakeLayer(torch::nn::Linear(4, 2)); }}},
          .example = {at::zeros({1, 3})}};
}

absl::StatusOr<PlannedRun> PlanFor(int workers, const PlanFunction& plan_model = PlanModel) {
  Model model = TwoLayers();
  PlannedRun run{.layers = model.layers};
  RZ_ASSIGN_OR_RETURN(run.model, DescribeModel(run.layers, model.example));
  RZ_ASSIGN_OR_RETURN(run.planned,
                      plan_model(run.model, {.workers = workers, .rule = Rule::kCdpV2}));
  return run;
}

// This process must stay free of torch's threads: only children compute.
class RunWorkersTest : public testing::TestWithParam<TransportChoice> {};

TEST_P(RunWorkersTest, ResultsAndReportsComeByWorker) {
  std::map<int, std::vector<std::string>> reports;
  const auto results = RunWorkers(
      {.launch = {.workers = 3,
                  .on_report =
                      [&](WorkerId worker, const std::string& kind, const std::string& text) {
                        reports[worker.value].push_back(absl::StrCat(kind, "=", text));
                      }},
       .transport = GetParam()},
      [](const PlanFunction&) { return PlanFor(3); },
      [](WorkerSeat seat) -> absl::StatusOr<std::string> {
        RZ_RETURN_IF_ERROR(seat.report("first", absl::StrCat(seat.self.value)));
        RZ_RETURN_IF_ERROR(seat.report("a:b", "1:2\n"));
        if (seat.transport == nullptr || seat.transport->self() != seat.self) {
          return absl::InternalError("no transport");
        }
        RZ_RETURN_IF_ERROR(seat.transport->Close());
        // Whatever a worker returns arrives as it is.
        return std::string(static_cast<size_t>(seat.self.value), '\n') + "7:x";
      });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT(*results, ElementsAre("7:x", "\n7:x", "\n\n7:x"));
  ASSERT_EQ(reports.size(), 3u);
  // What carries messages between processes is said once.
  const std::string note = "note=transport: shm between all workers (one host)";
  if (GetParam() == Choice::kAuto) {
    ASSERT_FALSE(reports[0].empty());
    EXPECT_EQ(reports[0].front(), note);
    reports[0].erase(reports[0].begin());
  }
  for (const auto& [worker, lines] : reports) {
    EXPECT_THAT(lines, ElementsAre(absl::StrCat("first=", worker), "a:b=1:2\n"));
  }
}

TEST_P(RunWorkersTest, TheFirstCauseIsNamed) {
  const auto run = [](const std::function<absl::StatusOr<std::string>(WorkerSeat)>& work) {
    return RunWorkers(
               {.launch = {.workers = 3}, .transport = GetParam()},
               [](const PlanFunction&) { return PlanFor(3); }, work)
        .status();
  };
  const absl::Status failed = run([](WorkerSeat seat) -> absl::StatusOr<std::string> {
    if (seat.self.value == 1) return absl::NotFoundError("no such file");
    // The others hear of it.
    while (seat.transport->status().ok()) usleep(1000);
    return seat.transport->status();
  });
  EXPECT_EQ(failed.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(failed.message(), "worker 1: no such file");
  const absl::Status thrown = run([](WorkerSeat seat) -> absl::StatusOr<std::string> {
    if (seat.self.value == 2) throw std::runtime_error("out of patience");
    while (seat.transport->status().ok()) usleep(1000);
    return seat.transport->status();
  });
  EXPECT_EQ(thrown.message(), "worker 2: out of patience");
  // Also of the process that stands for all.
  const absl::Status first = run([](WorkerSeat seat) -> absl::StatusOr<std::string> {
    if (seat.self.value == 0) return absl::NotFoundError("no such file");
    while (seat.transport->status().ok()) usleep(1000);
    return seat.transport->status();
  });
  EXPECT_EQ(first.message(), "worker 0: no such file");
}

TEST_P(RunWorkersTest, APlanThatFailsEndsAll) {
  const auto work = [](WorkerSeat) -> absl::StatusOr<std::string> { return "not reached"; };
  const RunWorkersOptions options{.launch = {.workers = 2}, .transport = GetParam()};
  EXPECT_THAT(std::string(RunWorkers(
                              options, [](const PlanFunction&) { return PlanFor(3); }, work)
                              .status()
                              .message()),
              HasSubstr("the plan has 3 workers, but 2 were asked for"));
  const auto thrown = RunWorkers(
      options,
      [](const PlanFunction&) -> absl::StatusOr<PlannedRun> { TORCH_CHECK(false, "bad layer"); },
      work);
  EXPECT_THAT(thrown, Says("bad layer"));
}

// An ordinary loop to its end: how many micro-batches it trained on.
absl::StatusOr<int> Drive(
    RingModel& ring, const std::function<absl::Status(const LapTask&, const NamedValues&)>& look) {
  for (int trained = 0;;) {
    RZ_ASSIGN_OR_RETURN(const LapTask lap, ring.NextLap());
    if (lap.kind == LapTask::Kind::kDone) return trained;
    if (lap.kind == LapTask::Kind::kCollect) {
      RZ_RETURN_IF_ERROR(
          ring.Collect([&](const NamedValues& values) { return look(lap, values); }));
      continue;
    }
    const at::Tensor loss = ring.Forward({at::ones({1, 3})})[0].square().sum();
    loss.backward();
    RZ_RETURN_IF_ERROR(ring.EndMicroBatch({loss.item<double>()}));
    ++trained;
  }
}

// One worker, no transport: the same loop.
TEST_P(RunWorkersTest, TrainsAModel) {
  for (int workers : {1, 2}) {
    TrainOptions options{.plan = {.workers = workers, .rule = Rule::kDp, .iterations = 3},
                         .optimizer = {.type = OptimizerOptions::Type::kSgd, .learning_rate = 0.1},
                         .run = {.transport = GetParam()}};
    const absl::Status status = TrainModel(options, TwoLayers, [](RingModel& ring) -> absl::Status {
      RZ_ASSIGN_OR_RETURN(const int trained, Drive(ring, [](const LapTask&, const NamedValues&) {
                            return absl::OkStatus();
                          }));
      return trained == 3 ? absl::OkStatus() : absl::InternalError(absl::StrCat(trained));
    });
    EXPECT_EQ(status, absl::OkStatus());
  }
}

// What worker 1 of 2 says of a version that it looks into ends the run. (What it is shown:
// RingBitsTest.ModelsAndRules.)
TEST_P(RunWorkersTest, AnyWorkerMayLookInside) {
  TrainOptions options{.plan = {.workers = 2, .rule = Rule::kCdpV2, .iterations = 3},
                       .run = {.transport = GetParam()}};
  options.plan.collection = {.every = 1, .worker = WorkerId(1)};
  const absl::Status enough = TrainModel(options, TwoLayers, [](RingModel& ring) {
    return Drive(ring,
                 [&](const LapTask& lap, const NamedValues& values) {
                   return lap.iteration.value == 2 && values.kind == NamedValues::Kind::kGradient
                              ? absl::OutOfRangeError("seen enough")
                              : absl::OkStatus();
                 })
        .status();
  });
  EXPECT_EQ(enough, absl::OutOfRangeError("worker 1: seen enough"));
}

TEST_P(RunWorkersTest, ALoopThatEndsEarlyIsToldWhatIsLeft) {
  const TrainOptions options{.plan = {.workers = 2, .rule = Rule::kCdpV2, .iterations = 3},
                             .run = {.transport = GetParam()}};
  const absl::Status status =
      TrainModel(options, TwoLayers, [](RingModel&) { return absl::OkStatus(); });
  EXPECT_THAT(status, Fails(absl::StatusCode::kFailedPrecondition, "is still to be computed"));
}

TEST_P(RunWorkersTest, BadOptionsAreRefusedBeforeAnythingStarts) {
  const TrainOptions options{
      .plan = {.workers = 2}, .optimizer = {.learning_rate = -1}, .run = {.transport = GetParam()}};
  const absl::Status status =
      TrainModel(options, TwoLayers, [](RingModel&) { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, RunWorkersTest, testing::Values(Choice::kAuto, Choice::kLocal),
                         [](const auto& info) {
                           return info.param == Choice::kAuto ? "Processes" : "Threads";
                         });

// Programs whose loops are their own: each process opens its worker and closes it.
TEST(OpenWorkerTest, ResultsAndFailuresAreShared) {
  enum class Ends { kWell, kInTheLoop, kWhilePlanning };
  const auto run = [](Ends ends) {
    return LaunchProcesses(
        {.workers = 2}, [&](WorkerContext& context) -> absl::StatusOr<std::string> {
          const bool fails = context.self().value == 1;
          RZ_ASSIGN_OR_RETURN(const std::unique_ptr<OpenWorker> worker,
                              OpenWorker::Open({.launch = {.workers = 2}, .seat = context.Seat()},
                                               [&](const PlanFunction& plan_model) {
                                                 return PlanFor(
                                                     fails && ends == Ends::kWhilePlanning ? 3 : 2,
                                                     plan_model);
                                               }));
          WorkerSeat& seat = worker->seat();
          if (seat.transport == nullptr || seat.run.planned.plan.workers != 2) {
            return absl::InternalError("not a seat of this job");
          }
          // Worker 0 has verified the plan, and has told the others.
          RZ_ASSIGN_OR_RETURN(const std::string proof, context.Seat().rendezvous->Get(
                                                           "plan proof", std::chrono::seconds(1)));
          EXPECT_EQ(proof, seat.run.planned.proof.Write());
          absl::StatusOr<std::string> mine = absl::StrCat("of ", seat.self.value);
          if (fails && ends == Ends::kInTheLoop) mine = absl::NotFoundError("no such file");
          if (mine.ok()) RZ_RETURN_IF_ERROR(seat.transport->Close());
          seat.transport = nullptr;
          RZ_ASSIGN_OR_RETURN(const std::vector<std::string> all, worker->Close(mine));
          return absl::StrJoin(all, "+");
        });
  };
  const auto results = run(Ends::kWell);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT(*results, ElementsAre("of 0+of 1", "of 1"));
  EXPECT_THAT(run(Ends::kInTheLoop), Says(HasSubstr("worker 1: no such file")));
  EXPECT_THAT(run(Ends::kWhilePlanning), Says(HasSubstr("the plan has 3 workers")));
}

}  // namespace
}  // namespace ringzero
