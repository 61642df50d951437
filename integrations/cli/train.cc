// The parent: it never uses torch itself, so it may fork. Workers are its children: one process
// each or, with the transport local, the threads of one child. So processes and threads end alike,
// whatever ends them. In a job that an outside launcher has started there is no parent: this
// process is one worker, and worker 0 speaks for all.
#include <unistd.h>

#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/status.h"
#include "base/system_names.h"
#include "base/texts.h"
#include "integrations/cli/command_line.h"
#include "integrations/cli/parameter_files.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/provenance.h"
#include "integrations/cli/resources.h"
#include "integrations/cli/run_metrics.h"
#include "integrations/cli/train_worker.h"
#include "integrations/sight/chrome_trace.h"
#include "integrations/sight/flight_desk.h"
#include "integrations/sight/metrics.h"
#include "integrations/torch/measurements.h"
#include "integrations/torch/run_workers.h"
#include "integrations/torch/tcp_rendezvous.h"
#include "p2p/failure.h"
#include "p2p/job/join_job.h"
#include "p2p/job/launcher.h"
#include "p2p/job/limits.h"
#include "p2p/job/rendezvous.h"

namespace ringzero {
namespace {

// Used by this process' only thread.
struct TrainRun {
  const CommandLine& line;
  RunInput input;                     // its proof and its rule come with the first plan
  const std::optional<JobSeat> seat;  // in a job from outside
  FlightDesk desk;
  ProgressScreen screen;
  SummaryInfo told{.input = input};  // as far as it is known
  double worker_flops = 0;           // per second, of a worker with its own cores; 0: not known yet
  int interrupted_by = 0;            // the signal that interrupted the workers

  const Config& config() const { return input.config; }
  bool speaks() const { return !seat.has_value() || seat->self.value == 0; }

  // Says it once, whichever worker meets it first.
  void Miss(const std::string& what, absl::string_view why) {
    if (!told.not_written.emplace(what, why).second) return;
    screen.Note(absl::StrCat("warning: ", what, ": ", why, " (this does not end the run)"));
  }
};

std::function<void(WorkerId, const std::string&, const std::string&)> Listener(TrainRun& run) {
  return [&run](WorkerId, const std::string& kind, const std::string& text) {
    if (kind == "not_written") {
      const auto [what, why] = SplitOnce(text, ": ");
      run.Miss(std::string(what), why);
    } else {
      kind == "progress" ? run.screen.Progress(text) : run.screen.Note(text);
    }
  };
}

// The injection in a process that is no single worker's: it acts, whichever worker is meant.
Injection InjectionAnywhere(const TrainRun& run) {
  return Injection(run.config().cyclic.inject, WorkerId(run.config().cyclic.inject.worker));
}

using Note = std::function<void(const std::string&)>;

// What a cyclic rule gains and costs, and what it begins with; before it why this rule, if chosen.
std::string DescribeRule(const PlannedModel& planned, const RunLength& length) {
  const Plan& plan = planned.plan;
  const std::string& why = planned.rule_choice;
  if (plan.rule == Rule::kDp) return why;
  return absl::StrFormat(
      "%srule %s, K = %d: a worker waits less than with dp, but the first of its K micro-batches "
      "per update reads older parameters, which can cost loss, most of all with K = 1 "
      "(docs/results/rules_study.md)%s",
      why.empty() ? "" : why + "\n", ToString(plan.rule), plan.laps,
      length.rule_choice.empty() ? "" : "\n" + length.rule_choice);
}

// Says what is going to run.
void SayPlan(const TrainRun& run, const PlannedRun& planned, const Note& note) {
  const Plan& plan = planned.planned.plan;
  note(absl::StrFormat(
      "%d parameters in %d layers, %d stages; %d workers (%s), rule %s, %d iterations of %d "
      "samples",
      planned.model.parameter_count, planned.model.layers.size(), plan.stage_count(), plan.workers,
      run.config().keys.String("cyclic.transport"), ToString(plan.rule), plan.iterations,
      run.config().batch.train_batch));
  if (!run.told.rule_text.empty()) note(run.told.rule_text);
  for (const std::string& warning : planned.planned.warnings) {
    note(absl::StrCat("warning: ", warning));
  }
}

// For the summary: by place, bytes by category, the peak, and the budget.
OrderedJson RunFitJson(const RunFit& fit) {
  OrderedJson json;
  for (const MemoryPlace place : kAllMemoryPlaces) {
    const int host = fit.certificate.FullestHost(place);
    OrderedJson& of = json[ToString(place)];
    for (const FitLine& line : fit.certificate.lines) {
      if (line.place == place) of[line.name] = fit.certificate.Bytes(line, host);
    }
    of["peak"] = fit.certificate.HostPeak(host, place);
    of["budget"] = fit.budgets[static_cast<size_t>(place)].bytes;
  }
  return json;
}

// Plans, checks what can be checked with the plan, and says what is going to run.
absl::StatusOr<PlannedRun> PlanAndCheck(TrainRun& run, const PlanFunction& plan_model,
                                        const Note& note) {
  RZ_ASSIGN_OR_RETURN(PlannedRun planned, PlanRun(run.input, plan_model));
  run.input.chosen = planned.planned.plan.rule;
  run.told.rule_text = DescribeRule(planned.planned, run.input.length);
  const std::string& dump = run.line.dump_parameters;
  if (!run.line.init.empty()) {
    std::vector<std::string> strays;
    RZ_RETURN_IF_ERROR(
        OpenInitFile(run.line.init, planned.model, run.line.init_partial ? &strays : nullptr)
            .status());
    if (run.speaks() && !strays.empty()) {
      note(absl::StrCat(run.line.init, ": ", absl::StrJoin(strays, ", ")));
    }
  }
  if (!dump.empty() && run.speaks()) {
    RZ_RETURN_IF_ERROR(
        Annotate(CheckWritable(dump, DumpBytes(planned.planned.layouts)), "--dump-parameters"));
  }
  if (run.speaks()) SayPlan(run, planned, note);
  if (run.input.resumed != nullptr && run.speaks()) {
    const std::string start =
        DescribeNewStart(*run.input.resumed, planned.planned.plan, planned.planned.layouts);
    if (!start.empty()) note(start);
  }
  const Parent parent = run.seat.has_value() ? Parent::kStranger : Parent::kLauncher;
  RZ_ASSIGN_OR_RETURN(const RunFit fit, FitRun(run.input, planned, parent));
  RZ_RETURN_IF_ERROR(Annotate(CheckFit(fit.certificate, fit.budgets), run.config().keys.file()));
  run.told.certificate = RunFitJson(fit);
  if (!run.speaks()) return planned;
  const std::string slow = DescribeSlowType(run.config());
  if (!slow.empty()) note(slow);
  if (!fit.text.empty()) note(fit.text);
  if (planned.planned.plan.uses_disk()) {
    RZ_ASSIGN_OR_RETURN(const TierVerdict disk, JudgeRunDisk(run.input, planned));
    note(disk.text.substr(0, disk.text.size() - 1));
    const DiskVerdict& verdict = disk.verdict;
    run.told.disk = {{"needs", verdict.needs},     {"has", verdict.has},  // bytes per second
                     {"step", verdict.step},       {"step_in_memory", verdict.step_in_memory},
                     {"hidden", verdict.hidden()}, {"written_bytes", verdict.written_bytes},
                     {"waits", verdict.waits}};
  }
  run.worker_flops = MeasureFlops(run.config().precision.compute);
  return planned;
}

// Plans in a child of its own, so that what is wrong with the plan or with the initial values is
// said once, and before the workers start.
absl::Status CheckPlanInChild(TrainRun& run) {
  const auto body = [&](WorkerContext& context) -> absl::StatusOr<std::string> {
    InjectionAnywhere(run).Reach(InjectConfig::Point::kPlan);
    PrepareTorch(run.config().cyclic.threads);
    // If the parent is gone, this process is ended anyhow.
    const auto note = [&](const std::string& text) { context.Report("note", text).IgnoreError(); };
    RZ_ASSIGN_OR_RETURN(const PlannedRun planned, PlanAndCheck(run, PlanModel, note));
    return OrderedJson({{"flops", run.worker_flops},
                        {"certificate", run.told.certificate},
                        {"disk", run.told.disk},
                        {"rule", ToString(planned.planned.plan.rule)},
                        {"rule_text", run.told.rule_text},
                        {"streamed", {run.input.streamed.share, run.input.streamed.staging_bytes}},
                        {"proof", planned.planned.proof.Write()}})
        .dump();
  };
  const LaunchOptions launch{.alone = kPlanningProcess,
                             .on_report = Listener(run),
                             .peer_timeout = run.config().cyclic.peer_timeout};
  RZ_ASSIGN_OR_RETURN(const std::vector<std::string> results, LaunchProcesses(launch, body));
  const OrderedJson found = OrderedJson::parse(results[0]);
  run.worker_flops = found["flops"];
  run.told.certificate = found["certificate"];
  run.told.disk = found["disk"];
  run.told.rule_text = found["rule_text"];
  RZ_ASSIGN_OR_RETURN(run.input.chosen, ParseRule(found["rule"]));
  run.input.streamed = {found["streamed"][0], found["streamed"][1]};
  RZ_ASSIGN_OR_RETURN(run.input.proof, PlanProof::Parse(found["proof"]));
  return absl::OkStatus();
}

// Runs one worker; returns its report.
absl::StatusOr<std::string> Work(TrainRun& run, WorkerSeat seat) {
  PssWatch pss;
  const Injection injection(run.config().cyclic.inject, seat.self);
  injection.Reach(InjectConfig::Point::kConnect);
  OrderedJson place = ThisPlace();
  if (seat.transport != nullptr) {
    place["transport"] =
        seat.transport->LinkTo(WorkerId((seat.self.value + 1) % seat.transport->workers()));
  }
  // If workers share a process, its memory counts once; worker 0 reports its CPU time and faults.
  const bool processes = run.config().cyclic.transport != TransportChoice::kLocal;
  const int sharers = processes ? 1 : run.config().cyclic.workers;
  TrainTask task{.input = run.input,
                 .seat = std::move(seat),
                 .line = run.line,
                 .desk = &run.desk,
                 .launched = run.seat.has_value(),
                 .terminal = run.screen.terminal(),
                 .worker_flops = run.worker_flops,
                 .pss_mib = [&] { return pss.last_mib() / sharers; }};
  RZ_ASSIGN_OR_RETURN(WorkerReport report, TrainWorker(std::move(task)));
  report.pss_peak_mib = pss.peak_mib() / sharers;
  report.place = std::move(place);
  if (!processes && report.worker != 0) report.steps.all.cpu = report.steps.all.minor_faults = 0;
  injection.Reach(InjectConfig::Point::kEnd);
  return ToBytes(report);
}

// One report per worker; in a job from outside at worker 0 only.
absl::StatusOr<std::vector<std::string>> RunAllWorkers(TrainRun& run) {
  const Config& config = run.config();
  const bool processes = config.cyclic.transport != TransportChoice::kLocal;
  RunWorkersOptions options{
      .launch = {.workers = config.cyclic.workers,
                 .peer_timeout = config.cyclic.peer_timeout,
                 .pass_on = {kDumpSignal, kTraceSignal},
                 .interrupt = {.signal = kInterruptSignal, .by = &run.interrupted_by}},
      .seat = run.seat,
      .agreement = {{"configuration", config.keys.SharedLines()},
                    {"data", DataLines(*run.input.data)}},
      .transport = config.cyclic.transport,
      .threads = config.cyclic.threads,
      .metrics_count = kMetricsCount,
      .checksums = config.cyclic.checksums};
  const auto& checkpoint = config.cyclic.checkpoint;
  const bool saves_on_signal = checkpoint.on_signal && checkpoint.on_request();
  if (saves_on_signal) options.launch.interrupt.patience = checkpoint.grace;
  if (run.speaks()) options.launch.on_report = Listener(run);
  const InjectConfig& inject = config.cyclic.inject;
  options.on_start = [&, saves_on_signal](WorkerId self) {
    if (processes) {
      NameProcess(absl::StrCat("ringzero worker ", self.value));
      NameThread(absl::StrCat("ringzero w", self.value));  // the longer name does not fit
    }
    // Our launcher gets a SIGTERM that is for its whole group, too, and asks this worker to save.
    const bool launched = processes && !run.seat.has_value();
    if (launched && saves_on_signal) std::signal(SIGTERM, SIG_IGN);
    const Injection injection = processes ? Injection(inject, self) : InjectionAnywhere(run);
    injection.Reach(InjectConfig::Point::kStart);
    const absl::Status watched = run.desk.Start();
    if (!watched.ok()) std::fprintf(stderr, "warning: %s\n", watched.ToString().c_str());
  };
  options.decorate = [&](std::unique_ptr<Transport> transport) {
    const WorkerId self = transport->self();
    return Injection(inject, self).Wrap(std::move(transport));
  };
  const auto plan = [&](const PlanFunction& plan_model) {
    // For the workers that we launch, CheckPlanInChild has checked and spoken before.
    if (!run.seat.has_value()) return PlanRun(run.input);
    return PlanAndCheck(run, plan_model, [&](const std::string& text) { run.screen.Note(text); });
  };
  return RunWorkers(options, plan, [&](WorkerSeat seat) { return Work(run, std::move(seat)); });
}

// AlreadyExists: it holds metrics of an earlier run that this run does not go on from.
absl::Status MakeMetricsFolder(const std::string& folder, bool goes_on) {
  for (const char* const name : {"run.json", "metrics.jsonl", "tensorboard", "csv", "config.json",
                                 "provenance.json", "summary.json"}) {
    const std::string path = absl::StrCat(folder, "/", name);
    std::error_code missing;
    if (goes_on || !std::filesystem::exists(path, missing)) continue;
    return absl::AlreadyExistsError(absl::StrCat("--metrics ", folder, ": holds ", path,
                                                 " of an earlier run; name another folder, or "
                                                 "remove it"));
  }
  RZ_RETURN_IF_ERROR(MakeFolders(folder));
  return CheckWritable(absl::StrCat(folder, "/run.json"));
}

absl::Status CheckFiles(const CommandLine& line, const Config& config) {
  if (!line.metrics.empty())
    RZ_RETURN_IF_ERROR(MakeMetricsFolder(line.metrics, line.resume.has_value()));
  return CheckOutputFiles({{"--summary", line.summary},
                           {"--dump-parameters", line.dump_parameters},
                           {"--trace", line.trace}},
                          {{"CONFIG", line.config},
                           {"--again", line.again},
                           {"--init", line.init},
                           {"data.path", config.data.path},
                           {"cyclic.profile", config.cyclic.profile},
                           {"cyclic.efficiency", config.cyclic.efficiency}});
}

absl::Status CheckMonitors(const Config& config) {
  for (const auto& [section, monitor] : {std::pair("tensorboard", config.tensorboard),
                                         std::pair("csv_monitor", config.csv_monitor)}) {
    if (!monitor.has_value()) continue;
    const absl::Status made = MakeMonitorFolder(*monitor).status();
    if (!made.ok()) return config.Error(absl::StrCat(section, ".output_path"), made.message());
  }
  return absl::OkStatus();
}

absl::StatusOr<RunInput> Prepare(const CommandLine& line, absl::StatusOr<Config> loaded,
                                 const std::optional<OutsideJob>& job) {
  RZ_ASSIGN_OR_RETURN(Config config, std::move(loaded));
  RZ_RETURN_IF_ERROR(CheckFolder({"--flight", line.flight}));
  if (!job.has_value() || job->seat.self.value == 0) {
    RZ_RETURN_IF_ERROR(CheckFiles(line, config));
    RZ_RETURN_IF_ERROR(CheckMonitors(config));
  }
  if (job.has_value() && config.cyclic.transport == TransportChoice::kLocal) {
    return config.Error(
        "cyclic.transport", "local is for threads of one process, but this one is worker ",
        job->seat.self.value, " of ", job->seat.workers, " (", job->identity.source, ")");
  }
  std::vector<std::string> hosts;
  if (job.has_value()) hosts = job->seat.hosts;
  RZ_ASSIGN_OR_RETURN(RunInput input, OpenRun(std::move(config), std::move(hosts)));
  const TraceIterations traced = line.trace_iterations.value_or(TraceIterations());
  if (traced.first > input.length.iterations) {
    return InvalidArgument("--trace-iterations ", traced.first, ":", traced.last, ": the run has ",
                           input.length.iterations);
  }
  RZ_RETURN_IF_ERROR(OpenCheckpoints(line, job, input));
  return input;
}

// Removes what earlier runs have left where this run's records go.
void RemoveOldFlights(TrainRun& run) {
  const int workers = run.config().cyclic.workers;
  const WorkerId first(run.seat.has_value() ? run.seat->self.value : 0);
  const WorkerId from(!run.seat.has_value() ? 0 : run.speaks() ? workers : INT_MAX);
  RemoveFlights(run.desk.folder(), first, from);
  if (!run.line.trace.empty()) RemoveFlights(TraceParts(run.line.trace), first, from);
  if (!run.line.metrics.empty()) RemoveFlights(MetricsFlights(run.line.metrics), first, from);
}

// Joins the parts to the trace `file` and removes them. FailedPrecondition, naming what to do, if
// not all workers' parts are here: the other parts are on the hosts of their workers.
absl::Status JoinTrace(const std::string& file, int workers) {
  const std::string parts = TraceParts(file);
  RZ_ASSIGN_OR_RETURN(const std::vector<FlightRecord> records, ReadFlightFolder(parts));
  if (static_cast<int>(records.size()) != workers) {
    return FailedPrecondition("the trace has parts of ", records.size(), " of ", workers,
                              " workers here; bring those of the other hosts to ", parts,
                              " and run: ringzero trace ", parts, " --out ", file);
  }
  RZ_RETURN_IF_ERROR(WriteTrace(file, ChromeTrace(records)));
  RemoveFlights(parts, WorkerId(0), WorkerId(0));
  rmdir(parts.c_str());
  return absl::OkStatus();
}

// Says where a failed run has left its records; joins the parts of a trace.
void LookBack(TrainRun& run, const absl::Status& status) {
  const std::string& folder = run.desk.folder();
  if (!status.ok()) {
    const absl::Status records = ReadFlightFolder(folder).status();
    if (records.ok()) {
      run.screen.Note(absl::StrCat("flight records are in ", folder, ": ringzero blame ", folder,
                                   " says who waited for whom"));
    } else if (!absl::IsNotFound(records)) {
      run.screen.Note(absl::StrCat("flight records are not to be read: ", records.message(),
                                   " (runs that share a folder need a --flight each)"));
    }
  }
  if (run.line.trace.empty()) return;
  const absl::Status joined = JoinTrace(run.line.trace, run.config().cyclic.workers);
  if (joined.ok()) return;
  if (status.ok() && !absl::IsFailedPrecondition(joined)) {
    run.Miss("trace", joined.message());
  } else if (!run.told.not_written.contains("trace")) {
    run.screen.Note(std::string(joined.message()));
  }
}

// Writes the summary. Returns why it is not at --summary, and where it is instead; or nothing.
std::string WriteSummary(const std::string& path, const std::string& json) {
  if (path.empty()) return "";
  const absl::Status written = WriteWholeFile(path, json);
  if (written.ok()) return "";
  const absl::StatusOr<std::string> spare = MakeSparePath(path);
  const absl::Status rescued = spare.ok() ? WriteWholeFile(*spare, json) : spare.status();
  if (spare.ok() && !rescued.ok()) DropSparePath(*spare);
  return absl::StrCat(
      written.message(), "; ",
      rescued.ok() ? absl::StrCat("the summary is in ", *spare) : std::string(rescued.message()));
}

// The status of a run that a signal has interrupted, at this worker or at another worker.
absl::Status CutShort(const TrainRun& run) {
  if (run.interrupted_by != 0) return InterruptedBy(run.interrupted_by);
  return absl::UnavailableError("another worker was interrupted by a signal");
}

// Merges the workers' reports and says what was done, of an interrupted run, too. `before`: the run
// that was run again.
absl::Status TellResults(TrainRun& run, const std::vector<std::string>& results, double seconds,
                         const std::optional<RunRecord>& before) {
  std::vector<WorkerReport> reports;
  bool interrupted = false;
  for (const std::string& result : results) {
    RZ_ASSIGN_OR_RETURN(WorkerReport report, FromBytes(result));
    AddPlace(report.place, report.worker, run.told.provenance);
    for (const auto& [what, why] : report.not_written) run.Miss(what, why);
    interrupted = interrupted || report.interrupted;
    reports.push_back(std::move(report));
  }
  const std::string& dump_trouble = reports.front().dump_trouble;
  if (!dump_trouble.empty()) run.told.not_written["parameters"] = dump_trouble;
  const bool collected = !reports.front().parameters_sha256.empty();
  if (interrupted && !collected && !run.line.dump_parameters.empty()) {
    run.told.not_written["parameters"] = "the run was interrupted";
  }
  run.screen.Clear();
  if (!run.config().cyclic.rule) run.told.provenance["rule"] = ToString(*run.input.chosen);
  Comparison comparison;
  if (before.has_value() && !interrupted) {
    comparison = CompareRuns(*before, run.told.provenance, reports.front().parameters_sha256);
  }
  run.told.iterations = interrupted ? reports.front().iterations : run.input.length.iterations;
  run.told.interrupted = interrupted;
  run.told.seconds = seconds;
  run.told.again = comparison.json;
  const Summary summary = Summarize(run.told, reports);
  if (!run.line.metrics.empty()) {
    const absl::Status kept =
        WriteWholeFile(absl::StrCat(run.line.metrics, "/summary.json"), summary.json);
    if (!kept.ok() && !run.told.not_written.contains("metrics")) {
      run.screen.Note(absl::StrCat("warning: the summary: ", kept.message()));
    }
  }
  std::vector<std::string> troubles = {dump_trouble, WriteSummary(run.line.summary, summary.json)};
  std::erase(troubles, "");
  const absl::Status printed = PrintText(run.line, absl::StrCat(summary.text, comparison.text));
  const std::string trouble = absl::StrJoin(troubles, "; ");
  if (!trouble.empty() && !interrupted) return absl::AbortedError(trouble);
  if (!trouble.empty()) run.screen.Note(absl::StrCat("warning: ", trouble));
  return interrupted || run.interrupted_by != 0 ? CutShort(run) : printed;
}

// Finds the run's provenance, and leaves it in the folder of --metrics.
void RecordRun(TrainRun& run, const std::string& launcher) {
  run.told.provenance = BeginProvenance(run.line, run.config(), launcher);
  if (!run.speaks() || run.line.metrics.empty()) return;
  OrderedJson begun = run.told.provenance;
  AddPlace(ThisPlace(), -1, begun);
  const absl::Status written = WriteRunRecord(run.line.metrics, run.config(), begun);
  if (!written.ok()) run.Miss("provenance", written.message());
}

absl::Status Train(const CommandLine& line, const std::optional<RunRecord>& before,
                   absl::StatusOr<Config> config, const std::optional<OutsideJob>& job) {
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<RunInput> prepared = Prepare(line, std::move(config), job);
  if (!prepared.ok()) {
    // Workers that wait for this worker in vain hear why.
    if (job.has_value()) Disagree(job->seat, prepared.status());
    return prepared.status();
  }
  TrainRun run{.line = line,
               .input = *std::move(prepared),
               .seat = job.has_value() ? std::optional(job->seat) : std::nullopt,
               .desk = FlightDesk(line.flight)};
  if (job.has_value() && run.speaks()) run.screen.Note(Describe(job->identity));
  if (!job.has_value()) {
    const CyclicConfig& cyclic = run.config().cyclic;
    RZ_RETURN_IF_ERROR(
        CheckLimits(LaunchNeedsOf(cyclic.transport, cyclic.workers, cyclic.threads)));
    RZ_RETURN_IF_ERROR(CheckPlanInChild(run));
  }
  if (run.speaks()) {
    for (const std::string& note : run.input.length.notes) run.screen.Note(note);
  }
  RemoveOldFlights(run);
  RecordRun(run, job.has_value() ? job->identity.source : "");
  absl::StatusOr<std::vector<std::string>> results = RunAllWorkers(run);
  if (run.speaks()) LookBack(run, results.status());
  if (!results.ok()) return results.status();
  if (!run.speaks()) {
    RZ_ASSIGN_OR_RETURN(const WorkerReport mine, FromBytes(results->front()));
    return mine.interrupted ? CutShort(run) : absl::OkStatus();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return TellResults(run, *results, seconds.count(), before);
}

}  // namespace

absl::Status RunTrain(const CommandLine& asked) {
  CommandLine line = asked;
  RZ_ASSIGN_OR_RETURN(const std::optional<Identity> identity,
                      FindIdentity(line.identity, CurrentEnvironment()));
  absl::StatusOr<Config> config = LoadConfig(SourceOf(line, identity));
  std::optional<RunRecord> before;
  if (!line.again.empty() && config.ok()) {
    absl::StatusOr<RunRecord> record = ReadRunRecord(line.again);
    if (record.ok()) {
      if (line.init.empty()) {
        line.init = record->init;
        line.init_partial = record->init_partial;
      }
      before = *std::move(record);
    } else {
      config = record.status();
    }
  }
  if (config.ok()) {
    const int of_launcher =
        identity.has_value() && !IsBoundToCores() ? identity->local_workers.value_or(1) : 1;
    const int here = identity.has_value() ? of_launcher : config->cyclic.workers;
    SleepWhereCrowded({.workers = here, .threads = config->cyclic.threads}, line,
                      /*speaks=*/!identity.has_value() || identity->self.value == 0);
  }
  // A worker without a configuration joins, too: it tells the others why it ends.
  const std::chrono::milliseconds peer_timeout =
      config.ok() ? config->cyclic.peer_timeout : CyclicConfig().peer_timeout;
  RZ_ASSIGN_OR_RETURN(
      const std::optional<OutsideJob> job,
      JoinOutsideJob(identity, {.peer_timeout = peer_timeout, .open_tcp = OpenTcpStore}));
  const absl::Status status = Train(line, before, std::move(config), job);
  return job.has_value() ? SaidBy(job->seat.self, status) : status;
}

}  // namespace ringzero
