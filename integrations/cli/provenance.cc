// Looks at /proc, the environment, what the build has written down, and a run's folder.
#include "integrations/cli/provenance.h"

#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/files.h"
#include "base/status.h"
#include "integrations/torch/measurements.h"
#include "p2p/job/join_job.h"
#include "p2p/job/limits.h"
#include "p2p/ucx/ucx_transport.h"

namespace ringzero {

extern const char kBuiltCommit[];  // written by cmake/write_commit.cmake; empty: not of a clone

namespace {

// Prefixes of the variables that are kept, and words that none of their names may contain.
constexpr const char* kKept[] = {
    "ATEN_",   "CUDA_", "DNNL_", "GOMP_", "KMP_",    "LD_LIBRARY_PATH", "LD_PRELOAD",
    "MALLOC_", "MKL_",  "NCCL_", "OMP_",  "ONEDNN_", "RINGZERO_",       "UCX_"};
constexpr const char* kSecretWords[] = {"AUTH", "CREDENTIAL", "KEY", "PASS", "SECRET", "TOKEN"};

bool IsKept(const std::string& name) {
  const std::string upper = absl::AsciiStrToUpper(name);
  const auto begins = [&](const char* word) { return absl::StartsWith(name, word); };
  const auto has = [&](const char* word) { return absl::StrContains(upper, word); };
  return std::ranges::any_of(kKept, begins) && std::ranges::none_of(kSecretWords, has);
}

// The parts of a provenance that may change a result. Throws OrderedJson::exception if it is none.
OrderedJson WhatMakesBits(const OrderedJson& provenance) {
  std::set<std::string> processors, instructions;
  for (const OrderedJson& place : provenance.at("places")) {
    processors.insert(place.at("processor").get<std::string>());
    instructions.insert(place.at("instructions").get<std::string>());
  }
  OrderedJson json = {{"processor", absl::StrJoin(processors, " and ")},
                      {"instructions", absl::StrJoin(instructions, " and ")}};
  for (const char* const key : {"versions", "environment", "init", "configuration"}) {
    json[key] = provenance.at(key);
  }
  json["rule"] = provenance.value("rule", OrderedJson());  // that "auto" chose
  return json;
}

// "processor: "A" there, "B" here", a line for each value that is not the same.
std::vector<std::string> DifferencesOf(const OrderedJson& there, const OrderedJson& here) {
  std::vector<std::string> lines;
  for (const OrderedJson& change : OrderedJson::diff(there, here)) {
    const std::string path = change["path"];
    const OrderedJson::json_pointer at(path);
    const std::string was = there.contains(at) ? Dump(there[at], -1) : "nothing";
    // What is added to a list has no place there yet ("list/-"): the change itself has the value.
    const std::string is = change.contains("value") ? Dump(change["value"], -1) : "nothing";
    lines.push_back(absl::StrCat(path.substr(1), ": ", was, " there, ", is, " here"));
  }
  return lines;
}

}  // namespace

OrderedJson ThisPlace() {
  utsname system{};
  uname(&system);
  const std::string processor = FieldOfFile("/proc/cpuinfo", "model name");
  return {{"host", system.nodename},
          {"system", absl::StrCat(system.sysname, " ", system.release, " ", system.machine)},
          {"processor", processor.empty() ? "unknown" : processor},
          {"instructions", LibTorchInstructions()},
          {"cores", UsableCores()},
          {"transport", nullptr}};
}

OrderedJson BeginProvenance(const CommandLine& line, const Config& config,
                            const std::string& launcher) {
  std::error_code unknown;
  const std::string now = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  OrderedJson provenance = {{"command", line.words},
                            {"init", OrNull(line.init)},
                            {"init_partial", line.init_partial},
                            {"working_folder", std::filesystem::current_path(unknown).string()},
                            {"started", now},
                            {"launcher", launcher.empty() ? "ringzero" : launcher},
                            {"versions",
                             {{"ringzero", RINGZERO_VERSION},
                              {"commit", OrNull(kBuiltCommit)},
                              {"libtorch", LibTorchVersion()},
                              {"ucx", UcxVersion()},
                              {"compiler", RINGZERO_COMPILER}}},
                            {"environment", OrderedJson::object()},
                            {"places", OrderedJson::array()},
                            {"configuration", OrderedJson::parse(config.Print(), nullptr, false,
                                                                 /*ignore_comments=*/true)}};
  for (const auto& [name, value] : CurrentEnvironment()) {
    if (IsKept(name)) provenance["environment"][name] = value;
  }
  return provenance;
}

void AddPlace(OrderedJson place, int worker, OrderedJson& provenance) {
  for (OrderedJson& known : provenance["places"]) {
    place["workers"] = known["workers"];
    if (place == known) return known["workers"].push_back(worker);
  }
  place["workers"] = worker < 0 ? OrderedJson::array() : OrderedJson::array({worker});
  provenance["places"].push_back(std::move(place));
}

std::string Dump(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson OrNull(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

std::string VersionText() {
  const std::string commit = kBuiltCommit;
  return absl::StrCat("ringzero ", RINGZERO_VERSION, commit.empty() ? "" : ", commit ", commit,
                      ", LibTorch ", LibTorchVersion());
}

absl::Status WriteRunRecord(const std::string& folder, const Config& config,
                            const OrderedJson& provenance) {
  RZ_RETURN_IF_ERROR(WriteWholeFile(absl::StrCat(folder, "/config.json"), config.Print()));
  return WriteWholeFile(absl::StrCat(folder, "/provenance.json"),
                        Dump({{"provenance", provenance}}, 2) + "\n");
}

absl::StatusOr<RunRecord> ReadRunRecord(const std::string& folder) {
  std::string path = absl::StrCat(folder, "/summary.json");
  absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (absl::IsNotFound(text.status())) {
    path = absl::StrCat(folder, "/provenance.json");  // the run has not ended
    text = ReadWholeFile(path);
  }
  if (!text.ok()) return Annotate(text.status(), "--again");
  try {
    const OrderedJson json = OrderedJson::parse(*text);
    const OrderedJson& provenance = json.at("provenance");
    const auto text_of = [](const OrderedJson& value) {
      return value.is_null() ? "" : value.get<std::string>();
    };
    return RunRecord{.folder = folder,
                     .makes_bits = WhatMakesBits(provenance),
                     .init = text_of(provenance.at("init")),
                     .init_partial = provenance.value("init_partial", false),
                     .parameters_sha256 = text_of(json.value("parameters_sha256", OrderedJson()))};
  } catch (const OrderedJson::exception&) {
    return InvalidArgument(path,
                           ": wanted what a run with --metrics writes there, found something else");
  }
}

Comparison CompareRuns(const RunRecord& before, const OrderedJson& provenance,
                       const std::string& parameters_sha256) {
  const OrderedJson now = OrderedJson::parse(Dump(provenance, -1));  // as a file has it
  const std::vector<std::string> differs = DifferencesOf(before.makes_bits, WhatMakesBits(now));
  OrderedJson same = nullptr;
  std::string text;
  if (before.parameters_sha256.empty() || parameters_sha256.empty()) {
    text = absl::StrCat("nothing to compare with ", before.folder, ": ",
                        parameters_sha256.empty() ? "this run" : "that run",
                        " has no parameters sha256\n");
  } else if (same = before.parameters_sha256 == parameters_sha256; same) {
    text = absl::StrCat("same result as that of ", before.folder, ": the parameters sha256\n");
  } else {
    text = absl::StrCat("another result than that of ", before.folder, ": there parameters sha256 ",
                        before.parameters_sha256, "\n");
    for (const std::string& line : differs) absl::StrAppend(&text, "  differs: ", line, "\n");
    if (differs.empty()) text += "  nothing else that was recorded differs\n";
  }
  return {.text = text,
          .json = {{"folder", before.folder}, {"same_parameters", same}, {"differs", differs}}};
}

}  // namespace ringzero
