// Measures a micro-batch and this process, counts the rest from the plan.
#include "integrations/cli/fit_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "integrations/cli/memory_budget.h"
#include "integrations/cli/resources.h"
#include "integrations/cli/run_log.h"
#include "integrations/torch/configured/configured_run.h"
#include "integrations/torch/pass_memory.h"
#include "p2p/launch/launcher.h"
#include "sharding/schedule.h"
#include "zero/optimizer_state.h"
#include "zero/pool_memory.h"

namespace ringzero {
namespace {

absl::StatusOr<PassMemory> MeasureRunPass(const RunFitRequest& request) {
  LapRunner laps(request.data, BatchesOf(request.config, request.length));
  const std::vector<double> metrics(kMetricsCount);
  PassMemoryOptions options{.metrics_count = kMetricsCount};
  options.train = [&](RingModel& ring, const LapTask& lap) {
    laps.Train(ring, lap);
    return ring.EndMicroBatch(metrics);
  };
  if (request.length.evaluation.every > 0) {
    options.evaluate = [&](RingModel& ring, const LapTask&) {
      laps.Evaluate(ring, 0);
      return absl::OkStatus();
    };
  }
  return MeasurePass(request.run, options);
}

std::vector<int> HostsOf(int workers, int hosts) {
  std::vector<int> of;
  for (int w = 0; w < workers; ++w) of.push_back(w * hosts / workers);
  return of;
}

// What a stage's moments take beyond their bytes: one block, whose last page is whole.
int64_t RoundingOf(int64_t bytes, int64_t huge_page_bytes) {
  const int64_t page = bytes >= huge_page_bytes ? huge_page_bytes : 4096;
  return (bytes + page - 1) / page * page - bytes;
}

absl::StatusOr<std::vector<WorkerExtras>> ExtrasOf(const RunFitRequest& request,
                                                   const MemoryForecast& states) {
  const Plan& plan = request.run.planned.plan;
  const std::vector<StageLayout>& layouts = request.run.planned.layouts;
  const std::vector<int64_t> moments = MomentBytes(request.config.optimizer, layouts);
  std::vector<WorkerExtras> extras(static_cast<size_t>(plan.workers));
  const int64_t huge_page = HugePageBytes();
  for (int w = 0; w < plan.workers; ++w) {
    WorkerExtras& mine = extras[static_cast<size_t>(w)];
    RZ_ASSIGN_OR_RETURN(mine.pools, PoolBytes({.plan = plan,
                                               .layouts = layouts,
                                               .states = states.workers[static_cast<size_t>(w)],
                                               .self = WorkerId(w),
                                               .metrics_count = kMetricsCount,
                                               .kind = PoolKindOf(request.config, request.hosts)}));
    for (int j = 0; j < plan.stage_count(); ++j) {
      // In its modules; and at worker 0 the initial ones.
      mine.statistics += (w == 0 ? 2 : 1) * layouts[j].statistics_bytes;
      if (!plan.has_masters(WorkerId(w), StageId(j)) || !plan.exchange) continue;
      const bool trains = layouts[j].sum_bytes > 0;
      if (trains) mine.rounding += RoundingOf(moments[j], huge_page);
      // Parameters that do not travel are blocks of their own, too.
      if (plan.zero_stage > 0 && plan.workers > 1) continue;
      mine.rounding +=
          VersionBuffers(plan, StageId(j)) * RoundingOf(layouts[j].parameter_bytes, huge_page);
      const int masters = trains && plan.has_two_masters() ? 2 : 1;
      mine.rounding += masters * RoundingOf(layouts[j].master_bytes, huge_page);
    }
  }
  return extras;
}

std::string Describe(const RunFit& fit) {
  std::string text = DescribeFit(fit.certificate, fit.budgets, fit.unit);
  const absl::Status fits = CheckFit(fit.certificate, fit.budgets);
  if (!fits.ok()) absl::StrAppend(&text, "warning: ", fits.message(), "\n");
  return text;
}

}  // namespace

absl::StatusOr<RunFit> CertifyRun(const RunFitRequest& request) {
  const Plan& plan = request.run.planned.plan;
  // Before this process takes any of what there is.
  RunFit fit{.budgets = FindBudgets(request.config)};
  FitInput input;
  RZ_ASSIGN_OR_RETURN(input.states, ForecastRun(request.config, request.run));
  RZ_ASSIGN_OR_RETURN(input.extras, ExtrasOf(request, input.states));
  input.hosts = HostsOf(plan.workers, request.hosts);
  input.one_process = request.config.cyclic.transport == CyclicConfig::Transport::kLocal;
  const PoolKind kind = PoolKindOf(request.config, request.hosts);
  fit.unit = kind == PoolKind::kReceived ? FitUnit::kWorker : FitUnit::kHost;
  // Where not even this fits, there may be no room to measure the rest.
  fit.certificate = Certify(input);
  if (!CheckFit(fit.certificate, fit.budgets).ok()) return fit;
  RZ_ASSIGN_OR_RETURN(const PassMemory pass, MeasureRunPass(request));
  input.pass = {.setup = pass.setup,
                .activations = pass.activations,
                .evaluation = pass.evaluation,
                .with_waiting_gradients = pass.with_waiting_gradients};
  // What the micro-batch took is still there, and is not the process' own.
  const int64_t passed = std::max({pass.setup, pass.with_waiting_gradients, pass.evaluation});
  const ProcessPages mine = PagesOfProcess("self");
  ProcessPages parent;
  if (request.parent == RunFitRequest::Parent::kLauncher) {
    parent = PagesOfProcess(absl::StrCat(ParentProcess()));
  }
  input.process_bytes = std::max<int64_t>(0, mine.private_dirty - passed);
  input.process_once_bytes = parent.pss + mine.pss - mine.private_dirty;
  fit.certificate = Certify(input);
  return fit;
}

absl::StatusOr<std::string> DescribeFitInChild(const FitTextRequest& request) {
  const auto body = [&](WorkerContext&) -> absl::StatusOr<std::string> {
    PrepareTorch(request.config.cyclic.threads);
    RZ_ASSIGN_OR_RETURN(const PlannedRun run, PlanRun(request.config, request.length,
                                                      request.data.shape(), request.hosts));
    RZ_ASSIGN_OR_RETURN(const RunFit fit, CertifyRun({.config = request.config,
                                                      .length = request.length,
                                                      .data = request.data,
                                                      .run = run,
                                                      .hosts = request.hosts}));
    return Describe(fit);
  };
  const auto results = LaunchProcesses({.workers = 1}, body);
  if (!results.ok()) return WithoutProcess(results.status(), "the planning process");
  return (*results)[0];
}

std::string RunFitJson(const RunFit& fit) {
  nlohmann::ordered_json json;
  for (const MemoryPlace place : kAllMemoryPlaces) {
    const int host = fit.certificate.FullestHost(place);
    nlohmann::ordered_json& of = json[ToString(place)];
    for (const FitLine& line : fit.certificate.lines) {
      if (line.place == place) of[line.name] = fit.certificate.Bytes(line, host);
    }
    of["peak"] = fit.certificate.HostPeak(host, place);
    const FitBudget& budget = fit.budgets[static_cast<size_t>(place)];
    of["budget"] = budget.bytes.has_value() ? nlohmann::ordered_json(*budget.bytes)
                                            : nlohmann::ordered_json(nullptr);
  }
  return json.dump();
}

}  // namespace ringzero
