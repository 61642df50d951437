// `--resume`: what a run has of the checkpoint that it goes on from, and whether it may.
#ifndef RINGZERO_INTEGRATIONS_CLI_RESUME_H_
#define RINGZERO_INTEGRATIONS_CLI_RESUME_H_

#include <string>

#include "absl/status/status.h"
#include "integrations/checkpoint/checkpoint_folder.h"
#include "integrations/cli/command_line.h"
#include "integrations/cli/plan_run.h"

namespace ringzero {

// What state.json says of a run, but for what each version has of its own.
CheckpointState StateOf(const RunInput& input, const PlannedRun& run);

// What must be equal in all workers' data, wherever each worker finds its data: lines.
std::string DataLines(const Dataset& data);

// Called before the plan is made. Where checkpoints are to be written, one process of the job
// (`job`: that of worker 0, which also finds the checkpoint for all) locks their folder: input.lock. For --resume fills in input.resumed; input.length.notes say where
// the run goes on, what is not whole, and what is otherwise than in the run that was interrupted.
// InvalidArgument: the checkpoint is of another run, and how; or the folder has checkpoints, but the
// run is not to go on from them. AlreadyExists: another job writes there.
absl::Status OpenCheckpoints(const CommandLine& line, const std::optional<OutsideJob>& job,
                             RunInput& input);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_RESUME_H_
