// Names, state.json, the lock, and the order in which a checkpoint gets its name.
#include "integrations/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/status.h"
#include "sharding/label.h"
#include "zero/config/json_value.h"

namespace ringzero {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "ringzero checkpoint 1";
constexpr char kPrefix[] = "iteration-";
constexpr char kOld[] = ".old";
constexpr char kTemporary[] = ".tmp";

Json LossScaleJson(const LossScale::History& history) {
  return {{"noted", history.noted},
          {"scale", history.scale},
          {"scale_of_next", history.scale_of_next},
          {"hysteresis", history.hysteresis},
          {"finite_since", history.last_overflow + 1},
          {"skipped", history.skipped}};
}

// All members but the files and the loss scale, which a run may lack.
Json SimpleMembers(const CheckpointState& state) {
  return {{"format", kFormat},
          {"version", state.version.value},
          {"rule", state.rule},
          {"predict", state.predict},
          {"optimizer", state.optimizer},
          {"precision", state.precision},
          {"workers", state.workers},
          {"stages", state.stages},
          {"micro_batches", state.micro_batches},
          {"train_batch", state.train_batch},
          {"seed", absl::StrCat(state.seed)},
          {"data", state.data},
          {"made_by", state.made_by},
          {"plan", state.plan},
          {"norm", absl::StrFormat("%.17g", state.norm)}};  // it may be infinite
}

std::optional<Version> VersionOf(absl::string_view name) {
  int number = 0;
  if (!absl::ConsumePrefix(&name, kPrefix) || !absl::SimpleAtoi(name, &number)) return std::nullopt;
  return number < 1 ? std::nullopt : std::optional(Version(number));
}

absl::Status SystemTrouble(const std::string& path, const char* what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

absl::Status SyncFolder(const std::string& folder) {
  const UniqueFd file(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file || fsync(file.get()) != 0) return SystemTrouble(folder, "cannot be made durable");
  return absl::OkStatus();
}

// `from` gets the name `to`; what had it before gets the name `from`.
absl::Status Exchange(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0 ||
      rename(from.c_str(), to.c_str()) == 0) {
    return absl::OkStatus();
  }
  return SystemTrouble(from, "cannot be renamed");
}

// Under another name first: what is half removed is no checkpoint.
absl::Status RemoveCheckpoint(const std::string& folder, Version version,
                              const CommitMoment& moment) {
  const std::string path = absl::StrCat(folder, "/", CheckpointName(version));
  const std::string old = absl::StrCat(folder, "/.", CheckpointName(version), kOld);
  if (rename(path.c_str(), old.c_str()) != 0) return SystemTrouble(path, "cannot be renamed");
  moment();
  std::error_code error;
  std::filesystem::remove_all(old, error);
  if (error) return absl::UnavailableError(absl::StrCat(old, ": ", error.message()));
  return absl::OkStatus();
}

void RemoveLeftovers(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    const bool ours =
        absl::StartsWith(name, absl::StrCat(".", kPrefix)) || absl::StartsWith(name, "latest.");
    if (ours && (absl::EndsWith(name, kTemporary) || absl::EndsWith(name, kOld))) {
      left.push_back(entry.path());
    }
  }
  for (const auto& path : left) std::filesystem::remove_all(path, error);
}

}  // namespace

std::string CheckpointName(Version version) {
  return absl::StrFormat("%s%06d", kPrefix, version.value);
}

std::string TensorFileName(const std::string& kind, StageId stage, int stages) {
  return absl::StrFormat("%s-%05d-of-%05d.safetensors", kind, stage.value + 1, stages);
}

std::string StaleName(const std::string& parameter, Version label) {
  return absl::StrCat(parameter, "@", LabelText(label));
}

std::string UnfinishedFolder(const std::string& folder, Version version) {
  return absl::StrCat(folder, "/.", CheckpointName(version), kTemporary);
}

std::string WriteCheckpointState(const CheckpointState& state) {
  Json json = SimpleMembers(state);
  if (state.loss_scale.has_value()) json["loss_scale"] = LossScaleJson(*state.loss_scale);
  json["files"] = state.files;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<CheckpointState> ParseCheckpointState(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat) {
    return InvalidArgument("wanted JSON with \"format\": \"", kFormat, "\"");
  }
  CheckpointState state;
  RZ_RETURN_IF_ERROR(CheckMembers(SimpleMembers(state), json));
  state.version = Version(json["version"].get<int>());
  state.rule = json["rule"];
  state.predict = json["predict"];
  state.optimizer = json["optimizer"];
  state.precision = json["precision"];
  state.workers = json["workers"];
  state.stages = json["stages"];
  state.micro_batches = json["micro_batches"];
  state.train_batch = json["train_batch"];
  state.data = json["data"];
  state.made_by = json["made_by"];
  state.plan = json["plan"];
  if (!absl::SimpleAtoi(json["seed"].get<std::string>(), &state.seed) ||
      !absl::SimpleAtod(json["norm"].get<std::string>(), &state.norm)) {
    return InvalidArgument("\"seed\" and \"norm\": wanted numbers");
  }
  if (const auto scale = json.find("loss_scale"); scale != json.end()) {
    RZ_RETURN_IF_ERROR(CheckMembers(LossScaleJson({}), *scale));
    state.loss_scale = LossScale::History{.noted = (*scale)["noted"],
                                          .scale = (*scale)["scale"],
                                          .scale_of_next = (*scale)["scale_of_next"],
                                          .hysteresis = (*scale)["hysteresis"],
                                          .last_overflow = (*scale)["finite_since"].get<int>() - 1,
                                          .skipped = (*scale)["skipped"]};
  }
  const auto files = json.find("files");
  if (files == json.end() || !files->is_object()) return InvalidArgument("\"files\": wanted names");
  for (const auto& [name, checksum] : files->items()) {
    if (!checksum.is_string() || absl::StrContains(name, '/')) {
      return InvalidArgument("\"files\": \"", name, "\": wanted a file's name and its checksum");
    }
    state.files[name] = checksum;
  }
  return state;
}

absl::StatusOr<CheckpointLock> CheckpointLock::Take(const std::string& folder) {
  RZ_RETURN_IF_ERROR(MakeFolders(folder));
  const std::string path = absl::StrCat(folder, "/lock");
  UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    const absl::StatusOr<std::string> holder = ReadWholeFile(path, 200);
    return absl::AlreadyExistsError(
        absl::StrCat(folder, ": another run writes its checkpoints here: ",
                     holder.ok() && !holder->empty() ? *holder : "it has left no name"));
  }
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::string name = absl::StrCat("process ", getpid(), " on ", host);
  // A name that cannot be written is missing in another run's error alone.
  if (ftruncate(file.get(), 0) == 0) (void)!pwrite(file.get(), name.data(), name.size(), 0);
  RemoveLeftovers(folder);
  return CheckpointLock(std::move(file));
}

std::vector<Version> CheckpointsIn(const std::string& folder) {
  std::vector<Version> versions;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::optional<Version> version = VersionOf(entry.path().filename().string());
    if (version.has_value()) versions.push_back(*version);
  }
  std::ranges::sort(versions);
  return versions;
}

std::optional<Version> LatestIn(const std::string& folder) {
  const absl::StatusOr<std::string> text = ReadWholeFile(absl::StrCat(folder, "/latest"), 100);
  if (!text.ok()) return std::nullopt;
  return VersionOf(absl::StripSuffix(*text, "\n"));
}

absl::Status CommitCheckpoint(const std::string& folder, Version version, int keep,
                              const CommitMoment& moment) {
  const std::string made = UnfinishedFolder(folder, version);
  const std::string path = absl::StrCat(folder, "/", CheckpointName(version));
  RZ_RETURN_IF_ERROR(SyncFolder(made));
  moment();
  RZ_RETURN_IF_ERROR(Exchange(made, path));
  moment();
  RZ_RETURN_IF_ERROR(SyncFolder(folder));
  RZ_RETURN_IF_ERROR(
      WriteWholeFile(absl::StrCat(folder, "/latest"), CheckpointName(version) + "\n"));
  moment();
  std::error_code ignored;
  std::filesystem::remove_all(made, ignored);  // another checkpoint of the same version
  std::vector<Version> old = CheckpointsIn(folder);
  std::erase_if(old, [&](Version v) { return v > version; });
  for (size_t i = 0; keep > 0 && i + keep < old.size(); ++i) {
    RZ_RETURN_IF_ERROR(RemoveCheckpoint(folder, old[i], moment));
  }
  return absl::OkStatus();
}

}  // namespace ringzero
