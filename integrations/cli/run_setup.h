// From a configuration to what a run needs before torch: the data, and how long the run is.
//
//   RZ_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> data, OpenData(config));
//   RZ_ASSIGN_OR_RETURN(RunLength length, MeasureRun(config, *data));
#ifndef RINGZERO_INTEGRATIONS_CLI_RUN_SETUP_H_
#define RINGZERO_INTEGRATIONS_CLI_RUN_SETUP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "integrations/data/dataset.h"
#include "integrations/torch/configured/configured_run.h"
#include "p2p/connect.h"
#include "sharding/plan.h"
#include "zero/config/config.h"

namespace ringzero {

// Opens the data and checks that the model fits it: InvalidArgument names the key, or the file.
absl::StatusOr<std::unique_ptr<Dataset>> OpenData(const Config& config);

struct RunLength {
  int iterations = 0;
  int64_t iterations_per_epoch = 0;
  int64_t epoch_samples = 0;  // 0: every batch is complete; else the last of an epoch is not
  int64_t test_samples = 0;   // that an evaluation reads
  EvaluationPlan evaluation;
  std::vector<std::string> notes;  // for the user: what is dropped
};
absl::StatusOr<RunLength> MeasureRun(const Config& config, const Dataset& data);

// Which samples make which batch.
BatchesOptions BatchesOf(const Config& config, const RunLength& length);

// Of data that are tokens; 0 where they are none.
int64_t TokensPerSample(const Config& config);

// A rate curve that is to end with the run, of so many iterations, ends there.
void EndCurve(int iterations, Config& config);

// What cyclic.transport asks of Connect (p2p/connect.h), for workers that are processes.
TransportChoice ChoiceOf(CyclicConfig::Transport transport);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_RUN_SETUP_H_
