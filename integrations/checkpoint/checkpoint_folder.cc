// Names, state.json, the lock, and the order in which a checkpoint gets its name.
#include "integrations/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/crypto.h"
#include "base/files.h"
#include "base/status.h"
#include "sharding/op.h"
#include "zero/config/json_value.h"

namespace ringzero {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CheckpointState, rule, predict, optimizer, precision, workers,
                                   stages, micro_batches, train_batch, data, made_by, plan)

namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "ringzero checkpoint 3";
constexpr char kPrefix[] = "iteration-";
constexpr char kOld[] = ".old";
constexpr char kTemporary[] = ".tmp";
constexpr char kSeal[] = ",\n  \"sha256\": \"";

Json LossScaleJson(const LossScale::History& history) {
  return {{"scale", history.scale},
          {"scale_of_next", history.scale_of_next},
          {"hysteresis", std::max(0, history.hysteresis)},  // below 0 is as good as 0
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

std::optional<Version> VersionOf(absl::string_view whole) {
  int number = 0;
  absl::string_view name = whole;
  if (!absl::ConsumePrefix(&name, kPrefix) || !absl::SimpleAtoi(name, &number)) return std::nullopt;
  const Version version(number);
  return number < 1 || CheckpointName(version) != whole ? std::nullopt : std::optional(version);
}

absl::Status SystemTrouble(const std::string& path, const char* what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

absl::Status SyncFolder(const std::string& folder) {
  const UniqueFd file(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file || fsync(file.get()) != 0) return SystemTrouble(folder, "cannot be made durable");
  return absl::OkStatus();
}

// Under another name first: what is half removed is no checkpoint.
absl::Status RemoveCheckpoint(const std::string& folder, Version version,
                              const CommitMoment& moment) {
  const std::string path = absl::StrCat(folder, "/", CheckpointName(version));
  const std::string old = absl::StrCat(folder, "/.", CheckpointName(version), kOld);
  if (rename(path.c_str(), old.c_str()) != 0) return SystemTrouble(path, "cannot be renamed");
  moment();
  std::error_code ignored;  // the next job that holds the lock removes what is left
  std::filesystem::remove_all(old, ignored);
  return absl::OkStatus();
}

void RemoveLeftovers(const std::string& folder) {
  std::error_code ignored;
  for (const std::string& name : NamesIn(folder)) {
    const bool ours =
        absl::StartsWith(name, absl::StrCat(".", kPrefix)) || absl::StartsWith(name, "latest.");
    if (ours && (absl::EndsWith(name, kTemporary) || absl::EndsWith(name, kOld))) {
      std::filesystem::remove_all(absl::StrCat(folder, "/", name), ignored);
    }
  }
}

// `made` gets the version's name. What had it before is there under one of two names until then.
absl::Status TakeName(const std::string& folder, Version version, const std::string& made,
                      const CommitMoment& moment) {
  const std::string path = absl::StrCat(folder, "/", CheckpointName(version));
  if (rename(made.c_str(), path.c_str()) == 0 ||
      renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINVAL) return SystemTrouble(made, "cannot be renamed");
  RZ_RETURN_IF_ERROR(RemoveCheckpoint(folder, version, moment));  // NFS exchanges no names
  if (rename(made.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return SystemTrouble(made, "cannot be renamed");
}

}  // namespace

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename());
  }
  return names;
}

std::string CheckpointName(Version version) {
  return absl::StrFormat("%s%06d", kPrefix, version.value);
}

std::string StaleName(const std::string& parameter, Version label) {
  return absl::StrCat(parameter, "@", LabelText(label));
}

std::string UnfinishedFolder(const std::string& folder, Version version) {
  return absl::StrCat(folder, "/.", CheckpointName(version), kTemporary);
}

std::string SealCheckpointState(const std::string& members) {
  return absl::StrCat(members, kSeal, Sha256Hex(members), "\"\n}\n");
}

std::string WriteCheckpointState(const CheckpointState& state) {
  Json json = SimpleMembers(state);
  if (state.loss_scale.has_value()) json["loss_scale"] = LossScaleJson(*state.loss_scale);
  json["files"] = state.files;
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  return SealCheckpointState(text.substr(0, text.rfind("\n}")));
}

absl::StatusOr<CheckpointState> ParseCheckpointState(const std::string& text) {
  // What lies deeper is dropped: it is of no use here, and would be walked recursively.
  const auto shallow = [](int depth, auto, auto&) { return depth <= 3; };
  const auto json = nlohmann::json::parse(text, shallow, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat) {
    return InvalidArgument("wanted JSON with \"format\": \"", kFormat, "\"");
  }
  if (text != SealCheckpointState(text.substr(0, text.rfind(kSeal)))) {
    return InvalidArgument("\"sha256\" is not that of the text before it: damaged, or edited");
  }
  CheckpointState state;
  RZ_RETURN_IF_ERROR(CheckMembers(SimpleMembers(state), json));
  for (const char* const name : {"version", "workers", "stages", "micro_batches"}) {
    if (json[name] > INT_MAX || json[name] < 1) {
      return InvalidArgument("\"", name, "\": wanted 1 to ", INT_MAX, ", found ",
                             json[name].dump());
    }
  }
  json.get_to(state);
  state.version = Version(json["version"].get<int>());
  if (!absl::SimpleAtoi(json["seed"].get<std::string>(), &state.seed) ||
      !absl::SimpleAtod(json["norm"].get<std::string>(), &state.norm)) {
    return InvalidArgument("\"seed\" and \"norm\": wanted numbers");
  }
  if (const auto scale = json.find("loss_scale"); scale != json.end()) {
    RZ_RETURN_IF_ERROR(CheckMembers(LossScaleJson({}), *scale));
    for (const char* const name : {"hysteresis", "finite_since", "skipped"}) {
      if ((*scale)[name] > INT_MAX) return InvalidArgument("\"", name, "\": too large");
    }
    state.loss_scale = LossScale::History{.noted = state.version.value,
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

absl::StatusOr<UniqueFd> LockCheckpoints(const std::string& folder) {
  RZ_RETURN_IF_ERROR(MakeFolders(folder));
  const std::string path = absl::StrCat(folder, "/lock");
  UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return SystemTrouble(path, "cannot be locked");
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
  return file;
}

std::vector<Version> CheckpointsIn(const std::string& folder) {
  std::vector<Version> versions;
  for (const std::string& name : NamesIn(folder)) {
    const std::optional<Version> version = VersionOf(name);
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
  RZ_RETURN_IF_ERROR(SyncFolder(made));
  moment();
  RZ_RETURN_IF_ERROR(TakeName(folder, version, made, moment));
  moment();
  RZ_RETURN_IF_ERROR(SyncFolder(folder));
  RZ_RETURN_IF_ERROR(
      WriteWholeFile(absl::StrCat(folder, "/latest"), CheckpointName(version) + "\n"));
  moment();
  // The checkpoint is there: what cannot be removed stays.
  std::error_code ignored;
  std::filesystem::remove_all(made, ignored);  // another checkpoint of the same version
  std::vector<Version> old = CheckpointsIn(folder);
  std::erase_if(old, [&](Version v) { return v > version; });
  for (size_t i = 0; keep > 0 && i + keep < old.size(); ++i) {
    RemoveCheckpoint(folder, old[i], moment).IgnoreError();
  }
  return absl::OkStatus();
}

}  // namespace ringzero
