// Looks at /proc, the environment and what the build has written down.
#include "integrations/cli/provenance.h"

#include <sys/utsname.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "integrations/cli/cores.h"
#include "integrations/torch/machine_speed.h"
#include "p2p/ucx/ucx_transport.h"

namespace ringzero {

extern const char kBuiltCommit[];  // written by cmake/write_commit.cmake; empty: not of a clone

namespace {

using OrderedJson = nlohmann::ordered_json;

// Their beginnings.
constexpr const char* kKept[] = {
    "ATEN_",   "CUDA_", "DNNL_", "GOMP_", "KMP_",    "LD_LIBRARY_PATH", "LD_PRELOAD",
    "MALLOC_", "MKL_",  "NCCL_", "OMP_",  "ONEDNN_", "RINGZERO_",       "UCX_"};
constexpr const char* kSecretWords[] = {"AUTH", "CREDENTIAL", "KEY", "PASS", "SECRET", "TOKEN"};

std::string ProcessorName() {
  const std::string name = FieldOfFile("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown" : name;
}

std::string NowUtc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[sizeof("2026-11-25T04:45:33Z")];
  std::strftime(text, sizeof(text), "%FT%TZ", &parts);
  return text;
}

// A host's name or a path may have any bytes.
std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson OrNone(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

OrderedJson PlaceJson(const WorkerPlace& place) {
  return {{"host", place.host},           {"system", place.system},
          {"processor", place.processor}, {"instructions", place.instructions},
          {"cores", place.cores},         {"transport", OrNone(place.transport)}};
}

}  // namespace

WorkerPlace ThisPlace() {
  utsname system{};
  uname(&system);
  return {.host = system.nodename,
          .system = absl::StrCat(system.sysname, " ", system.release, " ", system.machine),
          .processor = ProcessorName(),
          .instructions = LibTorchInstructions(),
          .cores = UsableCores()};
}

std::string ToJson(const WorkerPlace& place) { return Dump(PlaceJson(place)); }

WorkerPlace PlaceFromJson(const std::string& text) {
  const OrderedJson json = OrderedJson::parse(text);
  const OrderedJson& transport = json["transport"];
  return {.host = json["host"],
          .system = json["system"],
          .processor = json["processor"],
          .instructions = json["instructions"],
          .cores = json["cores"],
          .transport = transport.is_string() ? transport.get<std::string>() : ""};
}

void Provenance::Add(int worker, const WorkerPlace& place) {
  for (auto& [known, workers] : places) {
    if (known != place) continue;
    workers.push_back(worker);
    return;
  }
  places.push_back({place, {worker}});
}

Provenance BeginProvenance(const CommandLine& line, const Config& config,
                           const std::string& launcher) {
  std::error_code unknown;
  return {.command = line.words,
          .init = line.init,
          .working_folder = std::filesystem::current_path(unknown).string(),
          .started = NowUtc(),
          .launcher = launcher.empty() ? "ringzero" : launcher,
          .environment = KeptVariables(CurrentEnvironment()),
          .configuration = config.Print()};
}

std::string ToJson(const Provenance& provenance) {
  OrderedJson places = OrderedJson::array();
  for (const auto& [place, workers] : provenance.places) {
    places.push_back(PlaceJson(place));
    places.back()["workers"] = workers;
  }
  const OrderedJson versions = {{"ringzero", RINGZERO_VERSION},
                                {"commit", OrNone(kBuiltCommit)},
                                {"libtorch", LibTorchVersion()},
                                {"ucx", UcxVersion()},
                                {"compiler", RINGZERO_COMPILER}};
  const OrderedJson configuration =
      OrderedJson::parse(provenance.configuration, nullptr, false, /*ignore_comments=*/true);
  const OrderedJson json = {{"command", provenance.command},
                            {"init", OrNone(provenance.init)},
                            {"working_folder", provenance.working_folder},
                            {"started", provenance.started},
                            {"launcher", provenance.launcher},
                            {"versions", versions},
                            {"environment", provenance.environment},
                            {"places", places},
                            {"configuration", configuration}};
  return Dump(json);
}

Environment KeptVariables(const Environment& all) {
  Environment kept;
  for (const auto& [name, value] : all) {
    const std::string upper = absl::AsciiStrToUpper(name);
    const auto begins = [&](const char* word) { return absl::StartsWith(name, word); };
    const auto has = [&](const char* word) { return absl::StrContains(upper, word); };
    if (std::any_of(std::begin(kKept), std::end(kKept), begins) &&
        std::none_of(std::begin(kSecretWords), std::end(kSecretWords), has)) {
      kept[name] = value;
    }
  }
  return kept;
}

std::string VersionText() {
  const std::string commit = kBuiltCommit;
  return absl::StrCat("ringzero ", RINGZERO_VERSION, commit.empty() ? "" : ", commit ", commit,
                      ", LibTorch ", LibTorchVersion());
}

}  // namespace ringzero
