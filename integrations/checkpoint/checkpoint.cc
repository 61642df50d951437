// Opens what a run has saved, looks whether it is whole, and finds each tensor by its name.
#include "integrations/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "sharding/rules/schedule.h"

namespace ringzero {
namespace {

absl::Status Damaged(const std::string& file, const std::string& what, const std::string& wanted,
                     const std::string& found) {
  return InvalidArgument(file, ": damaged: checksum of ", what, ": wanted ", wanted, ", found ",
                         found);
}

absl::StatusOr<std::shared_ptr<const SafetensorsReader>> OpenFile(const std::string& path,
                                                                  const std::string& checksum,
                                                                  Checkpoint::Check check) {
  RZ_ASSIGN_OR_RETURN(std::shared_ptr<const SafetensorsReader> file, SafetensorsReader::Open(path));
  const std::string head = ChecksumOfHead(file->head());
  if (head != checksum) return Damaged(path, "its head", checksum, head);
  if (check == Checkpoint::Check::kHeads) return file;
  const auto wanted = file->metadata().find("checksum");
  const std::string found = ChecksumOfValues(file->values());
  if (wanted != file->metadata().end() && wanted->second == found) return file;
  return Damaged(path, "its values", wanted == file->metadata().end() ? "one" : wanted->second,
                 found);
}

// The values as they lie in the file, into memory of the parameter's own strides.
absl::Status ReadRaw(const TensorFiles& files, const std::string& name, TensorType type,
                     const ParameterSpec& parameter, std::byte* out) {
  const auto found = files.tensors().find(name);
  if (found == files.tensors().end()) {
    return absl::NotFoundError(absl::StrCat("it has no tensor '", name, "'"));
  }
  const SafetensorsReader::Entry& entry = *found->second.entry;
  if (entry.spec.type != type || entry.spec.shape != parameter.shape) {
    return InvalidArgument("tensor '", name, "' is of another type or shape than the run's");
  }
  const std::span values =
      found->second.file->values().subspan(entry.begin, entry.end - entry.begin);
  PutRowMajor(values, WidthOf(type), parameter.shape, parameter.strides, out);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Checkpoint>> Checkpoint::Open(const std::string& path,
                                                                   Check check) {
  const std::string file = absl::StrCat(path, "/", kStateFile);
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  absl::StatusOr<CheckpointState> state = ParseCheckpointState(text);
  if (!state.ok()) return Annotate(state.status(), file);
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint(path, *std::move(state)));
  for (const auto& [name, checksum] : checkpoint->state_.files) {
    RZ_ASSIGN_OR_RETURN(auto opened, OpenFile(absl::StrCat(path, "/", name), checksum, check));
    TensorFiles& to = absl::StartsWith(name, "optimizer-") ? checkpoint->optimizer_
                      : absl::StartsWith(name, "stale-")   ? checkpoint->stale_
                                                           : checkpoint->model_;
    RZ_RETURN_IF_ERROR(Annotate(to.Add(std::move(opened)), path));
  }
  return checkpoint;
}

absl::StatusOr<std::shared_ptr<const Checkpoint>> Checkpoint::OpenNewest(
    const std::string& folder, Check check,
    const std::function<void(const absl::Status&)>& skipped) {
  std::vector<Version> versions = CheckpointsIn(folder);
  std::ranges::reverse(versions);
  const std::optional<Version> latest = LatestIn(folder);
  // Later ones are of a run that was given up, or `latest` was not written any more.
  if (latest.has_value()) {
    std::ranges::stable_partition(versions, [&](Version v) { return v <= *latest; });
  }
  std::shared_ptr<const Checkpoint> none;
  absl::StatusOr<std::shared_ptr<const Checkpoint>> opened = none;
  for (const Version version : versions) {
    opened = Open(absl::StrCat(folder, "/", CheckpointName(version)), check);
    if (opened.ok()) return opened;
    skipped(opened.status());
  }
  return opened;
}

absl::Status Checkpoint::ReadState(const StateLayout& state, const StageLayout& layout,
                                   std::byte* out) const {
  for (const StateSpec& spec : state.specs) {
    const ParameterSpec& parameter = layout.parameters[spec.parameter];
    const std::string name = absl::StrCat(parameter.name, ".", spec.name);
    const bool step = spec.kind == StateSpec::Kind::kStep;
    const absl::Status read =
        step ? ReadRaw(optimizer_, name, TensorType::kI64, {}, out + spec.offset_bytes)
             : ReadRaw(optimizer_, name, TensorType::kF32, parameter, out + spec.offset_bytes);
    if (!read.ok()) return Annotate(read, path_);
  }
  return absl::OkStatus();
}

bool Checkpoint::HasLabel(const StageLayout& layout, Version label) const {
  return std::ranges::all_of(layout.parameters, [&](const ParameterSpec& parameter) {
    return stale_.tensors().contains(StaleName(parameter.name, label));
  });
}

absl::Status Checkpoint::ReadVersion(const StageLayout& layout, Version label,
                                     std::byte* out) const {
  for (const ParameterSpec& parameter : layout.parameters) {
    const absl::Status read =
        ReadRaw(stale_, StaleName(parameter.name, label), TypeOf(layout.parameter_type), parameter,
                out + parameter.offset_bytes);
    if (!read.ok()) return Annotate(read, path_);
  }
  return absl::OkStatus();
}

namespace {

bool SameRule(const Checkpoint& checkpoint, const Plan& plan) {
  return checkpoint.state().rule == ToString(plan.rule) &&
         checkpoint.state().predict == plan.predict;
}

}  // namespace

Beginning BeginningOf(const std::shared_ptr<const Checkpoint>& checkpoint, const Plan& plan,
                      const std::vector<StageLayout>& layouts, const OptimizerOptions& optimizer) {
  const auto state = [=](StageId j, std::byte* out) {
    const StageLayout& layout = layouts[j.value];
    return checkpoint->ReadState(StateLayout::Make(optimizer, layout), layout, out);
  };
  const auto version = [=, same = SameRule(*checkpoint, plan)](StageId j, Version label,
                                                               std::byte* out) -> absl::Status {
    if (!same) return absl::NotFoundError("older versions are of another rule");
    return checkpoint->ReadVersion(layouts[j.value], label, out);
  };
  return {.state = state,
          .version = version,
          .norm = checkpoint->state().norm,
          .loss_scale = checkpoint->state().loss_scale};
}

std::string DescribeNewStart(const Checkpoint& checkpoint, const Plan& plan,
                             const std::vector<StageLayout>& layouts) {
  for (int j = 0; j < plan.stage_count(); ++j) {
    const std::vector<Version> labels = FirstVersions(plan, StageId(j));
    for (size_t i = 1; i < labels.size(); ++i) {
      if (SameRule(checkpoint, plan) && checkpoint.HasLabel(layouts[j], labels[i])) continue;
      return absl::StrCat(checkpoint.path(), ": is of rule ", checkpoint.state().rule,
                          " and has no older versions for this run: ", ToString(plan.rule),
                          " begins with the checkpoint as with first values");
    }
  }
  return "";
}

}  // namespace ringzero
