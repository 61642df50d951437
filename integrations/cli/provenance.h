// Provenance: what was run, by which program and where, for a run's folder and its summary.
//
//   Provenance provenance = BeginProvenance(line, config, "torchrun");   // when the run begins
//   for (const WorkerReport& report : reports) provenance.Add(report.worker, report.place);
//   summary["provenance"] = Json::parse(ToJson(provenance));
//
// Of the environment only variables that change results or their speed are kept, and none whose
// name speaks of a secret. Pure but for the functions that look at this process.
#ifndef RINGZERO_INTEGRATIONS_CLI_PROVENANCE_H_
#define RINGZERO_INTEGRATIONS_CLI_PROVENANCE_H_

#include <string>
#include <utility>
#include <vector>

#include "integrations/cli/command_line.h"
#include "p2p/rendezvous/identity.h"
#include "zero/config/config.h"

namespace ringzero {

// Where a worker ran.
struct WorkerPlace {
  std::string host;
  std::string system;        // "Linux 6.1.0 x86_64"
  std::string processor;     // "AMD EPYC 7B13"; "unknown" where /proc/cpuinfo does not say
  std::string instructions;  // which of LibTorch's kernels run there: "AVX2"
  double cores = 0;          // that the process may use; 0.5 with half a core's quota
  std::string transport;     // to the right neighbour; empty: nothing travels

  bool operator==(const WorkerPlace&) const = default;
};
// Of this process, without a transport.
WorkerPlace ThisPlace();
std::string ToJson(const WorkerPlace& place);
// `text`: of ToJson.
WorkerPlace PlaceFromJson(const std::string& text);

struct Provenance {
  std::vector<std::string> command;
  std::string init;            // --init; empty: none
  std::string working_folder;  // which the command's paths are relative to
  std::string started;         // "2026-11-25T04:45:33Z"
  std::string launcher;        // "ringzero", "torchrun", …
  Environment environment;
  std::string configuration;  // Config::Print
  // Equal places once, with their workers, ascending. Of a run that has not ended: this process'
  // place, without workers.
  std::vector<std::pair<WorkerPlace, std::vector<int>>> places;

  void Add(int worker, const WorkerPlace& place);
};

// `launcher`: who started the workers; empty: this program.
Provenance BeginProvenance(const CommandLine& line, const Config& config,
                           const std::string& launcher);
// With the versions of the program and of LibTorch.
std::string ToJson(const Provenance& provenance);

// What of `all` is kept.
Environment KeptVariables(const Environment& all);

// "ringzero 0.1.0, commit 6dd9e2e3c1f0, LibTorch 2.11.0": the commit where it was built from a
// clone, with -dirty behind it where sources were changed.
std::string VersionText();

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_PROVENANCE_H_
