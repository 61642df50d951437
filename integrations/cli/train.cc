// The parent: it never uses torch itself, so it may fork. Workers are its children: with shm one
// process each, with local the threads of one process. So both end alike, whatever ends them.
#include "integrations/cli/train.h"

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "integrations/cli/injection.h"
#include "integrations/cli/parameter_files.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/progress.h"
#include "integrations/cli/resources.h"
#include "integrations/cli/run_setup.h"
#include "integrations/cli/summary.h"
#include "integrations/cli/train_worker.h"
#include "integrations/torch/run_workers.h"
#include "p2p/launcher.h"

namespace ringzero {
namespace {

struct TrainRun {
  const CommandLine& line;
  const Config& config;
  const Dataset& data;
  const RunLength& length;
  ProgressScreen& screen;
};

std::function<void(WorkerId, const std::string&, const std::string&)> Listener(
    const TrainRun& run) {
  return [&screen = run.screen](WorkerId, const std::string& kind, const std::string& text) {
    kind == "progress" ? screen.Progress(text) : screen.Note(text);
  };
}

// For a process that is no single worker's.
Injection InjectionAnywhere(const TrainRun& run) {
  return Injection(run.config.cyclic.inject, WorkerId(run.config.cyclic.inject.worker));
}

// Plans in a child of its own, so that what is wrong with the plan or with the initial values is
// said once, and before the workers start. Says what is going to run.
absl::Status CheckPlanInChild(const TrainRun& run) {
  const auto body = [&](WorkerContext& context) -> absl::StatusOr<std::string> {
    InjectionAnywhere(run).Reach(InjectConfig::Point::kPlan);
    PrepareTorch(run.config.cyclic.threads);
    RZ_ASSIGN_OR_RETURN(const PlannedRun planned,
                        PlanRun(run.config, run.length, run.data.shape()));
    if (!run.line.init.empty()) {
      RZ_RETURN_IF_ERROR(InitFile::Open(run.line.init, planned.model).status());
    }
    const Plan& plan = planned.planned.plan;
    RZ_RETURN_IF_ERROR(context.Report(
        "note", absl::StrFormat("%d parameters in %d layers, %d stages; %d workers (%s), rule %s, "
                                "%d iterations of %d samples",
                                planned.model.parameter_count, planned.model.layers.size(),
                                plan.stage_count(), plan.workers,
                                run.config.keys.String("cyclic.transport"), ToString(plan.rule),
                                plan.iterations, run.config.batch.train_batch)));
    for (const std::string& warning : planned.planned.warnings) {
      RZ_RETURN_IF_ERROR(context.Report("note", absl::StrCat("warning: ", warning)));
    }
    return std::string();
  };
  const LaunchOptions launch{
      .workers = 1, .on_report = Listener(run), .peer_timeout = run.config.cyclic.peer_timeout};
  return WithoutProcess(LaunchProcesses(launch, body).status(), "the planning process");
}

TrainTask MakeTask(const TrainRun& run, WorkerSeat seat) {
  TrainTask task{.config = run.config,
                 .data = run.data,
                 .length = run.length,
                 .run = seat.run,
                 .self = seat.self,
                 .transport = std::move(seat.transport)};
  task.init = run.line.init;
  task.dump_parameters = run.line.dump_parameters;
  task.terminal = run.screen.terminal();
  task.say = [report = std::move(seat.report)](const std::string& kind, const std::string& text) {
    report(kind, text).IgnoreError();  // without a parent this process is ended anyhow
  };
  return task;
}

// One report, as JSON, per worker.
absl::StatusOr<std::vector<std::string>> RunAllWorkers(const TrainRun& run) {
  const bool processes = run.config.cyclic.transport == CyclicConfig::Transport::kShm;
  RunWorkersOptions options{
      .workers = run.config.cyclic.workers,
      .as = processes ? RunWorkersOptions::As::kProcesses : RunWorkersOptions::As::kThreads,
      .threads = run.config.cyclic.threads,
      .metrics_count = kMetricsCount,
      .peer_timeout = run.config.cyclic.peer_timeout,
      .checksums = run.config.cyclic.checksums};
  options.on_report = Listener(run);
  const InjectConfig& inject = run.config.cyclic.inject;
  options.on_start = [&](WorkerId self) {
    const Injection injection = processes ? Injection(inject, self) : InjectionAnywhere(run);
    injection.Reach(InjectConfig::Point::kStart);
  };
  options.decorate = [&](std::unique_ptr<Transport> transport) {
    const WorkerId self = transport->self();
    return Injection(inject, self).Wrap(std::move(transport));
  };
  const auto work = [&](WorkerSeat seat) -> absl::StatusOr<std::string> {
    PssWatch pss;
    const Injection injection(inject, seat.self);
    injection.Reach(InjectConfig::Point::kConnect);
    RZ_ASSIGN_OR_RETURN(WorkerReport report, TrainWorker(MakeTask(run, std::move(seat))));
    report.pss_peak_mib = pss.peak_mib();
    if (!processes) {
      // One process for all: its memory counts once, and worker 0 reports its CPU time and faults.
      report.pss_peak_mib /= options.workers;
      if (report.worker != 0) report.resources = {};
    }
    injection.Reach(InjectConfig::Point::kEnd);
    return ToJson(report);
  };
  return RunWorkers(
      options, [&] { return PlanRun(run.config, run.length, run.data.shape()); }, work);
}

absl::Status CheckFiles(const CommandLine& line) {
  for (const std::string& path : {line.summary, line.dump_parameters}) {
    if (!path.empty()) RZ_RETURN_IF_ERROR(CheckWritable(path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunTrain(const CommandLine& line) {
  const auto start = std::chrono::steady_clock::now();
  RZ_RETURN_IF_ERROR(CheckFiles(line));
  RZ_ASSIGN_OR_RETURN(const Config config, LoadConfig(line.config, line.overrides));
  RZ_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data, OpenData(config));
  RZ_ASSIGN_OR_RETURN(const RunLength length, MeasureRun(config, *data));
  ProgressScreen screen(stderr);
  const TrainRun run{line, config, *data, length, screen};
  RZ_RETURN_IF_ERROR(CheckPlanInChild(run));
  for (const std::string& note : length.notes) screen.Note(note);

  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> results, RunAllWorkers(run));
  std::vector<WorkerReport> reports;
  for (const std::string& result : results) {
    RZ_ASSIGN_OR_RETURN(WorkerReport report, FromJson(result));
    reports.push_back(std::move(report));
  }
  screen.Clear();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const Summary summary = Summarize(
      {.config = config, .iterations = length.iterations, .seconds = seconds.count()}, reports);
  if (!line.summary.empty()) RZ_RETURN_IF_ERROR(WriteFileAtomically(line.summary, summary.json));
  std::fputs(summary.text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace ringzero
