// The parent: it never uses torch itself, so it may fork. Workers are its children: with shm one
// process each, with local the threads of one process. So both end alike, whatever ends them.
#include "integrations/cli/train.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "integrations/cli/local_workers.h"
#include "integrations/cli/parameter_files.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/progress.h"
#include "integrations/cli/resources.h"
#include "integrations/cli/run_setup.h"
#include "integrations/cli/summary.h"
#include "integrations/cli/train_worker.h"
#include "p2p/launcher.h"
#include "p2p/shm_transport.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

struct TrainRun {
  const CommandLine& line;
  const Config& config;
  const Dataset& data;
  const RunLength& length;
  ProgressScreen& screen;
};

// The first worker's number in front of a message says nothing when it stands for the whole run.
absl::Status WithoutWorker(const absl::Status& status) {
  std::string message(status.message());
  if (!absl::StartsWith(message, "worker 0: ")) return status;
  return absl::Status(status.code(), message.substr(std::string("worker 0: ").size()));
}

LaunchOptions LaunchOf(const TrainRun& run, int workers) {
  return {.workers = workers,
          .on_report = [&screen = run.screen](WorkerId, const std::string& kind,
                                              const std::string& text) {
            kind == "progress" ? screen.Progress(text) : screen.Note(text);
          }};
}

// Plans in a child of its own, so that what is wrong with the plan or with the initial values is
// said once, and before the workers start. Says what is going to run.
absl::Status CheckPlanInChild(const TrainRun& run) {
  const auto body = [&](WorkerContext& context) -> absl::StatusOr<std::string> {
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
  return WithoutWorker(LaunchProcesses(LaunchOf(run, 1), body).status());
}

TrainTask MakeTask(const TrainRun& run, PlannedRun planned, WorkerId self,
                   std::unique_ptr<Transport> transport, WorkerContext& context) {
  TrainTask task{.config = run.config,
                 .data = run.data,
                 .length = run.length,
                 .run = std::move(planned),
                 .self = self,
                 .transport = std::move(transport)};
  task.init = run.line.init;
  task.dump_parameters = run.line.dump_parameters;
  task.terminal = run.screen.terminal();
  task.say = [&context](const std::string& kind, const std::string& text) {
    context.Report(kind, text).IgnoreError();  // without a parent this process is ended anyhow
  };
  return task;
}

// One process per worker.
absl::StatusOr<std::vector<std::string>> RunShm(const TrainRun& run) {
  const auto body = [&](WorkerContext& context) -> absl::StatusOr<std::string> {
    PrepareTorch(run.config.cyclic.threads);
    PssWatch pss;
    RZ_ASSIGN_OR_RETURN(PlannedRun planned, PlanRun(run.config, run.length, run.data.shape()));
    std::unique_ptr<Transport> transport;
    if (NeedsTransport(planned.planned.plan)) {
      const TransportOptions needs = TransportNeeds(planned.planned.plan, planned.planned.layouts,
                                                    context.self(), kMetricsCount);
      RZ_ASSIGN_OR_RETURN(transport, CreateShmTransport(context.TakeEndpoint(), needs));
    }
    RZ_ASSIGN_OR_RETURN(WorkerReport report,
                        TrainWorker(MakeTask(run, std::move(planned), context.self(),
                                             std::move(transport), context)));
    report.pss_peak_mib = pss.peak_mib();
    return ToJson(report);
  };
  return LaunchProcesses(LaunchOf(run, run.config.cyclic.workers), body);
}

// One process, a thread per worker; its result is one line per worker.
absl::StatusOr<std::vector<std::string>> RunLocal(const TrainRun& run) {
  const auto body = [&](WorkerContext& context) -> absl::StatusOr<std::string> {
    PrepareTorch(run.config.cyclic.threads);
    PssWatch pss;
    RZ_ASSIGN_OR_RETURN(const PlannedRun planned,
                        PlanRun(run.config, run.length, run.data.shape()));
    const auto make_task = [&](WorkerId self, std::unique_ptr<Transport> transport) {
      return MakeTask(run, planned, self, std::move(transport), context);
    };
    RZ_ASSIGN_OR_RETURN(std::vector<WorkerReport> reports,
                        TrainLocalWorkers(planned.planned, make_task));
    std::vector<std::string> lines;
    for (WorkerReport& report : reports) {
      // One process for all: its memory counts once, and worker 0 reports its CPU time and faults.
      report.pss_peak_mib = pss.peak_mib() / static_cast<double>(reports.size());
      if (report.worker != 0) report.resources = {};
      lines.push_back(ToJson(report));
    }
    return absl::StrJoin(lines, "\n");
  };
  absl::StatusOr<std::vector<std::string>> result = LaunchProcesses(LaunchOf(run, 1), body);
  if (!result.ok()) return WithoutWorker(result.status());
  return std::vector<std::string>(absl::StrSplit((*result)[0], '\n'));
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

  const bool shm = config.cyclic.transport == CyclicConfig::Transport::kShm;
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> results, shm ? RunShm(run) : RunLocal(run));
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
