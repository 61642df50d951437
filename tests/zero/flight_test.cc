// The flight recorder: bounded, never waiting, telling of exactly what happened; its files; blame.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "p2p/failure.h"
#include "tests/p2p/temporary_folder.h"
#include "tests/sharding/event_rules.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"
#include "tests/zero/toy_ring.h"
#include "zero/flight/flight_record.h"
#include "zero/flight/flight_recorder.h"

namespace ringzero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Writer = FlightRecorder::Writer;

Op Numbered(int n) {
  return {.kind = OpKind::kForward, .stage = StageId(n % 7), .iteration = Iteration(n)};
}

TEST(FlightRecorderTest, KeepsTheLastOnes) {
  FlightRecorder recorder(8);
  for (int n = 0; n < 100; ++n) recorder.Record(Writer::kPool, {EventKind::kBegin, Numbered(n)});
  const std::vector<Event> last = recorder.Last();
  // One slot may be being written.
  ASSERT_EQ(last.size(), 7u);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(last[i].op, Numbered(93 + i));
}

TEST(FlightRecorderTest, WithoutRoomItRecordsNothing) {
  FlightRecorder recorder(0);
  recorder.Record(FlightRecorder::Writer::kPool, {EventKind::kBegin, Op{}});
  EXPECT_TRUE(recorder.Last().empty());
}

TEST(FlightRecorderTest, ReadsBitByBitAndCountsWhatIsLost) {
  FlightRecorder recorder(16);
  FlightRecorder::Cursor cursor;
  int seen = 0;
  const auto count = [&](const PackedEvent& words) {
    EXPECT_EQ(Unpack(words)->op, Numbered(seen));
    ++seen;
  };
  for (int n = 0; n < 10; ++n) recorder.Record(Writer::kPool, {EventKind::kEnd, Numbered(n)});
  recorder.ReadNew(cursor, count);
  EXPECT_EQ(seen, 10);
  for (int n = 10; n < 40; ++n) recorder.Record(Writer::kPool, {EventKind::kEnd, Numbered(n)});
  seen = 25;  // 15 of the 30 are gone
  recorder.ReadNew(cursor, count);
  EXPECT_EQ(seen, 40);
  EXPECT_EQ(cursor.lost, 15u);
}

// Under ThreadSanitizer this is the proof that readers and the writer do not race; everywhere that
// no torn event is ever shown.
TEST(FlightRecorderTest, ReadersSeeWholeEventsWhileTheWriterGoesOn) {
  FlightRecorder recorder(64);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int n = 0; !stop; ++n)
      recorder.Record(Writer::kComputing, {EventKind::kBegin, Numbered(n)});
  });
  FlightRecorder::Cursor cursor;
  int64_t seen = 0, last = -1;
  while (seen < 20000) {
    recorder.ReadNew(cursor, [&](const PackedEvent& words) {
      RZ_ASSIGN(const Event event, Unpack(words));
      ASSERT_EQ(event.op, Numbered(event.op.iteration.value));
      ASSERT_GT(event.op.iteration.value, last);
      last = event.op.iteration.value;
      ++seen;
    });
  }
  stop = true;
  writer.join();
  EXPECT_EQ(cursor.next[0], static_cast<uint64_t>(seen) + cursor.lost);
}

std::vector<std::vector<Event>> EventsOf(const ToyResult& result) {
  std::vector<std::vector<Event>> events;
  for (const FlightRecord& flight : result.flights) events.push_back(flight.events);
  return events;
}

TEST(EngineFlightTest, TellsOfEveryPlannedOperation) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    for (const int workers : {1, 2, 4}) {
      ToyOptions options{.workers = workers, .stages = 5, .laps = 2, .iterations = 6, .rule = rule};
      options.stagger = rule == Rule::kCdpV2;
      options.evaluation = {.every = 2, .laps = 1};
      options.collection = {.every = 3};
      options.recorder_events = 1 << 14;
      options.zero_stage = (workers + static_cast<int>(rule)) % 4;
      options.hosts = {options.workers};
      SCOPED_TRACE(absl::StrCat(ToString(rule), " ", workers));
      RZ_ASSIGN(const ToyResult result, RunToyRing(options, ShmTransports()));
      Plan plan = ToyPlan(options);
      plan.window = *SmallestWindow(plan);
      EXPECT_EQ(CheckEvents(plan, EventsOf(result)), absl::OkStatus());
      for (const FlightRecord& flight : result.flights) {
        EXPECT_EQ(flight.now.says, "waits for nothing: its program is done");
        // It is not at its last computing any more.
        for (const Event& event : flight.events) EXPECT_GE(flight.since_ns, event.time);
      }
    }
  }
}

// One clock for all here: what is measured between them is nothing, within what is said.
TEST(EngineFlightTest, MeasuresClocksByAsking) {
  const ToyOptions options{.workers = 3, .stages = 3, .iterations = 40};
  for (const MakeTransports& transports : {LocalTransports(), ShmTransports()}) {
    RZ_ASSIGN(const ToyResult result, RunToyRing(options, transports));
    EXPECT_FALSE(result.flights[0].offset.has_value());
    for (int w = 1; w < 3; ++w) {
      const std::optional<ClockOffset>& offset = result.flights[w].offset;
      ASSERT_TRUE(offset.has_value()) << w;
      EXPECT_LE(std::abs(offset->offset_ns), offset->within_ns + 1);
      EXPECT_GT(offset->within_ns, 0);
    }
  }
}

FlightRecord Sample() {
  FlightRecord record{.worker = WorkerId(2),
                      .workers = 4,
                      .why = "signal 10",
                      .time_ns = 123456789,
                      .clock = "boot 6f1c",
                      .offset = ClockOffset{.offset_ns = -17, .within_ns = 5},
                      .error = absl::DeadlineExceededError("worker 1 has been computing"),
                      .appended = {Iteration(7), Lap(2)},
                      .lost = 3,
                      .has_waits = true,
                      .now = {.says = "waits for \"Recv sum s3 t5 l0 w1\"",
                              .next = WorkerId(1),
                              .message = MessageKey{5, 77}},
                      .since_ns = 123456700};
  record.open.push_back({{.kind = OpKind::kSend,
                          .channel = Channel::kSum,
                          .stage = StageId(3),
                          .iteration = Iteration(5),
                          .lap = Lap(0),
                          .peer = WorkerId(3)},
                         {.says = "waits for it"}});
  record.undelivered.push_back({WorkerId(3), {1, 99}});
  for (int n = 0; n < 5; ++n) {
    record.events.push_back({.time = n, .kind = EventKind::kEnd, .op = Numbered(n)});
  }
  return record;
}

TEST(FlightRecordTest, ReadsBackWhatItWrote) {
  const FlightRecord record = Sample();
  RZ_ASSIGN(const FlightRecord back, ParseFlight(FlightToString(record)));
  EXPECT_EQ(FlightToString(back), FlightToString(record));
  EXPECT_EQ(back.events, record.events);
  EXPECT_EQ(back.error, record.error);
  EXPECT_EQ(back.now.next, record.now.next);
  EXPECT_EQ(back.since_ns, record.since_ns);
  ASSERT_TRUE(back.offset.has_value());
  EXPECT_EQ(back.offset->offset_ns, -17);
}

TEST(FlightRecordTest, RefusesWhatIsMalformed) {
  const std::string good = FlightToString(Sample()), head = "ringzero flight 1\n";
  std::string spoilt = good;
  spoilt.back() = '\x7f';
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "cut before its events"},
      {"ringzero flight 2\n", "line 1: wanted \"ringzero flight 1\""},
      {good.substr(0, good.size() - 3), "was cut"},
      {head + "worker 4 of 4\nevents\n", "line 2: there is no worker 4 of 4"},
      {head + "events\n", "whose"},
      {head + "worker 0 of 2\nspeed 3\n", "line 3: \"speed\" is no line"},
      {head + "worker 0 of 2\nnow 7 - waits\nevents\n", "there is no worker 7"},
      // A worker that there is by one line is none by the next.
      {head + "worker 0 of 3\nundelivered 2 1.0\nworker 1 of 2\nevents\n",
       "line 4: it has said before"},
      {spoilt, "event 4: no event"}};
  for (const auto& [text, words] : cases) EXPECT_THAT(ParseFlight(text), Says(words));
}

TEST(FlightFilesTest, AFolderOfOneRun) {
  const TemporaryFolder folder;
  FlightRecord record = Sample();
  const std::string place = folder.path("flight");
  EXPECT_EQ(ReadFlightFolder(place).status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(WriteFlightFile(place, record), absl::OkStatus());
  record.worker = WorkerId(0);
  ASSERT_EQ(WriteFlightFile(place, record), absl::OkStatus());
  RZ_ASSIGN(const auto records, ReadFlightFolder(place));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].worker, WorkerId(0));
  record.worker = WorkerId(1);
  record.workers = 5;
  ASSERT_EQ(WriteFlightFile(place, record), absl::OkStatus());
  EXPECT_THAT(ReadFlightFolder(place), Says("records of several runs"));
}

constexpr int64_t kSecond = 1'000'000'000;

// Worker 0 waits for worker 1, which waits for worker 2, for 61 s.
std::vector<FlightRecord> Chain() {
  std::vector<FlightRecord> records;
  const Op sum{.kind = OpKind::kSend,
               .channel = Channel::kSum,
               .stage = StageId(3),
               .iteration = Iteration(5),
               .lap = Lap(0)};
  const MessageKey key{static_cast<uint8_t>(Channel::kSum), MessageTag(sum)};
  for (int w = 0; w < 3; ++w) {
    FlightRecord record{
        .worker = WorkerId(w), .workers = 3, .why = "signal 10", .appended = {Iteration(9)}};
    record.has_waits = true;
    record.clock = "boot 1";
    record.time_ns = 100 * kSecond;
    record.since_ns = 39 * kSecond;
    const BlameAnswer waits{.says = absl::StrCat("waits for the sum of ", w + 1),
                            .next = WorkerId(w + 1),
                            .message = key};
    record.now = w < 2 ? waits : BlameAnswer{.says = "has been computing \"F3\" for 61 s"};
    Op send = sum;
    send.peer = WorkerId(w - 1);
    if (w > 0) record.open.push_back({send, record.now});
    records.push_back(std::move(record));
  }
  return records;
}

// What happened to the records of a chain, and what is said of them.
struct BlameCase {
  std::function<void(std::vector<FlightRecord>&)> change;
  std::vector<std::string> words;
};

TEST(FlightBlameTest, NamesTheFirstCause) {
  using Records = std::vector<FlightRecord>;
  const std::vector<BlameCase> cases = {
      {[](Records&) {},
       {"first cause: worker 2 has been computing \"F3\" for 61 s, so worker 1 waits for the sum "
        "of 2, so worker 0 waits"}},
      {[](Records& r) { r.pop_back(); },
       {"no record of worker 2", "first cause: worker 2 left no record"}},
      {[](Records& r) {
         r[2].now = {
             .says = "waits for worker 1", .next = WorkerId(1), .message = r[1].now.message};
         r[2].open[0].why = r[2].now;
         Op send = r[2].open[0].op;
         send.peer = WorkerId(2);
         r[1].open.push_back({send, r[1].now});
       },
       {"first cause: workers wait in a circle"}},
      // An error of one's own comes before what others were told.
      {[](Records& r) {
         r[0].error = absl::UnavailableError("aborted by worker 1: disk full");
         r[1].error = absl::ResourceExhaustedError("disk full");
       },
       {"first cause: worker 1: disk full"}},
      // A death that others heard of.
      {[](Records& r) {
         r.erase(r.begin() + 1);
         r[0].error = AbortedBy(WorkerId(2), WorkerDied(WorkerId(1)));
         r[1].error = WorkerDied(WorkerId(1));
       },
       {"first cause: worker 1 died"}},
      // Asked for, and 20 s later worker 2 is killed: its record of then says nothing of the end.
      {[](Records& r) {
         for (int w = 0; w < 2; ++w) {
           r[w].time_ns += 20 * kSecond;
           r[w].error = WorkerDied(WorkerId(2));
         }
       },
       {"left out, of another moment: the record of worker 2, written because signal 10",
        "no record of worker 2", "first cause: worker 2 died"}},
      // One worker was asked alone, 20 s before the others.
      {[](Records& r) { r[1].time_ns -= 20 * kSecond; },
       {"left out, of another moment: the record of worker 1",
        "first cause: worker 1 left no record"}},
      // By clocks that were not compared it may be of the same moment.
      {[](Records& r) { r[1].time_ns -= 20 * kSecond, r[1].clock = "boot 2"; },
       {"first cause: worker 2 has been"}}};
  for (const BlameCase& each : cases) {
    SCOPED_TRACE(testing::PrintToString(each.words));
    Records records = Chain();
    each.change(records);
    const std::string blame = BlameFlights(records);
    for (const std::string& words : each.words) EXPECT_THAT(blame, HasSubstr(words));
  }
}

// Two that failed on their own: the first by time, where their times can be compared.
TEST(FlightBlameTest, OfTwoFailuresTheFirstByOneClock) {
  std::vector<FlightRecord> records = Chain();
  records[1].error = absl::ResourceExhaustedError("disk full");
  records[2].error = absl::DataLossError("bad block");
  records[1].clock = records[2].clock = "boot 1";
  records[1].time_ns = 2000;
  records[2].time_ns = 1000;
  EXPECT_THAT(BlameFlights(records), HasSubstr("first cause: worker 2: bad block\n"));
  // Another host, whose clock is 5000 behind: by one clock it was later.
  records[2].clock = "boot 2";
  records[1].offset = ClockOffset{.offset_ns = 100, .within_ns = 5};
  records[2].offset = ClockOffset{.offset_ns = 5100, .within_ns = 5};
  EXPECT_THAT(BlameFlights(records), AllOf(HasSubstr("first cause: worker 1: disk full\n"),
                                           testing::Not(HasSubstr("or, by a clock"))));
  // It was not measured: both are named.
  records[2].offset.reset();
  EXPECT_THAT(BlameFlights(records), HasSubstr("first cause: worker 1: disk full\n"
                                               "or, by a clock that was not compared with worker "
                                               "1's: worker 2: bad block"));
}

// Times and iterations that no run has are refused, so that no sum overflows.
TEST(FlightRecordTest, RefusesImpossibleTimes) {
  FlightRecord record{.worker = WorkerId(0), .workers = 1};
  record.time_ns = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(ParseFlight(FlightToString(record)), Says("no clock says"));
  record.time_ns = 0;
  const Op op{.kind = OpKind::kForward, .stage = StageId(0)};
  record.events = {{std::numeric_limits<int64_t>::min(), EventKind::kBegin, op}};
  EXPECT_THAT(ParseFlight(FlightToString(record)), Says("event 0: of no"));
}

TEST(FlightBlameTest, AHealthyJobHasNoFirstCause) {
  std::vector<FlightRecord> records = Chain();
  for (FlightRecord& record : records) record.since_ns = record.time_ns - kSecond / 2;
  EXPECT_THAT(BlameFlights(records), AllOf(HasSubstr("nobody waits too long: 0.5 s at most"),
                                           testing::Not(HasSubstr("first cause"))));
  // 61 s, where 40 s for one stage were usual.
  records = Chain();
  const Op op{.kind = OpKind::kForward, .stage = StageId(0)};
  for (FlightRecord& record : records) {
    record.events = {{.time = -kSecond, .kind = EventKind::kBegin, .op = op},
                     {.time = 39 * kSecond, .kind = EventKind::kEnd, .op = op}};
  }
  EXPECT_THAT(BlameFlights(records), HasSubstr("nobody waits too long: 61 s at most"));
  records[0].events.clear();
  EXPECT_THAT(BlameFlights(records), HasSubstr("first cause: worker 2 has been"));
}

// No worker waits for it, and it is stuck.
TEST(FlightBlameTest, OneWorkerThatDoesNotComeBack) {
  FlightRecord record{.workers = 1, .why = "signal 10", .time_ns = 61 * kSecond};
  record.has_waits = true;
  record.now = {.says = "has been outside of the engine for 61 s"};
  EXPECT_THAT(BlameFlights({&record, 1}), HasSubstr("first cause: worker 0 has been"));
}

TEST(FlightBlameTest, NobodyWaits) {
  FlightRecord record{.workers = 1, .why = "it is over"};
  record.has_waits = true;
  record.error = absl::DeadlineExceededError("worker 0 waited");
  record.now = {.says = "waits for nothing: its program is done"};
  EXPECT_THAT(BlameFlights({&record, 1}), HasSubstr("nobody waits for another worker"));
}

}  // namespace
}  // namespace ringzero
