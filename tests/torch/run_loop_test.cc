// Loops in processes: who is who, the same bits, and whose fault it was.
#include "integrations/torch/run_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/job/launcher.h"

namespace ringzero {
namespace {

using testing::HasSubstr;

constexpr int kMicroBatches = 6;
constexpr int kUpdates = 5;

using OnMicroBatch = std::function<void(int update, int micro_batch)>;

absl::Status Train(
    LoopWorker& worker, torch::nn::Linear& model, int updates,
    const OnMicroBatch& on_micro_batch = [](int, int) {}) {
  const ShardedOptimizerOptions options{.optimizer = {.learning_rate = 0.1, .max_norm = 0.1},
                                        .micro_batches = kMicroBatches / worker.workers(),
                                        .wait_timeout = std::chrono::seconds(60)};
  RZ_ASSIGN_OR_RETURN(auto* const optimizer, worker.MakeOptimizer(*model, options));
  for (int update = 0; update < updates; ++update) {
    for (int m = worker.self().value; m < kMicroBatches; m += worker.workers()) {
      on_micro_batch(update, m);
      optimizer->ZeroGrad();
      const auto seed = static_cast<uint64_t>(kMicroBatches * update + m);
      const at::Tensor x = at::randn({8, 4}, at::detail::createCPUGenerator(seed), at::kFloat);
      model->forward(x).square().mean().backward();
      RZ_RETURN_IF_ERROR(optimizer->Step());
    }
  }
  return optimizer->updates() == updates ? absl::OkStatus() : absl::InternalError("updates");
}

// The trained bits, told as an error: nothing else comes out of a loop.
absl::Status TellBits(LoopWorker& worker, int teller) {
  torch::manual_seed(17);
  torch::nn::Linear model(4, 3);
  RZ_RETURN_IF_ERROR(Train(worker, model, kUpdates));
  if (worker.self().value != teller) return absl::OkStatus();
  std::string bits;
  for (const at::Tensor& parameter : model->parameters()) {
    const at::Tensor words = parameter.detach().flatten().view(at::kInt);
    for (int64_t i = 0; i < words.numel(); ++i) {
      absl::StrAppend(&bits, " ", words[i].item<int>());
    }
  }
  return absl::AlreadyExistsError(bits);
}

TEST(RunLoopTest, ProcessesHaveTheBitsOfOne) {
  const auto told = [](int workers, int teller) {
    const auto run = [&] {
      return RunLoop({.launch = {.workers = workers}},
                     [&](LoopWorker& worker) { return TellBits(worker, teller); });
    };
    // One worker would compute here, and this process has to fork again.
    const absl::Status status =
        workers > 1
            ? run()
            : LaunchProcesses({.workers = 1}, [&](WorkerContext&) -> absl::StatusOr<std::string> {
                return run();
              }).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(absl::StrCat("worker ", teller, ":  ")));
    return message.substr(message.find(':'));
  };
  const std::string one = told(1, 0);
  EXPECT_EQ(told(3, 0), one);
  EXPECT_EQ(told(3, 2), one);
  EXPECT_EQ(told(2, 1), one);
}

TEST(RunLoopTest, SaysOnceWhoOwnsHowMuch) {
  testing::internal::CaptureStderr();
  const absl::Status status = RunLoop({.launch = {.workers = 2}}, [](LoopWorker& worker) {
    torch::nn::Linear model(4, 3);
    return Train(worker, model, 1);
  });
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "optimizer: worker 0 owns 48 bytes of parameters, worker 1 12; the fullest has 1.60 times "
      "the mean\n");
  EXPECT_TRUE(status.ok()) << status;
}

TEST(RunLoopTest, TheFirstCauseIsNamed) {
  const auto fails = [](int in_update) {
    return RunLoop({.launch = {.workers = 3}}, [&](LoopWorker& worker) -> absl::Status {
      if (in_update < 0 && worker.self().value == 1) return absl::NotFoundError("no such file");
      torch::nn::Linear model(4, 3);
      return Train(worker, model, kUpdates, [&](int update, int micro_batch) {
        if (update == in_update && micro_batch == 1) throw std::runtime_error("out of patience");
      });
    });
  };
  EXPECT_EQ(fails(-1), absl::NotFoundError("worker 1: no such file"));
  EXPECT_THAT(fails(0).ToString(), HasSubstr("worker 1: out of patience"));
  EXPECT_THAT(fails(3).ToString(), HasSubstr("worker 1: out of patience"));
}

TEST(RunLoopTest, LoopsThatAreNotAlikeAreToldSo) {
  const absl::Status differ = RunLoop({.launch = {.workers = 2}}, [](LoopWorker& worker) {
    torch::nn::Linear model(4, 3 + worker.self().value);
    return Train(worker, model, 1);
  });
  EXPECT_THAT(differ.ToString(), HasSubstr("INVALID_ARGUMENT: worker 1 has weight = [4, 4]"));
  const absl::Status shorter = RunLoop({.launch = {.workers = 2}}, [](LoopWorker& worker) {
    torch::nn::Linear model(4, 3);
    return Train(worker, model, 2 - worker.self().value);
  });
  // It left in the middle of an update, as worker 0 sees it.
  EXPECT_THAT(shorter.ToString(), HasSubstr("worker 1 "));
  EXPECT_THAT(shorter.ToString(), HasSubstr("goodbye"));
}

TEST(RunLoopTest, AWorkerHasOneOptimizer) {
  const absl::Status twice = RunLoop({.launch = {.workers = 2}}, [](LoopWorker& worker) {
    torch::nn::Linear model(4, 3);
    RZ_RETURN_IF_ERROR(Train(worker, model, 1));
    return worker.MakeOptimizer(*model, {}).status();
  });
  EXPECT_THAT(twice.ToString(), HasSubstr("a loop has one optimizer"));
  EXPECT_FALSE(
      RunLoop({.launch = {.workers = 0}}, [](LoopWorker&) { return absl::OkStatus(); }).ok());
}

}  // namespace
}  // namespace ringzero
