// The model of a configuration, built as layer factories, described and cut into a plan.
//
//   RZ_ASSIGN_OR_RETURN(PlannedRun run, PlanRun(config, length, data->shape(), /*hosts=*/1));
//   run.planned.plan;
//
// Uses torch on the calling thread. Every worker computes the same.
#ifndef RINGZERO_INTEGRATIONS_CLI_PLAN_RUN_H_
#define RINGZERO_INTEGRATIONS_CLI_PLAN_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "integrations/cli/run_setup.h"
#include "integrations/data/dataset.h"
#include "integrations/torch/run_workers.h"
#include "sharding/memory_forecast.h"
#include "zero/config/config.h"
#include "zero/pool_memory.h"

namespace ringzero {

// How payload gets to another worker, with workers on so many hosts.
PoolKind PoolKindOf(const Config& config, int hosts);

// InvalidArgument begins with the configuration's file. `hosts`: 1 if all workers surely are on one
// (PoolKindOf): then the window is that of slots that hold no bytes. Equal at all workers.
absl::StatusOr<PlannedRun> PlanRun(const Config& config, const RunLength& length,
                                   const SampleShape& shape, int hosts);

// The same model with a stage for each layer.
absl::StatusOr<PlannedRun> PlanLayers(const Config& config, const RunLength& length,
                                      const SampleShape& shape);

// One line where products in the type that computes take more than twice as long on this processor
// as in fp32, by a probe of 50 ms; else empty.
std::string DescribeSlowType(const Config& config);

// What the run will hold of model states and buffers.
absl::StatusOr<MemoryForecast> ForecastRun(const Config& config, const PlannedRun& run);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_PLAN_RUN_H_
