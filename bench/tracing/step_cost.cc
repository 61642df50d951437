// Processor time that the flight recorder and tracing take: of a step of the engine, and of one event.
//
//   build/bin/step_cost [ROUNDS]
//
// A toy model (tests/zero/toy_ring.h) of 2 workers and 8 stages computes next to nothing, so that
// what is left is the engine. Short runs with neither, with the recorder and with a trace take
// turns, so that a machine that changes its speed changes it for all three. Prints JSON: seconds of
// processor time, all workers and threads, by round; tracing includes reading and writing.
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
#include "base/status.h"
#include "tests/zero/toy_ring.h"
#include "zero/flight/flight_recorder.h"

namespace ringzero {
namespace {

constexpr int kIterations = 400;
constexpr int kEvents = 1 << 18;

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
  std::vector<double> step = {}, event = {};  // seconds, by round
};

absl::StatusOr<double> MeasureStep(const Way& way, const std::string& folder) {
  ToyOptions options{.workers = 2, .stages = 8, .iterations = kIterations};
  options.recorder_events = way.events;
  if (way.traced) options.trace_folder = folder;
  const double before = ProcessorSeconds();
  RZ_RETURN_IF_ERROR(RunToyRing(options, LocalTransports()).status());
  return (ProcessorSeconds() - before) / kIterations;
}

absl::StatusOr<double> MeasureEvent(const Way& way, const std::string& folder) {
  FlightRecorder recorder(way.events);
  std::unique_ptr<TraceStream> stream;
  if (way.traced) {
    RZ_ASSIGN_OR_RETURN(stream, TraceStream::Create({.folder = folder, .recorder = &recorder}));
  }
  const double before = ProcessorSeconds();
  for (int n = 0; n < kEvents; ++n) {
    const Op op = {.kind = OpKind::kSend,
                   .channel = Channel::kSum,
                   .stage = StageId(n % 16),
                   .iteration = Iteration(n / 16),
                   .lap = Lap(0),
                   .peer = WorkerId(1)};
    recorder.Record(FlightRecorder::Writer::kMessages,
                    {EventKind::kBegin, op, static_cast<uint32_t>(n)});
    // A ring's half at a time, as if the stream came around: none is lost.
    if (way.traced && n % (kTraceEvents / 2) == 0) stream->Drain();
  }
  if (way.traced) RZ_RETURN_IF_ERROR(stream->Finish());
  return (ProcessorSeconds() - before) / kEvents;
}

absl::Status Measure(int rounds, const std::string& folder) {
  std::array<Way, 3> ways = {
      {{"neither", 0, false}, {"recorded", kFlightEvents, false}, {"traced", kTraceEvents, true}}};
  for (size_t turn = 0; turn < ways.size() * static_cast<size_t>(rounds); ++turn) {
    Way& way = ways[(turn + turn / ways.size()) % ways.size()];  // each round begins with another
    RZ_ASSIGN_OR_RETURN(const double step, MeasureStep(way, folder));
    RZ_ASSIGN_OR_RETURN(const double event, MeasureEvent(way, folder));
    way.step.push_back(step);
    way.event.push_back(event);
  }
  const std::string entries = absl::StrJoin(ways, ", ", [](std::string* out, const Way& way) {
    absl::StrAppend(out, "\"", way.name, "\": {\"step\": [", absl::StrJoin(way.step, ", "),
                    "], \"event\": [", absl::StrJoin(way.event, ", "), "]}");
  });
  std::printf("{%s}\n", entries.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace ringzero

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 60;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: step_cost [ROUNDS]\n");
    return 2;
  }
  char folder[] = "/tmp/ringzero-step-cost-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const absl::Status measured = ringzero::Measure(rounds, folder);
  std::filesystem::remove_all(folder);
  if (!measured.ok()) std::fprintf(stderr, "step_cost: %s\n", measured.ToString().c_str());
  return measured.ok() ? 0 : 1;
}
