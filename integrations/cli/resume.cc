// A checkpoint against the run that is to go on from it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "integrations/cli/plan_run.h"
#include "integrations/cli/provenance.h"

namespace ringzero {
namespace {

using Note = std::function<void(const std::string&)>;

absl::StatusOr<std::shared_ptr<const Checkpoint>> Find(const CommandLine& line, const Note& note,
                                                       const Config& config) {
  if (!line.resume->empty()) return Annotate(Checkpoint::Open(*line.resume), "--resume");
  const std::string& folder = config.cyclic.checkpoint.folder;
  if (folder.empty()) {
    return InvalidArgument(
        "--resume: wanted cyclic.checkpoint.folder in the configuration, or --resume PATH");
  }
  RZ_ASSIGN_OR_RETURN(
      auto found, Checkpoint::OpenNewest(folder, [&](const absl::Status& why) {
        note(absl::StrCat("warning: not whole, so the one before is taken: ", why.message()));
      }));
  if (found == nullptr) note(absl::StrCat(folder, " has no checkpoint yet: the run begins"));
  return found;
}

// The run's own value beside the checkpoint's.
template <typename Value>
absl::Status Differs(const Checkpoint& checkpoint, const char* what, const Value& wanted,
                     const Value& found, const char* hint) {
  if (wanted == found) return absl::OkStatus();
  return InvalidArgument(checkpoint.path(), ": its run had ", what, " ", found, ", this one has ",
                         wanted, hint);
}

// Worker 0 looks at all of it, and tells the others which one it has taken.
absl::StatusOr<std::shared_ptr<const Checkpoint>> FindForJob(const CommandLine& line,
                                                             const std::optional<OutsideJob>& job,
                                                             const Note& note,
                                                             const Config& config) {
  constexpr char kKey[] = "resumed", kNone[] = "-";
  if (!job.has_value()) return Find(line, note, config);
  Rendezvous& rendezvous = *job->seat.rendezvous;
  if (job->seat.self.value == 0) {
    RZ_ASSIGN_OR_RETURN(auto found, Find(line, note, config));
    RZ_RETURN_IF_ERROR(rendezvous.Put(kKey, found == nullptr ? kNone : found->path()));
    return found;
  }
  RZ_ASSIGN_OR_RETURN(const std::string path, rendezvous.Get(kKey, job->seat.join_limit));
  if (path == kNone) return nullptr;
  return Checkpoint::Open(path, Checkpoint::Check::kHeads);
}

absl::Status Resume(const std::shared_ptr<const Checkpoint>& found, bool new_batch,
                    const Note& note, RunInput& input) {
  const Config& config = input.config;
  const CheckpointState& state = found->state();
  const int micro_batches = config.cyclic.workers * static_cast<int>(config.batch.laps);
  if (!new_batch) {
    constexpr char kHint[] = " (workers x micro-batches of each; --new-batch goes on all the same)";
    RZ_RETURN_IF_ERROR(Differs(*found, "updates of so many micro-batches:", micro_batches,
                               state.micro_batches, kHint));
    RZ_RETURN_IF_ERROR(Differs(*found, "train_batch_size", config.batch.train_batch,
                               state.train_batch, "; --new-batch goes on all the same"));
  }
  constexpr char kInit[] = "; --init takes parameters alone";
  RZ_RETURN_IF_ERROR(Differs(*found, "optimizer.type", config.keys.String("optimizer.type"),
                             state.optimizer, kInit));
  RZ_RETURN_IF_ERROR(Differs(*found, "the computing type",
                             std::string(ToString(config.precision.compute)), state.precision,
                             kInit));
  const int version = state.version.value;
  if (version > input.length.iterations) {
    return InvalidArgument(found->path(), ": has ", version, " iterations behind it, the run has ",
                           input.length.iterations, " in all");
  }
  note(absl::StrCat("goes on from ", found->path(), ", after iteration ", version));
  for (const absl::Status& other :
       {Differs(*found, "seed", config.seed, state.seed, ""),
        Differs(*found, "data:", DataLines(*input.data), state.data, ""),
        Differs(*found, "version", VersionText(), state.made_by, "")}) {
    if (!other.ok()) note(absl::StrCat("warning: other bits: ", other.message()));
  }
  input.resumed = found;
  return absl::OkStatus();
}

}  // namespace

std::string DataLines(const Dataset& data) {
  return absl::StrCat("training samples = ", data.train.size(),
                      "\ntest samples = ", data.test.size(),
                      "\nsample = ", absl::StrJoin(data.shape.input, " x "),
                      "\nclasses = ", data.shape.classes, "\n");
}

CheckpointState StateOf(const RunInput& input, const PlannedRun& run) {
  const Config& config = input.config;
  const Plan& plan = run.planned.plan;
  return {.rule = ToString(plan.rule),
          .predict = plan.predict,
          .optimizer = config.keys.String("optimizer.type"),
          .precision = ToString(run.planned.precision.compute),
          .workers = plan.workers,
          .stages = plan.stage_count(),
          .micro_batches = plan.workers * plan.laps,
          .train_batch = config.batch.train_batch,
          .seed = config.seed,
          .data = DataLines(*input.data),
          .made_by = VersionText(),
          .plan = PlanToString(plan)};
}

absl::Status OpenCheckpoints(const CommandLine& line, const std::optional<OutsideJob>& job,
                             RunInput& input) {
  const bool first = !job.has_value() || job->seat.self.value == 0;
  const std::string& folder = input.config.cyclic.checkpoint.folder;
  if (first && !folder.empty()) {
    RZ_ASSIGN_OR_RETURN(UniqueFd lock, LockCheckpoints(folder));
    input.lock = std::make_shared<const UniqueFd>(std::move(lock));
    if (!line.resume.has_value() && !CheckpointsIn(folder).empty()) {
      return input.config.Error(
          "cyclic.checkpoint.folder", folder,
          " has checkpoints of another run: --resume goes on from the newest, "
          "or another folder begins anew");
    }
  }
  if (!line.resume.has_value()) return absl::OkStatus();
  const auto note = [&](const std::string& text) { input.length.notes.push_back(text); };
  RZ_ASSIGN_OR_RETURN(const auto found, FindForJob(line, job, note, input.config));
  return found == nullptr ? absl::OkStatus() : Resume(found, line.new_batch, note, input);
}

}  // namespace ringzero
