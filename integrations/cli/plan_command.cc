// Plans as `train` would, and prints instead.
#include "integrations/cli/plan_command.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/cli/cost_profiler.h"
#include "integrations/cli/fit_run.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/plan_times.h"
#include "integrations/cli/print_text.h"
#include "integrations/cli/run_setup.h"
#include "integrations/sight/chrome_trace.h"
#include "integrations/sight/plan_figure.h"
#include "integrations/sight/predicted_trace.h"
#include "sharding/program.h"
#include "sharding/render.h"

namespace ringzero {
namespace {

// What is printed: the first iterations show all that repeats.
constexpr int kShownIterations = 2;

// What would carry messages, if the workers were on so many hosts, in equal runs of their numbers.
absl::StatusOr<std::string> DescribeTransport(const Config& config, int hosts) {
  const int workers = config.cyclic.workers;
  if (hosts > workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--hosts: wanted at most ", workers, " (one per worker), found ", hosts));
  }
  if (config.cyclic.transport == CyclicConfig::Transport::kLocal) {
    if (hosts == 1) return "local between all workers (threads of one process)";
    return absl::InvalidArgumentError(absl::StrCat(
        "cyclic.transport: local is for threads of one process, not for ", hosts, " hosts"));
  }
  std::vector<std::string> places;
  for (int w = 0; w < workers; ++w) places.push_back(absl::StrCat("host", w * hosts / workers));
  RZ_ASSIGN_OR_RETURN(const ChosenTransport chosen,
                      ChooseTransport(ChoiceOf(config.cyclic.transport), places));
  return chosen.why;
}

// The profile to predict with, measured now if its file is not there; none without --profile.
absl::StatusOr<std::optional<SavedProfile>> FindProfile(const CommandLine& line,
                                                        const Config& config, const Dataset& data,
                                                        const RunLength& length) {
  if (line.profile.empty()) return std::nullopt;
  absl::StatusOr<SavedProfile> saved = ReadProfile(line.profile);
  const bool known = saved.ok();
  if (absl::IsNotFound(saved.status())) {
    saved = SavedProfile();
    RZ_ASSIGN_OR_RETURN(saved->profile, MeasureCosts(config, data, length));
  }
  RZ_RETURN_IF_ERROR(saved.status());
  if (!known) RZ_RETURN_IF_ERROR(WriteProfile(line.profile, *saved));
  return *saved;
}

// Marks the file as frozen, so that its times make the plan; and what `plan`, the first to plan
// with it, returns. A file whose times can make none stays as it was.
absl::StatusOr<std::string> Freeze(const std::string& path, SavedProfile saved,
                                   const std::function<absl::StatusOr<std::string>()>& plan) {
  const bool was_frozen = std::exchange(saved.frozen, true);
  RZ_RETURN_IF_ERROR(WriteProfile(path, saved));
  absl::StatusOr<std::string> planned = plan();
  if (planned.ok() || was_frozen) return planned;
  saved.frozen = false;
  RZ_RETURN_IF_ERROR(WriteProfile(path, saved));
  return planned;
}

absl::Status WriteSvg(const std::string& path, const Plan& plan, const SimulationOptions& speed) {
  RZ_ASSIGN_OR_RETURN(const std::string svg, PlanFigure(plan, speed));
  return WriteWholeFile(path, svg);
}

// The profile is an input if it is there, and an output if it is not or is to be frozen.
absl::Status CheckPlanFiles(const CommandLine& line, const Config& config) {
  std::vector<NamedPath> outputs = {
      {"--svg", line.svg}, {"--text", line.text}, {"--trace", line.trace}};
  std::vector<NamedPath> inputs = {{"CONFIG", line.config}, {"data.path", config.data.path}};
  std::error_code missing;
  const bool kept = std::filesystem::exists(line.profile, missing) && !line.freeze;
  (kept ? inputs : outputs).push_back({"--profile", line.profile});
  if (config.cyclic.profile != line.profile) {
    inputs.push_back({"cyclic.profile", config.cyclic.profile});
  }
  return CheckOutputFiles(outputs, inputs);
}

}  // namespace

absl::Status RunPlan(const CommandLine& line) {
  if (line.freeze && line.profile.empty()) {
    return absl::InvalidArgumentError("--freeze: wanted --profile FILE beside it");
  }
  RZ_ASSIGN_OR_RETURN(
      Config config,
      LoadConfig({.file = line.config, .overrides = line.overrides, .environment = {}}));
  if (line.program >= config.cyclic.workers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--program: wanted a worker below ", config.cyclic.workers, ", found ", line.program));
  }
  RZ_RETURN_IF_ERROR(CheckPlanFiles(line, config));
  RZ_ASSIGN_OR_RETURN(const std::string transport, DescribeTransport(config, line.hosts));
  RZ_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data, OpenData(config));
  RZ_ASSIGN_OR_RETURN(const RunLength length, MeasureRun(config, *data));
  // These two first: they need a process that has not computed.
  RZ_ASSIGN_OR_RETURN(const std::optional<SavedProfile> profile,
                      FindProfile(line, config, *data, length));
  if (line.freeze) config.cyclic.profile = line.profile;
  const auto certify = [&] {
    return DescribeFitInChild(
        {.config = config, .length = length, .data = *data, .hosts = line.hosts});
  };
  RZ_ASSIGN_OR_RETURN(const std::string fit,
                      line.freeze ? Freeze(line.profile, *profile, certify) : certify());
  PrepareTorch(config.cyclic.threads);
  RZ_ASSIGN_OR_RETURN(const PlannedRun run, PlanRun(config, length, data->shape(), line.hosts));
  const Plan& plan = run.planned.plan;
  RZ_ASSIGN_OR_RETURN(std::string text, DescribePlan(plan));
  RZ_ASSIGN_OR_RETURN(const MemoryForecast memory, ForecastRun(config, run));
  absl::StrAppend(&text, "transport: ", transport, "\n");
  RZ_ASSIGN_OR_RETURN(const PlanTimes times, PredictTimes({.config = config,
                                                           .run = run,
                                                           .profile = profile,
                                                           .profile_path = line.profile,
                                                           .hosts = line.hosts}));
  absl::StrAppend(&text, times.text, DescribeMemory(memory, run.model.parameter_count), fit);
  const std::string slow = DescribeSlowType(config);
  if (!slow.empty()) absl::StrAppend(&text, slow, "\n");
  for (const std::string& warning : run.planned.warnings) {
    absl::StrAppend(&text, "warning: ", warning, "\n");
  }
  for (const std::string& note : config.notes) absl::StrAppend(&text, note, "\n");
  for (const std::string& note : length.notes) absl::StrAppend(&text, note, "\n");
  const int shown = std::min(kShownIterations, plan.iterations);
  if (line.grid) absl::StrAppend(&text, "\n", RenderText(plan, shown));
  if (line.program >= 0) {
    RZ_ASSIGN_OR_RETURN(const Program program, MakeProgram(plan, WorkerId(line.program),
                                                           {Iteration(0), Iteration(shown)}));
    absl::StrAppend(&text, "\n", ToString(program));
  }
  if (!line.svg.empty()) RZ_RETURN_IF_ERROR(WriteSvg(line.svg, plan, times.speed));
  if (!line.text.empty()) RZ_RETURN_IF_ERROR(WriteWholeFile(line.text, PlanToString(plan)));
  if (!line.trace.empty()) {
    RZ_ASSIGN_OR_RETURN(const std::string trace, PredictedTrace(plan, times.speed));
    RZ_RETURN_IF_ERROR(WriteTrace(line.trace, trace));
  }
  return PrintText(line, text);
}

}  // namespace ringzero
