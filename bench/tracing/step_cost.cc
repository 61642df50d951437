// Processor time that the flight recorder and tracing add to a step of the engine.
//
//   build/bin/step_cost [ROUNDS]
//
// A toy model (tests/zero/toy_ring.h) of 2 workers and 8 stages computes next to nothing, so that
// what is left is the engine. Short runs with neither, with the recorder and with a trace take
// turns, so that a machine that changes its speed changes it for all three. Prints JSON: seconds of
// processor time of a step, all workers and threads, by run.
#include <stdlib.h>
#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/zero/toy_ring.h"
#include "zero/trace_stream.h"

namespace ringzero {
namespace {

constexpr int kIterations = 400;

double ProcessorSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Way {
  const char* name;
  size_t events;
  bool traced;
};
constexpr std::array<Way, 3> kWays = {
    {{"neither", 0, false}, {"recorded", kFlightEvents, false}, {"traced", kTraceEvents, true}}};

// Of one step. Negative: it failed.
double Measure(const Way& way, const std::string& folder) {
  ToyOptions options{.workers = 2, .stages = 8, .iterations = kIterations};
  options.recorder_events = way.events;
  if (way.traced) options.trace_folder = folder;
  const double before = ProcessorSeconds();
  const absl::StatusOr<ToyResult> run = RunToyRing(options, LocalTransports());
  const double used = ProcessorSeconds() - before;
  if (run.ok()) return used / kIterations;
  std::fprintf(stderr, "step_cost: %s\n", run.status().ToString().c_str());
  return -1;
}

int Run(int rounds) {
  char folder[] = "/tmp/ringzero-step-cost-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  std::array<std::vector<double>, kWays.size()> seconds;
  bool good = true;
  for (int round = 0; round < rounds && good; ++round) {
    for (size_t i = 0; i < kWays.size() && good; ++i) {
      const size_t way = (i + static_cast<size_t>(round)) % kWays.size();
      seconds[way].push_back(Measure(kWays[way], folder));
      good = seconds[way].back() >= 0;
    }
  }
  std::filesystem::remove_all(folder);
  if (!good) return 1;
  std::vector<std::string> entries;
  for (size_t way = 0; way < kWays.size(); ++way) {
    entries.push_back(
        absl::StrCat("\"", kWays[way].name, "\": [", absl::StrJoin(seconds[way], ", "), "]"));
  }
  std::printf("{%s}\n", absl::StrJoin(entries, ", ").c_str());
  return 0;
}

}  // namespace
}  // namespace ringzero

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 60;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: step_cost [ROUNDS]\n");
    return 2;
  }
  return ringzero::Run(rounds);
}
