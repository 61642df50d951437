// Nanoseconds per event of the flight recorder and of tracing, and what that is per iteration.
//
//   build/bin/recorder_bench
//
// Each row's counters: events per iteration and worker of a plan (begin and end of every operation
// of its program, and a wait before each computing one at most), and so microseconds per iteration.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sharding/plan.h"
#include "sharding/program.h"
#include "sharding/verify.h"
#include "zero/flight_recorder.h"
#include "zero/trace_stream.h"

namespace ringzero {
namespace {

using Writer = FlightRecorder::Writer;

Plan MakePlan(int workers, int stages) {
  Plan plan{.workers = workers, .window = 2 * ((stages + workers - 1) / workers), .iterations = 8};
  for (int j = 0; j < stages; ++j) {
    plan.stages.push_back({.name = "s" + std::to_string(j),
                           .first_layer = j,
                           .end_layer = j + 1,
                           .parameter_bytes = 64,
                           .sum_bytes = 128,
                           .backward_cost = 2,
                           .owner = WorkerId(workers - 1 - j * workers / stages)});
  }
  return plan;
}

// The most of all workers, in an iteration in the middle of the run.
int64_t EventsPerIteration(const Plan& plan) {
  size_t most = 0;
  for (int w = 0; w < plan.workers; ++w) {
    const auto program = MakeProgram(plan, WorkerId(w), {Iteration(4), Iteration(5)});
    size_t events = 0;
    for (const Op& op : program->ops) events += IsCompute(op.kind) ? 4 : 2;
    most = std::max(most, events);
  }
  return static_cast<int64_t>(most);
}

Op SomeOp(int64_t n) {
  return {.kind = OpKind::kSend,
          .channel = Channel::kSum,
          .stage = StageId(static_cast<int>(n % 16)),
          .iteration = Iteration(static_cast<int>(n / 16)),
          .lap = Lap(0),
          .peer = WorkerId(1)};
}

// Per iteration of a plan, from the time of one event.
void CountPerIteration(benchmark::State& state) {
  const int64_t events = EventsPerIteration(
      MakePlan(static_cast<int>(state.range(0)), static_cast<int>(state.range(1))));
  state.counters["events_per_iteration"] = static_cast<double>(events);
  using Flags = benchmark::Counter::Flags;
  state.counters["seconds_per_iteration"] = benchmark::Counter(
      static_cast<double>(state.iterations()) / static_cast<double>(events),
      static_cast<Flags>(benchmark::Counter::kIsRate | benchmark::Counter::kInvert));
}

void BM_Clock(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(std::chrono::steady_clock::now());
}
BENCHMARK(BM_Clock);

void BM_Record(benchmark::State& state) {
  FlightRecorder recorder({});
  int64_t n = 0;
  for (auto _ : state) {
    const Op op = SomeOp(n++);
    recorder.Record(Writer::kMessages, {EventKind::kBegin, op, static_cast<uint32_t>(n)});
  }
  CountPerIteration(state);
}
BENCHMARK(BM_Record)->ArgNames({"N", "S"})->Args({4, 4})->Args({4, 16})->Args({8, 32});

// Recording, and reading and writing to a file what was recorded: all CPU time of both threads.
void BM_RecordAndTrace(benchmark::State& state) {
  const std::string folder = std::filesystem::temp_directory_path() / "ringzero-recorder-bench";
  FlightRecorder recorder({.capacity = kTraceEvents});
  auto stream = TraceStream::Create({.folder = folder, .recorder = &recorder});
  if (!stream.ok()) {
    state.SkipWithError(stream.status().ToString().c_str());
    return;
  }
  int64_t n = 0;
  for (auto _ : state) {
    const Op op = SomeOp(n++);
    recorder.Record(Writer::kMessages, {EventKind::kBegin, op, static_cast<uint32_t>(n)});
    // A ring's half at a time, as if the stream came around: none is lost.
    if (n % (kTraceEvents / 2) == 0) (*stream)->Drain();
  }
  if (absl::Status finished = (*stream)->Finish(); !finished.ok()) {
    state.SkipWithError(finished.ToString().c_str());
  }
  CountPerIteration(state);
  std::filesystem::remove_all(folder);
}
BENCHMARK(BM_RecordAndTrace)->ArgNames({"N", "S"})->Args({4, 16})->MeasureProcessCPUTime();

// Somebody asks for the last events: what SIGUSR1 costs, once.
void BM_Last(benchmark::State& state) {
  FlightRecorder recorder({});
  for (int64_t n = 0; n < 10000; ++n) {
    const Op op = SomeOp(n);
    for (const Writer writer : {Writer::kComputing, Writer::kPool, Writer::kMessages}) {
      recorder.Record(writer, {EventKind::kBegin, op});
    }
  }
  for (auto _ : state) benchmark::DoNotOptimize(recorder.Last());
}
BENCHMARK(BM_Last)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace ringzero

BENCHMARK_MAIN();
