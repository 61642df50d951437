// From a configuration to its data, the length of the run, and its plan.
//
//   RZ_ASSIGN_OR_RETURN(RunInput input, OpenRun(config, /*hosts=*/{}));
//   RZ_ASSIGN_OR_RETURN(PlannedRun run, PlanRun(input));
//   RZ_ASSIGN_OR_RETURN(const RunFit fit, FitRun(input, run, Parent::kLauncher));
//   RZ_RETURN_IF_ERROR(CheckFit(fit.certificate, fit.budgets));
//
// PlanRun, DescribeSlowType and FitRun use torch on the calling thread. Every worker computes
// the same plan.
#ifndef RINGZERO_INTEGRATIONS_CLI_PLAN_RUN_H_
#define RINGZERO_INTEGRATIONS_CLI_PLAN_RUN_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integrations/checkpoint/checkpoint.h"
#include "integrations/cli/command_line.h"
#include "integrations/data/dataset.h"
#include "integrations/torch/models/configured_run.h"
#include "integrations/torch/run_workers.h"
#include "p2p/job/join_job.h"
#include "sharding/memory/block_table.h"
#include "sharding/memory/fit_certificate.h"
#include "sharding/plan.h"
#include "zero/config/config.h"
#include "zero/config/tier.h"
#include "zero/model_plan.h"

namespace ringzero {

// How much of the optimizer states streams, and through how much memory of each worker.
struct Streamed {
  double share = -1;          // negative: as the configuration says
  int64_t staging_bytes = 0;  // 0: the plan chooses
};

// What is to run.
struct RunInput {
  Config config;
  std::shared_ptr<const Dataset> data;
  RunLength length;
  std::vector<std::string> hosts;             // of each worker; empty: one host
  bool stage_per_layer = false;               // in place of the configuration's stages
  std::optional<PlanProof> proof;             // by the process that planned first
  std::optional<Rule> chosen;                 // the rule of that process' plan: "auto" chooses once
  Streamed streamed;                          // as FitRun has chosen in that process
  std::shared_ptr<const Checkpoint> resumed;  // goes on from there; null: from the beginning
  std::shared_ptr<const UniqueFd> lock;       // of the folder of checkpoints
};

// Opens the data and checks that the model fits it: InvalidArgument names the key, or the file. A
// rate curve that is to end with the run ends there.
absl::StatusOr<RunInput> OpenRun(Config config, std::vector<std::string> hosts);

// The model of a configuration, built as layer factories, described and cut into a plan.
// InvalidArgument begins with the configuration's file. Equal at all workers.
absl::StatusOr<PlannedRun> PlanRun(const RunInput& input,
                                   const PlanFunction& plan_model = PlanModel);

// One line if products in the computing type take more than twice as long on this processor as in
// fp32, by a probe of 50 ms; otherwise empty.
std::string DescribeSlowType(const Config& config);

// What the run will hold of model states and buffers.
absl::StatusOr<MemoryForecast> ForecastRun(const Config& config, const PlannedRun& run);

// How errors name the child that plans (LaunchOptions::alone).
inline constexpr char kPlanningProcess[] = "the planning process";

// Whether the process above this one launches the workers, and so shares its pages with them.
enum class Parent { kLauncher, kStranger };

struct RunFit {
  FitCertificate certificate;
  FitBudgets budgets;
  FitUnit unit = FitUnit::kHost;
  FitInput input;    // of the certificate
  std::string text;  // for the user: how many of the states stream, if FitRun chose it
};

// The fit certificate of a configured run: measured, counted, and held against the budget. It
// computes with torch and measures the calling process: call it in a child of the process that
// launches the workers, before anything else has computed there.
//
// If states may stream, there is a budget, and the configuration does not say how many of them, it
// plans again: as few of them stream as the budget allows, and if not even all of them are enough,
// through less memory. Changes input.streamed and `run`. Not for workers that others launch, which
// may be on several hosts: each would choose for itself.
absl::StatusOr<RunFit> FitRun(RunInput& input, PlannedRun& run, Parent parent);

// What state.json says of a run, but for what each version has of its own.
CheckpointState StateOf(const RunInput& input, const PlannedRun& run);

// Before a run whose states stream. The simulation takes the frozen profile or, without one, speeds
// measured now. Uses torch. The errors of JudgeTier and CheckHidden.
absl::StatusOr<TierVerdict> JudgeRunDisk(const RunInput& input, const PlannedRun& run);

// What must be equal in all workers' data, wherever each worker finds its data: lines.
std::string DataLines(const Dataset& data);

// Called before the plan is made. Where checkpoints are to be written, one process of the job
// (`job`: that of worker 0, which also finds the checkpoint for all) locks their folder:
// input.lock. For --resume fills in input.resumed; input.length.notes say where the run goes on,
// what is not whole, and what is otherwise than in the run that was interrupted. InvalidArgument:
// the checkpoint is of another run, and how; or the folder has checkpoints, but the run is not to
// go on from them. AlreadyExists: another job writes there.
absl::Status OpenCheckpoints(const CommandLine& line, const std::optional<OutsideJob>& job,
                             RunInput& input);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_PLAN_RUN_H_
