// A user's entry: workers as processes or threads, what they return and report, and whose fault it
// was.
#include "integrations/torch/run_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <map>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/torch/describe_model.h"
#include "integrations/torch/train_model.h"

namespace ringzero {
namespace {

using As = RunWorkersOptions::As;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Model TwoLayers() {
  return {.layers = {{.name = "a", .build = [] { return MakeLayer(torch::nn::Linear(3, 4)); }},
                     {.name = "b", .build = [] { return MakeLayer(torch::nn::Linear(4, 2)); }}},
          .example = {at::zeros({1, 3})}};
}

absl::StatusOr<PlannedRun> PlanFor(int workers) {
  Model model = TwoLayers();
  PlannedRun run{.layers = model.layers};
  RZ_ASSIGN_OR_RETURN(run.model, DescribeModel(run.layers, model.example));
  RZ_ASSIGN_OR_RETURN(run.planned,
                      PlanModel(run.model, {.workers = workers, .rule = Rule::kCdpV2}));
  return run;
}

// This process must stay free of torch's threads: only children compute.
class RunWorkersTest : public testing::TestWithParam<As> {};

TEST_P(RunWorkersTest, ResultsAndReportsComeByWorker) {
  std::map<int, std::vector<std::string>> reports;
  const auto results = RunWorkers(
      {.launch = {.workers = 3,
                  .on_report =
                      [&](WorkerId worker, const std::string& kind, const std::string& text) {
                        reports[worker.value].push_back(absl::StrCat(kind, "=", text));
                      }},
       .as = GetParam()},
      [] { return PlanFor(3); },
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
  if (GetParam() == As::kProcesses) {
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
               {.launch = {.workers = 3}, .as = GetParam()}, [] { return PlanFor(3); }, work)
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
}

TEST_P(RunWorkersTest, APlanThatFailsEndsAll) {
  const auto work = [](WorkerSeat) -> absl::StatusOr<std::string> { return "not reached"; };
  const RunWorkersOptions options{.launch = {.workers = 2}, .as = GetParam()};
  EXPECT_THAT(std::string(RunWorkers(
                              options, [] { return PlanFor(3); }, work)
                              .status()
                              .message()),
              HasSubstr("the plan has 3 workers, but 2 were asked for"));
  const auto thrown = RunWorkers(
      options, []() -> absl::StatusOr<PlannedRun> { TORCH_CHECK(false, "bad layer"); }, work);
  EXPECT_THAT(std::string(thrown.status().message()), HasSubstr("bad layer"));
}

// One worker, no transport: the same loop.
TEST_P(RunWorkersTest, TrainsAModel) {
  for (int workers : {1, 2}) {
    TrainOptions options{.plan = {.workers = workers, .rule = Rule::kDp, .iterations = 3},
                         .optimizer = {.type = OptimizerOptions::Type::kSgd, .learning_rate = 0.1},
                         .run = {.as = GetParam()}};
    const absl::Status status = TrainModel(options, TwoLayers, [](RingModel& ring) -> absl::Status {
      int trained = 0;
      while (true) {
        RZ_ASSIGN_OR_RETURN(const LapTask lap, ring.NextLap());
        if (lap.kind == LapTask::Kind::kDone) break;
        if (lap.kind == LapTask::Kind::kCollect) {
          RZ_RETURN_IF_ERROR(ring.Collect([](const NamedValues&) { return absl::OkStatus(); }));
          continue;
        }
        const at::Tensor loss = ring.Forward({at::ones({1, 3})})[0].square().sum();
        loss.backward();
        RZ_RETURN_IF_ERROR(ring.EndMicroBatch({loss.item<double>()}));
        ++trained;
      }
      return trained == 3 ? absl::OkStatus() : absl::InternalError(absl::StrCat(trained));
    });
    EXPECT_EQ(status, absl::OkStatus());
  }
}

// Worker 1 of 2 looks into every version; worker 0 gets the result.
TEST_P(RunWorkersTest, AnyWorkerMayLookInside) {
  TrainOptions options{.plan = {.workers = 2, .rule = Rule::kCdpV2, .iterations = 3},
                       .run = {.as = GetParam()}};
  options.plan.collection = {.every = 1, .worker = WorkerId(1)};
  const auto run = [&](const std::function<absl::Status(int, const NamedValues&)>& look) {
    return TrainModel(options, TwoLayers, [&](RingModel& ring) -> absl::Status {
      std::map<NamedValues::Kind, int> seen;
      int self = -1;
      while (true) {
        RZ_ASSIGN_OR_RETURN(const LapTask lap, ring.NextLap());
        if (lap.kind == LapTask::Kind::kDone) break;
        self = lap.micro_batch % 2;
        if (lap.kind == LapTask::Kind::kCollect) {
          RZ_RETURN_IF_ERROR(ring.Collect([&](const NamedValues& values) {
            ++seen[values.kind];
            return look(lap.iteration.value, values);
          }));
          continue;
        }
        const at::Tensor loss = ring.Forward({at::ones({1, 3})})[0].square().sum();
        loss.backward();
        RZ_RETURN_IF_ERROR(ring.EndMicroBatch({loss.item<double>()}));
      }
      // Two layers with weight and bias; AdamW has a step and two moments of each.
      using Kind = NamedValues::Kind;
      const int versions = self == 1 ? 3 : 0;
      const bool right = seen[Kind::kParameter] == (self == 1 ? 12 : 4) &&
                         seen[Kind::kGradient] == 4 * versions &&
                         seen[Kind::kState] == 12 * versions;
      return right ? absl::OkStatus() : absl::InternalError("another number was shown");
    });
  };
  EXPECT_EQ(
      run([](int version, const NamedValues& values) -> absl::Status {
        if (values.state == "step" && values.count != version) {
          return absl::InternalError(absl::StrCat(values.name, " step ", values.count));
        }
        const size_t wanted = values.name == "a.weight" ? 12 : values.name == "b.weight" ? 8 : 0;
        const bool right = values.count >= 0 || wanted == 0 || values.values.size() == wanted;
        return right ? absl::OkStatus() : absl::InternalError(values.name);
      }),
      absl::OkStatus());
  const absl::Status enough = run([](int version, const NamedValues& values) {
    return version == 2 && values.kind == NamedValues::Kind::kGradient
               ? absl::OutOfRangeError("seen enough")
               : absl::OkStatus();
  });
  EXPECT_EQ(enough.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(enough.message(), "worker 1: seen enough");
}

TEST_P(RunWorkersTest, ALoopThatEndsEarlyIsToldWhatIsLeft) {
  const TrainOptions options{.plan = {.workers = 2, .rule = Rule::kCdpV2, .iterations = 3},
                             .run = {.as = GetParam()}};
  const absl::Status status =
      TrainModel(options, TwoLayers, [](RingModel&) { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is still to be computed"));
}

TEST_P(RunWorkersTest, BadOptionsAreRefusedBeforeAnythingStarts) {
  const TrainOptions options{
      .plan = {.workers = 2}, .optimizer = {.learning_rate = -1}, .run = {.as = GetParam()}};
  const absl::Status status =
      TrainModel(options, TwoLayers, [](RingModel&) { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, RunWorkersTest, testing::Values(As::kProcesses, As::kThreads),
                         [](const auto& info) {
                           return info.param == As::kProcesses ? "Processes" : "Threads";
                         });

}  // namespace
}  // namespace ringzero
