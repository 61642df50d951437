// Workers as threads.
#include "tests/support/ring_runner.h"

#include <ATen/Parallel.h>

#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/torch/describe_model.h"
#include "sharding/rules/schedule.h"
#include "tests/sharding/test_plans.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

struct Shared {
  std::mutex mutex;
  TrainingResult result;
  absl::Status error;
};

absl::Status Evaluate(const TrainingTask& task, RingModel& model, const TaskBatch& batch) {
  return Guard([&]() -> absl::Status {
    const at::Tensor loss = task.loss(model.Forward(batch.inputs), batch.target);
    return model.EndMicroBatch({loss.item<double>()});
  });
}

std::string PartOf(const NamedValues& values) {
  switch (values.kind) {
    case NamedValues::Kind::kParameter: return "parameter";
    case NamedValues::Kind::kStatistic: return "statistic";
    case NamedValues::Kind::kGradient: return "gradient";
    case NamedValues::Kind::kState: return values.state;
  }
  return "";
}

absl::Status Collect(RingModel& model, const LapTask& lap, Shared& shared) {
  const Plan& plan = model.engine().plan();
  const int self = lap.micro_batch % plan.workers, version = lap.iteration.value;
  const bool whole = IsCollected(plan, Version(version)) && self == plan.collection.worker.value;
  return model.Collect([&](const NamedValues& values) -> absl::Status {
    const std::vector<float> shown =
        values.count >= 0 ? std::vector<float>{float(values.count)} : values.values;
    std::lock_guard lock(shared.mutex);
    if (whole) {
      const std::string name = absl::StrCat(PartOf(values), " ", values.name);
      if (!shared.result.collected[version].emplace(name, shown).second) {
        return absl::InternalError(absl::StrCat(name, " is shown twice"));
      }
    }
    if (self != 0 || version != plan.iterations) return absl::OkStatus();
    if (values.kind == NamedValues::Kind::kParameter) shared.result.parameters[values.name] = shown;
    if (values.kind == NamedValues::Kind::kStatistic) shared.result.statistics[values.name] = shown;
    return absl::OkStatus();
  });
}

absl::Status RunWorker(const TrainingTask& task, const RingOptions& options,
                       RingModelOptions model_options, Shared& shared) {
  at::set_num_threads(1);
  model_options.engine.on_report = [&shared](Iteration, LapTask::Kind kind,
                                             const std::vector<double>& metrics) {
    std::lock_guard lock(shared.mutex);
    auto& into = kind == LapTask::Kind::kTrain ? shared.result.losses : shared.result.evaluations;
    into.push_back(metrics[0]);
  };
  if (options.prepare) RZ_RETURN_IF_ERROR(options.prepare(model_options));
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<RingModel> model,
                      RingModel::Create(std::move(model_options)));
  while (true) {
    RZ_ASSIGN_OR_RETURN(const LapTask lap, model->NextLap());
    if (lap.kind == LapTask::Kind::kDone) {
      RZ_RETURN_IF_ERROR(model->Finish());
      std::lock_guard lock(shared.mutex);
      shared.result.skipped = model->engine().stats().skipped_updates;
      return absl::OkStatus();
    }
    if (lap.kind == LapTask::Kind::kCollect) {
      RZ_RETURN_IF_ERROR(Collect(*model, lap, shared));
      continue;
    }
    const bool evaluation = lap.kind == LapTask::Kind::kEvaluate;
    if (lap.missing()) {
      RZ_RETURN_IF_ERROR(model->SkipMicroBatch({0}));
      continue;
    }
    TaskBatch batch = task.batch(lap.iteration.value, lap.micro_batch, evaluation);
    if (lap.samples.has_value()) batch = FirstSamples(batch, *lap.samples, task.micro_batch);
    if (evaluation) {
      RZ_RETURN_IF_ERROR(Evaluate(task, *model, batch));
    } else if (options.step) {
      RZ_RETURN_IF_ERROR(Guard([&] { return options.step(*model, lap, batch); }));
    } else {
      RZ_RETURN_IF_ERROR(TrainStep(task, *model, batch));
    }
  }
}

RingModelOptions OptionsOf(const TrainingTask& task, const PlannedTask& planned, WorkerId self) {
  return {
      .layers = task.layers,
      .planned = planned.planned,
      .engine = {.self = self, .optimizer = task.optimizer, .seed = task.seed, .metrics_count = 1}};
}

}  // namespace

absl::StatusOr<PlannedTask> PlanTask(const TrainingTask& task, const PlanRequest& request) {
  PlannedTask planned;
  RZ_ASSIGN_OR_RETURN(planned.description, DescribeModel(task.layers, task.example));
  PlanRequest own = request;
  own.precision = task.precision;
  RZ_ASSIGN_OR_RETURN(planned.planned, PlanModel(planned.description, own));
  return planned;
}

absl::Status UseSmallestWindow(PlannedTask& planned) {
  RZ_ASSIGN_OR_RETURN(planned.planned.plan.window, SmallestWindow(planned.plan()));
  return absl::OkStatus();
}

absl::Status TrainStep(const TrainingTask& task, RingModel& model, const TaskBatch& batch) {
  return Guard([&]() -> absl::Status {
    const at::Tensor loss = task.loss(model.Forward(batch.inputs), batch.target);
    if (loss.requires_grad()) loss.backward();
    const double samples =
        task.epoch_samples == 0 ? 1 : static_cast<double>(batch.inputs[0].size(0));
    return model.EndMicroBatch({samples * loss.item<double>()});
  });
}

absl::StatusOr<std::unique_ptr<RingModel>> MakeLoneModel(const TrainingTask& task,
                                                         const PlannedTask& planned) {
  return RingModel::Create(OptionsOf(task, planned, WorkerId(0)));
}

absl::StatusOr<TrainingResult> RunRing(const TrainingTask& task, const PlannedTask& planned,
                                       const RingOptions& options) {
  const Plan& plan = planned.plan();
  std::vector<TransportOptions> needs;
  for (int w = 0; w < plan.workers; ++w) {
    RZ_ASSIGN_OR_RETURN(TransportOptions each, TransportNeeds(plan, WorkerId(w), 1));
    needs.push_back(std::move(each));
  }
  std::vector<std::unique_ptr<Transport>> transports(plan.workers);
  if (plan.exchange) {
    RZ_ASSIGN_OR_RETURN(transports, options.transports(needs));
  }
  Shared shared;
  std::vector<std::thread> threads;
  for (int w = 0; w < plan.workers; ++w) {
    threads.emplace_back([&, w] {
      RingModelOptions model = OptionsOf(task, planned, WorkerId(w));
      model.engine.wait_timeout = options.wait_timeout;
      model.products_first = options.products_first;
      model.engine.transport = std::move(transports[w]);
      const absl::Status status = RunWorker(task, options, std::move(model), shared);
      std::lock_guard lock(shared.mutex);
      if (!status.ok() && shared.error.ok()) {
        shared.error = Annotate(status, absl::StrCat("worker ", w));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!shared.error.ok()) return shared.error;
  return std::move(shared.result);
}

}  // namespace ringzero
