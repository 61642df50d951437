// The fit certificate of a configured run: measured, counted, and held against the budget.
//
//   RZ_ASSIGN_OR_RETURN(const RunFit fit, CertifyRun({.config = config, …, .run = planned}));
//   RZ_RETURN_IF_ERROR(CheckFit(fit.certificate, fit.budgets));
//
// CertifyRun computes with torch and measures the calling process: call it in a child of the
// process that launches the workers, before anything else has computed there.
#ifndef RINGZERO_INTEGRATIONS_CLI_FIT_RUN_H_
#define RINGZERO_INTEGRATIONS_CLI_FIT_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/run_setup.h"
#include "integrations/data/dataset.h"
#include "sharding/fit_certificate.h"
#include "zero/config/config.h"

namespace ringzero {

struct RunFitRequest {
  const Config& config;
  const RunLength& length;
  const Dataset& data;
  const PlannedRun& run;
  int hosts = 1;  // in equal runs of the workers' numbers
  // Whether the process above this one launches the workers, and so shares its pages with them.
  enum class Parent { kLauncher, kStranger } parent = Parent::kLauncher;
};

struct RunFit {
  FitCertificate certificate;
  FitBudgets budgets;
  FitUnit unit = FitUnit::kHost;
};

absl::StatusOr<RunFit> CertifyRun(const RunFitRequest& request);

// Plans and certifies in a child process: for who has not planned, and does not want its own memory
// touched. The table, and, where the run does not fit, a warning.
struct FitTextRequest {
  const Config& config;
  const RunLength& length;
  const Dataset& data;
  int hosts = 1;
};
absl::StatusOr<std::string> DescribeFitInChild(const FitTextRequest& request);

// For the summary: by place, bytes by category, and the peak.
std::string RunFitJson(const RunFit& fit);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_FIT_RUN_H_
