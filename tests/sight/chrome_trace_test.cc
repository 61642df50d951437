// A trace, predicted or measured, keeps to Chrome's format and tells of exactly what was planned.
#include "integrations/sight/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "sharding/program/program.h"
#include "sharding/study/simulate.h"
#include "tests/p2p/temporary_folder.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/toy_ring.h"
#include "zero/flight/flight_recorder.h"

namespace ringzero {
namespace {

using Json = nlohmann::json;

// Whether it has the fields that its phase must have, by Chrome's "Trace Event Format", of the right
// type.
bool IsEvent(const Json& event) {
  const auto has = [&](const char* field, bool (Json::*is)() const noexcept) {
    return event.contains(field) && (event[field].*is)();
  };
  if (!event.is_object() || !has("ph", &Json::is_string) || !has("name", &Json::is_string) ||
      !has("pid", &Json::is_number_integer) || !has("tid", &Json::is_number_integer)) {
    return false;
  }
  const std::string phase = event["ph"];
  if (phase == "M") return has("args", &Json::is_object);
  if (!has("ts", &Json::is_number) || event["ts"] < 0 || !has("cat", &Json::is_string))
    return false;
  if (phase == "X") return has("dur", &Json::is_number) && event["dur"] >= 0;
  return has("id", &Json::is_string) &&
         (phase == "s" || (phase == "f" && event.value("bp", "") == "e"));
}

absl::Status CheckSchema(const Json& trace) {
  if (!trace.is_object() || !trace["traceEvents"].is_array()) {
    return absl::InternalError("no traceEvents");
  }
  std::map<std::pair<int, int>, double> ends;  // of the slices of a thread, so far
  std::map<std::string, std::set<std::string>> flows;
  for (const Json& event : trace["traceEvents"]) {
    if (!IsEvent(event)) return absl::InternalError(absl::StrCat("no event: ", event.dump()));
    const std::string phase = event["ph"];
    if (phase == "X") {
      // Rounded to a picosecond's thousandth of a microsecond.
      double& end = ends[{event["pid"], event["tid"]}];
      if (event["ts"].get<double>() < end - 0.0015) {
        return absl::InternalError(absl::StrCat("overlaps: ", event.dump()));
      }
      end = event["ts"].get<double>() + event["dur"].get<double>() - 0.001;
    } else if (phase != "M" && !flows[event["id"]].insert(phase).second) {
      return absl::InternalError(absl::StrCat("a flow's end came twice: ", event.dump()));
    }
  }
  for (const auto& [id, phases] : flows) {
    if (phases.size() != 2) return absl::InternalError(absl::StrCat("half a flow: ", id));
  }
  return absl::OkStatus();
}

// Every operation of every program once, the computing ones in order; a flow for every message.
void ExpectPlan(const Plan& plan, const Json& trace) {
  std::map<int, std::vector<std::string>> computed;
  std::map<int, std::map<std::string, int>> seen;
  size_t flows = 0, messages = 0;
  for (const Json& event : trace["traceEvents"]) {
    flows += event["ph"] == "s" ? 1 : 0;
    if (event["ph"] != "X" || event["cat"] == "waits") continue;
    const std::string op = event["args"]["op"];
    ++seen[event["pid"]][op];
    if (event["cat"] == "compute") computed[event["pid"]].push_back(op);
  }
  for (int w = 0; w < plan.workers; ++w) {
    const Program program = *MakeProgram(plan, WorkerId(w), WholeRun(plan));
    std::vector<std::string> computing;
    std::map<std::string, int> planned;
    for (const Op& op : program.ops) {
      ++planned[ToString(op)];
      messages += op.kind == OpKind::kSend ? 1 : 0;
      if (IsCompute(op.kind)) computing.push_back(ToString(op));
    }
    EXPECT_EQ(computed[w], computing) << "worker " << w;
    EXPECT_EQ(seen[w], planned) << "worker " << w;
  }
  EXPECT_EQ(flows, messages);
}

ToyOptions Shape(int workers, Rule rule) {
  ToyOptions options{.workers = workers, .stages = 5, .laps = 2, .iterations = 4, .rule = rule};
  options.evaluation = {.every = 2, .laps = 1};
  options.recorder_events = 1 << 14;
  return options;
}

Plan PlanOf(const ToyOptions& options) {
  Plan plan = ToyPlan(options);
  plan.window = *SmallestWindow(plan);
  return plan;
}

TEST(ChromeTraceTest, AMeasuredRun) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV2}) {
    for (const int workers : {1, 3}) {
      const ToyOptions options = Shape(workers, rule);
      RZ_ASSIGN(const ToyResult result, RunToyRing(options, ShmTransports()));
      const Json trace = Json::parse(ChromeTrace(result.flights));
      EXPECT_EQ(CheckSchema(trace), absl::OkStatus());
      ExpectPlan(PlanOf(options), trace);
      EXPECT_EQ(trace["otherData"]["clocks"], "aligned");
    }
  }
}

TEST(ChromeTraceTest, APredictedRun) {
  const Plan plan = PlanOf(Shape(4, Rule::kCdpV2));
  RZ_ASSIGN(const auto events,
            PredictEvents(plan, {.latency_ticks = 1, .add_ticks = 2, .update_ticks = 7}));
  std::vector<FlightRecord> records;
  for (int w = 0; w < plan.workers; ++w) {
    records.push_back({.worker = WorkerId(w), .workers = plan.workers, .clock = "ticks"});
    records.back().events = events[w];
    for (Event& event : records.back().events) event.time *= 1'000'000;  // a tick as a millisecond
  }
  const Json trace = Json::parse(ChromeTrace(records));
  EXPECT_EQ(CheckSchema(trace), absl::OkStatus());
  ExpectPlan(plan, trace);
}

TEST(ChromeTraceTest, TheCheckFindsFaults) {
  const ToyOptions options = Shape(2, Rule::kCdpV2);
  RZ_ASSIGN(const ToyResult result, RunToyRing(options, LocalTransports()));
  const Json good = Json::parse(ChromeTrace(result.flights));
  ASSERT_EQ(CheckSchema(good), absl::OkStatus());
  int found = 0;
  for (const char* field : {"ts", "dur", "pid", "id", "ph", "cat"}) {
    Json bad = good;
    for (Json& event : bad["traceEvents"]) {
      if (event.erase(field) > 0) break;
    }
    found += CheckSchema(bad).ok() ? 0 : 1;
  }
  EXPECT_EQ(found, 6);
}

TEST(ChromeTraceTest, ClocksThatAreNotOne) {
  std::vector<FlightRecord> records;
  for (int w = 0; w < 3; ++w) {
    FlightRecord record{.worker = WorkerId(w), .workers = 3, .clock = absl::StrCat("boot ", w)};
    const Op op{.kind = OpKind::kForward, .stage = StageId(0)};
    record.events = {{1000 * (w + 1), EventKind::kBegin, op},
                     {1000 * (w + 2), EventKind::kEnd, op}};
    records.push_back(record);
  }
  records[1].offset = ClockOffset{.offset_ns = -1000, .within_ns = 3000};
  const Json trace = Json::parse(ChromeTrace(records));
  EXPECT_EQ(trace["otherData"]["clocks"], "not aligned: worker 2");
  std::map<int, double> begins;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") begins[event["pid"]] = event["ts"];
  }
  EXPECT_EQ(begins, (std::map<int, double>{{0, 0.0}, {1, 0.0}, {2, 2.0}}));
  records.pop_back();
  EXPECT_EQ(Json::parse(ChromeTrace(records))["otherData"]["clocks"], "aligned within 3 us");
  // Worker 0's clock is its own, though it has no name.
  records[0].clock = kUnknownClock;
  EXPECT_EQ(Json::parse(ChromeTrace(records))["otherData"]["clocks"], "aligned within 3 us");
  records[1].clock = kUnknownClock;
  records[1].offset.reset();
  EXPECT_EQ(Json::parse(ChromeTrace(records))["otherData"]["clocks"], "not aligned: worker 1");
}

TEST(SlicesTest, WhatHasNotEndedAndWhatHadBegunBefore) {
  const Op before{.kind = OpKind::kAdd, .stage = StageId(1)};
  const Op first{.kind = OpKind::kUpdate, .stage = StageId(1)};
  const Op second{.kind = OpKind::kUpdate, .stage = StageId(2)};
  const std::vector<Event> events = {{10, EventKind::kEnd, before},
                                     {20, EventKind::kBegin, first},
                                     {30, EventKind::kBegin, second},
                                     {40, EventKind::kEnd, first},
                                     {50, EventKind::kEnd, before}};
  const std::vector<Slice> slices = SlicesOf(events);
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].row, 0);
  EXPECT_EQ(slices[0].end, 40);
  EXPECT_EQ(slices[1].row, 1);
  EXPECT_EQ(slices[1].end, 50);
  EXPECT_FALSE(slices[1].ended);
}

// Many times over what may begin and end: a file may say so.
TEST(SlicesTest, BeginsWithoutEndsTakeNoTime) {
  constexpr int kEvents = 100000;  // by the square of it: a minute
  std::vector<Event> events;
  for (int n = 0; n < kEvents; ++n) {
    const Op op{.kind = OpKind::kAdd, .stage = StageId(n % 1000), .iteration = Iteration(n / 1000)};
    events.push_back({n, EventKind::kBegin, op});
  }
  std::vector<Slice> slices = SlicesOf(events);
  ASSERT_EQ(slices.size(), static_cast<size_t>(kEvents));
  EXPECT_EQ(slices.back().row, kEvents - 1);
  // Ends in the same order: each frees its row for the next.
  for (int n = 0; n < kEvents; ++n) {
    events.push_back({kEvents + n, EventKind::kEnd, events[static_cast<size_t>(n)].op});
  }
  slices = SlicesOf(events);
  EXPECT_TRUE(slices.back().ended);
  EXPECT_EQ(slices.back().end, 2 * kEvents - 1);
}

// The same operation twice at once (a file may say so): the first begun is the first that ends.
TEST(SlicesTest, OfTwoAlikeTheFirstEndsFirst) {
  const Op op{.kind = OpKind::kAdd, .stage = StageId(1)};
  const std::vector<Event> events = {{10, EventKind::kBegin, op},
                                     {20, EventKind::kBegin, op},
                                     {30, EventKind::kEnd, op},
                                     {40, EventKind::kBegin, op},
                                     {50, EventKind::kEnd, op}};
  const std::vector<Slice> slices = SlicesOf(events);
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[0].end, 30);
  EXPECT_EQ(slices[1].end, 50);
  EXPECT_EQ(slices[2].row, 0);  // free since 30
  EXPECT_FALSE(slices[2].ended);
}

// A recorder, and a stream of it into a folder: what a trace of worker 1 of two has.
struct Streamed {
  explicit Streamed(size_t capacity, TraceWindow window = {}) : recorder(capacity) {
    auto made = TraceStream::Create(
        {.folder = folder.path("a/parts"),
         .head = {.worker = WorkerId(1), .workers = 2, .why = "a trace", .clock = "boot 1"},
         .recorder = &recorder,
         .window = window});
    EXPECT_TRUE(made.ok()) << made.status();
    stream = *std::move(made);
  }
  void Record(int from, int to) {
    for (int t = from; t < to; ++t) {
      const Op op{.kind = OpKind::kForward, .iteration = Iteration(t)};
      recorder.Record(FlightRecorder::Writer::kPool, {EventKind::kBegin, op});
    }
  }
  absl::StatusOr<FlightRecord> Read() const {
    return ReadFlightFile(FlightPath(folder.path("a/parts"), WorkerId(1)));
  }
  const TemporaryFolder folder;
  FlightRecorder recorder;
  std::unique_ptr<TraceStream> stream;
};

// Far more than a ring holds, while it runs: the stream's own thread has written each part before
// the next comes.
TEST(TraceStreamTest, StreamsWhileItRuns) {
  constexpr int kParts = 8, kPart = 600;
  Streamed trace(1 << 10);
  for (int part = 1; part <= kParts; ++part) {
    trace.Record((part - 1) * kPart, part * kPart);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (size_t written = 0; written < static_cast<size_t>(part * kPart);) {
      ASSERT_LT(std::chrono::steady_clock::now(), limit) << "part " << part << " was not written";
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const absl::StatusOr<FlightRecord> now = trace.Read();
      if (now.ok()) written = now->events.size();
    }
  }
  ASSERT_EQ(trace.stream->Finish(), absl::OkStatus());
  RZ_ASSIGN(const FlightRecord record, trace.Read());
  EXPECT_EQ(record.lost, 0u);
  ASSERT_EQ(record.events.size(), static_cast<size_t>(kParts * kPart));
  for (int n = 0; n < kParts * kPart; ++n) {
    ASSERT_EQ(record.events[static_cast<size_t>(n)].op.iteration, Iteration(n));
  }
}

TEST(TraceStreamTest, WritesItsWindowAlone) {
  Streamed trace(1 << 10, {.from = Iteration(3), .to = Iteration(5)});
  trace.Record(0, 10);
  trace.stream->OpenWindow(2);
  trace.Record(10, 12);
  trace.stream->OpenWindow(4);  // while it is open: it becomes longer
  trace.Record(12, 30);
  ASSERT_EQ(trace.stream->Finish(), absl::OkStatus());
  RZ_ASSIGN(const FlightRecord record, trace.Read());
  std::vector<int> iterations;
  for (const Event& event : record.events) iterations.push_back(event.op.iteration.value);
  EXPECT_THAT(iterations, ::testing::ElementsAre(3, 4, 10, 11, 12, 13, 14, 15));
}

TEST(TraceStreamTest, CountsWhatIsLost) {
  constexpr int kEvents = 50000;
  Streamed trace(1 << 12);
  trace.Record(0, kEvents);
  ASSERT_EQ(trace.stream->Finish(), absl::OkStatus());
  RZ_ASSIGN(const FlightRecord record, trace.Read());
  EXPECT_EQ(record.why, "a trace");
  EXPECT_EQ(record.events.size() + record.lost, static_cast<size_t>(kEvents));
  EXPECT_GT(record.lost, 0u);
  EXPECT_EQ(record.events.back().op.iteration, Iteration(kEvents - 1));
}

}  // namespace
}  // namespace ringzero
