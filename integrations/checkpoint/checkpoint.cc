// Opens what a run has saved, looks whether it is whole, and finds each tensor by its name.
#include "integrations/checkpoint/checkpoint.h"

#include <algorithm>
#include <deque>
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
  PutRowMajor(found->second.values(), WidthOf(type), parameter.shape, parameter.strides, out);
  return absl::OkStatus();
}

bool SameRule(const Checkpoint& checkpoint, const Plan& plan) {
  return checkpoint.state().rule == ToString(plan.rule) &&
         checkpoint.state().predict == plan.predict;
}

const ParameterSpec& SpecOf(const ShardedOptimizer& optimizer, const std::string& name) {
  const auto& parameters = optimizer.shards().layouts[optimizer.self().value].parameters;
  return *std::ranges::find(parameters, name, &ParameterSpec::name);
}

// One number, of whatever type.
absl::StatusOr<float> ReadStep(const TensorFiles& files, const std::string& name) {
  int64_t whole = 0;
  if (files.Read(name, {}, std::span(&whole, 1)).ok()) return static_cast<float>(whole);
  float step = 0;
  RZ_RETURN_IF_ERROR(files.Read(name, {}, std::span(&step, 1)));
  return step;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Checkpoint>> Checkpoint::Open(const std::string& path,
                                                                   Check check) {
  const std::string file = absl::StrCat(path, "/", kStateFile);
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  RZ_ASSIGN_OR_RETURN(CheckpointState state, Annotate(ParseCheckpointState(text), file));
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint(path, std::move(state)));
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
    const std::string& folder, const std::function<void(const absl::Status&)>& skipped) {
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
    opened = Open(absl::StrCat(folder, "/", CheckpointName(version)));
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
    RZ_RETURN_IF_ERROR(Annotate(read, path_));
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
    RZ_RETURN_IF_ERROR(Annotate(read, path_));
  }
  return absl::OkStatus();
}

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
  const CheckpointState& run = checkpoint->state();
  return {.state = state, .version = version, .norm = run.norm, .loss_scale = run.loss_scale};
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

absl::Status SaveOptimizerStates(const ShardedOptimizer& optimizer, const std::string& path) {
  std::vector<TensorSource> tensors;
  std::deque<int64_t> steps;
  RZ_RETURN_IF_ERROR(optimizer.VisitStates([&](const ShardedOptimizer::NamedState& state) {
    const std::string name = absl::StrCat(state.parameter, ".", state.state);
    if (state.state == "step") {
      const auto& step = steps.emplace_back(static_cast<int64_t>(state.values[0]));
      tensors.push_back({.spec = {.name = name, .type = TensorType::kI64},
                         .values = reinterpret_cast<const std::byte*>(&step)});
    } else {
      const ParameterSpec& parameter = SpecOf(optimizer, state.parameter);
      tensors.push_back({.spec = {.name = name, .shape = parameter.shape},
                         .values = std::as_bytes(state.values).data(),
                         .strides = parameter.strides});
    }
  }));
  RZ_ASSIGN_OR_RETURN(const auto writer, TensorFileWriter::Create({}));
  return writer->Write(path, std::move(tensors)).status();
}

absl::Status LoadOptimizerStates(const TensorFiles& files, ShardedOptimizer& optimizer) {
  float updates = 0;
  for (const auto& [name, place] : files.tensors()) {
    if (!absl::EndsWith(name, ".step")) continue;
    RZ_ASSIGN_OR_RETURN(const float step, ReadStep(files, name));
    updates = std::max(updates, step);
  }
  const auto fill = [&](const std::string& parameter, const std::string& state,
                        std::span<float> values) -> absl::Status {
    std::string name = absl::StrCat(parameter, ".", state);
    if (!files.tensors().contains(name)) name = absl::StrCat("state.", name);
    if (state == "step") {
      RZ_ASSIGN_OR_RETURN(values[0], ReadStep(files, name));
      return absl::OkStatus();
    }
    const ParameterSpec& spec = SpecOf(optimizer, parameter);
    std::vector<float> rows(values.size());
    RZ_RETURN_IF_ERROR(files.Read(name, spec.shape, std::span(rows)));
    PutRowMajor(std::as_bytes(std::span(rows)), sizeof(float), spec.shape, spec.strides,
                std::as_writable_bytes(values).data());
    return absl::OkStatus();
  };
  return optimizer.LoadStates(static_cast<int64_t>(updates), fill);
}

}  // namespace ringzero
