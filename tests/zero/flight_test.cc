// The flight recorder: bounded, never waiting, telling of exactly what happened; its files; blame.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "p2p/failure.h"
#include "sharding/verify.h"
#include "tests/p2p/temporary_folder.h"
#include "tests/sharding/event_rules.h"
#include "tests/zero/toy_ring.h"
#include "zero/flight_blame.h"
#include "zero/flight_record.h"
#include "zero/flight_recorder.h"

namespace ringzero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Writer = FlightRecorder::Writer;

Op Numbered(int n) {
  return {.kind = OpKind::kForward, .stage = StageId(n % 7), .iteration = Iteration(n)};
}

TEST(FlightRecorderTest, KeepsTheLastOnes) {
  FlightRecorder recorder({.capacity = 8});
  for (int n = 0; n < 100; ++n) recorder.Record(Writer::kPool, {EventKind::kBegin, Numbered(n)});
  const std::vector<Event> last = recorder.Last();
  // One slot may be being written.
  ASSERT_EQ(last.size(), 7u);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(last[i].op, Numbered(93 + i));
  EXPECT_EQ(recorder.recorded(), 100u);
}

TEST(FlightRecorderTest, WithoutRoomItRecordsNothing) {
  FlightRecorder recorder({.capacity = 0});
  recorder.Record(FlightRecorder::Writer::kPool, {EventKind::kBegin, Op{}});
  EXPECT_EQ(recorder.recorded(), 0u);
  EXPECT_TRUE(recorder.Last().empty());
}

TEST(FlightRecorderTest, ReadsBitByBitAndCountsWhatIsLost) {
  FlightRecorder recorder({.capacity = 16});
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
  FlightRecorder recorder({.capacity = 64});
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int n = 0; !stop; ++n)
      recorder.Record(Writer::kComputing, {EventKind::kBegin, Numbered(n)});
  });
  FlightRecorder::Cursor cursor;
  int64_t seen = 0, last = -1;
  while (seen < 20000) {
    recorder.ReadNew(cursor, [&](const PackedEvent& words) {
      const absl::StatusOr<Event> event = Unpack(words);
      ASSERT_TRUE(event.ok());
      ASSERT_EQ(event->op, Numbered(event->op.iteration.value));
      ASSERT_GT(event->op.iteration.value, last);
      last = event->op.iteration.value;
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
      SCOPED_TRACE(absl::StrCat(ToString(rule), " ", workers));
      const absl::StatusOr<ToyResult> result = RunToyRing(options, ShmTransports());
      ASSERT_TRUE(result.ok()) << result.status();
      Plan plan = ToyPlan(options);
      plan.window = *SmallestWindow(plan);
      EXPECT_EQ(CheckEvents(plan, EventsOf(*result)), absl::OkStatus());
      for (const FlightRecord& flight : result->flights) {
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
    const absl::StatusOr<ToyResult> result = RunToyRing(options, transports);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(result->flights[0].offset.has_value());
    for (int w = 1; w < 3; ++w) {
      const std::optional<ClockOffset>& offset = result->flights[w].offset;
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
  const absl::StatusOr<FlightRecord> back = ParseFlight(FlightToString(record));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, record);
  EXPECT_EQ(back->events, record.events);
  EXPECT_EQ(back->error, record.error);
  EXPECT_EQ(back->now.next, record.now.next);
  EXPECT_EQ(back->since_ns, record.since_ns);
  ASSERT_TRUE(back->offset.has_value());
  EXPECT_EQ(back->offset->offset_ns, -17);
}

TEST(FlightRecordTest, RefusesWhatIsMalformed) {
  const std::string good = FlightToString(Sample());
  EXPECT_THAT(ParseFlight("").status().message(), HasSubstr("cut before its events"));
  EXPECT_THAT(ParseFlight("ringzero flight 2\n").status().message(),
              AllOf(HasSubstr("line 1"), HasSubstr("wanted \"ringzero flight 1\"")));
  EXPECT_THAT(ParseFlight(good.substr(0, good.size() - 3)).status().message(),
              HasSubstr("was cut"));
  EXPECT_THAT(ParseFlight("ringzero flight 1\nworker 4 of 4\nevents\n").status().message(),
              AllOf(HasSubstr("line 2"), HasSubstr("there is no worker 4 of 4")));
  EXPECT_THAT(ParseFlight("ringzero flight 1\nevents\n").status().message(), HasSubstr("whose"));
  EXPECT_THAT(ParseFlight("ringzero flight 1\nworker 0 of 2\nspeed 3\n").status().message(),
              HasSubstr("line 3: \"speed\" is no line"));
  EXPECT_THAT(
      ParseFlight("ringzero flight 1\nworker 0 of 2\nnow 7 - waits\nevents\n").status().message(),
      HasSubstr("there is no worker 7"));
  std::string spoilt = good;
  spoilt.back() = '\x7f';
  EXPECT_THAT(ParseFlight(spoilt).status().message(), HasSubstr("event 4: no event"));
}

// Whatever a file holds: an error or a record, never a crash.
TEST(FlightRecordTest, SurvivesNoise) {
  std::mt19937 random(3);
  const std::string good = FlightToString(Sample());
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    const size_t changes = 1 + random() % 4;
    for (size_t c = 0; c < changes; ++c) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, random() % 9); break;
        default: text.insert(at, good.substr(random() % good.size(), random() % 20)); break;
      }
      if (text.empty()) break;
    }
    const absl::StatusOr<FlightRecord> record = ParseFlight(text);
    if (!record.ok()) {
      ++refused;
    } else {
      EXPECT_TRUE(ParseFlight(FlightToString(*record)).ok());
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(FlightFilesTest, AFolderOfOneRun) {
  const TemporaryFolder folder;
  FlightRecord record = Sample();
  const std::string place = folder.path("flight");
  EXPECT_EQ(ReadFlightFolder(place).status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(WriteFlightFile(place, record), absl::OkStatus());
  record.worker = WorkerId(0);
  ASSERT_EQ(WriteFlightFile(place, record), absl::OkStatus());
  const auto records = ReadFlightFolder(place);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 2u);
  EXPECT_EQ((*records)[0].worker, WorkerId(0));
  record.worker = WorkerId(1);
  record.workers = 5;
  ASSERT_EQ(WriteFlightFile(place, record), absl::OkStatus());
  EXPECT_THAT(ReadFlightFolder(place).status().message(), HasSubstr("records of several runs"));
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

TEST(FlightBlameTest, NamesTheEndOfTheChain) {
  const FlightBlame blame = BlameFlights(Chain());
  EXPECT_EQ(blame.first_cause, WorkerId(2));
  EXPECT_THAT(blame.text, HasSubstr("first cause: worker 2 has been computing \"F3\" for 61 s, so "
                                    "worker 1 waits for the sum of 2, so worker 0 waits"));
}

TEST(FlightBlameTest, AWorkerWithoutARecordIsTheCause) {
  std::vector<FlightRecord> records = Chain();
  records.pop_back();
  const FlightBlame blame = BlameFlights(records);
  EXPECT_EQ(blame.first_cause, WorkerId(2));
  EXPECT_THAT(blame.text, AllOf(HasSubstr("no record of worker 2"),
                                HasSubstr("first cause: worker 2 left no record")));
}

TEST(FlightBlameTest, ACircleIsSaidToBeOne) {
  std::vector<FlightRecord> records = Chain();
  records[2].now = {
      .says = "waits for worker 1", .next = WorkerId(1), .message = records[1].now.message};
  records[2].open[0].why = records[2].now;
  Op send = records[2].open[0].op;
  send.peer = WorkerId(2);
  records[1].open.push_back({send, records[1].now});
  const FlightBlame blame = BlameFlights(records);
  EXPECT_EQ(blame.first_cause, std::nullopt);
  EXPECT_THAT(blame.text, HasSubstr("first cause: workers wait in a circle"));
}

TEST(FlightBlameTest, AnErrorOfOnesOwnComesFirst) {
  std::vector<FlightRecord> records = Chain();
  records[0].error = absl::UnavailableError("aborted by worker 1: disk full");
  records[1].error = absl::ResourceExhaustedError("disk full");
  const FlightBlame blame = BlameFlights(records);
  EXPECT_EQ(blame.first_cause, WorkerId(1));
  EXPECT_THAT(blame.text, HasSubstr("first cause: worker 1: disk full"));
}

// Two that failed on their own: the first by time, where their times can be compared.
TEST(FlightBlameTest, OfTwoFailuresTheFirstByOneClock) {
  std::vector<FlightRecord> records = Chain();
  records[1].error = absl::ResourceExhaustedError("disk full");
  records[2].error = absl::DataLossError("bad block");
  records[1].clock = records[2].clock = "boot 1";
  records[1].time_ns = 2000;
  records[2].time_ns = 1000;
  EXPECT_EQ(BlameFlights(records).first_cause, WorkerId(2));
  // Another host, whose clock is 5000 behind: by one clock it was later.
  records[2].clock = "boot 2";
  records[1].offset = ClockOffset{.offset_ns = 100, .within_ns = 5};
  records[2].offset = ClockOffset{.offset_ns = 5100, .within_ns = 5};
  EXPECT_EQ(BlameFlights(records).first_cause, WorkerId(1));
  // It was not measured: both are named, and neither is the cause.
  records[2].offset.reset();
  const FlightBlame blame = BlameFlights(records);
  EXPECT_EQ(blame.first_cause, std::nullopt);
  EXPECT_THAT(blame.text, HasSubstr("first cause: worker 1: disk full\n"
                                    "or, by a clock that was not compared with worker 1's: "
                                    "worker 2: bad block"));
}

// A worker that there is by one line is none by the next.
TEST(FlightRecordTest, SaysOnceWhoseItIs) {
  const std::string text =
      "ringzero flight 1\nworker 0 of 3\nundelivered 2 1.0\nworker 1 of 2\nevents\n";
  EXPECT_THAT(ParseFlight(text).status().message(), HasSubstr("line 4: it has said before"));
}

// Times and iterations that no run has are refused, so that no sum overflows.
TEST(FlightRecordTest, RefusesImpossibleTimes) {
  FlightRecord record{.worker = WorkerId(0), .workers = 1};
  record.time_ns = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(ParseFlight(FlightToString(record)).status().message(), HasSubstr("no clock says"));
  record.time_ns = 0;
  const Op op{.kind = OpKind::kForward, .stage = StageId(0)};
  record.events = {{std::numeric_limits<int64_t>::min(), EventKind::kBegin, op}};
  EXPECT_THAT(ParseFlight(FlightToString(record)).status().message(), HasSubstr("event 0: of no"));
}

TEST(FlightBlameTest, ADeathThatOthersHeardOf) {
  std::vector<FlightRecord> records = Chain();
  records.erase(records.begin() + 1);
  records[0].error = AbortedBy(WorkerId(2), WorkerDied(WorkerId(1)));
  records[1].error = WorkerDied(WorkerId(1));
  const FlightBlame blame = BlameFlights(records);
  EXPECT_EQ(blame.first_cause, WorkerId(1));
  EXPECT_THAT(blame.text, HasSubstr("first cause: worker 1 died"));
}

// Asked for, and 20 s later worker 2 is killed: its record of then says nothing of the end.
TEST(FlightBlameTest, RecordsFromBeforeADeathAreLeftOut) {
  std::vector<FlightRecord> records = Chain();
  for (int w = 0; w < 2; ++w) {
    records[w].time_ns += 20 * kSecond;
    records[w].error = WorkerDied(WorkerId(2));
  }
  const FlightBlame blame = BlameFlights(records);
  EXPECT_EQ(blame.first_cause, WorkerId(2));
  EXPECT_THAT(blame.text,
              AllOf(HasSubstr("left out, of another moment: the record of worker 2, "
                              "written because signal 10"),
                    HasSubstr("no record of worker 2"), HasSubstr("first cause: worker 2 died")));
}

// One worker was asked alone, 20 s before the others.
TEST(FlightBlameTest, TheNewestRecordsBelongTogether) {
  std::vector<FlightRecord> records = Chain();
  records[1].time_ns -= 20 * kSecond;
  const FlightBlame blame = BlameFlights(records);
  EXPECT_EQ(blame.first_cause, WorkerId(1));
  EXPECT_THAT(blame.text, AllOf(HasSubstr("left out, of another moment: the record of worker 1"),
                                HasSubstr("first cause: worker 1 left no record")));
  // By clocks that were not compared it may be of the same moment.
  records[1].clock = "boot 2";
  EXPECT_EQ(BlameFlights(records).first_cause, WorkerId(2));
}

TEST(FlightBlameTest, AHealthyJobHasNoFirstCause) {
  std::vector<FlightRecord> records = Chain();
  for (FlightRecord& record : records) record.since_ns = record.time_ns - kSecond / 2;
  FlightBlame blame = BlameFlights(records);
  EXPECT_EQ(blame.first_cause, std::nullopt);
  EXPECT_THAT(blame.text, AllOf(HasSubstr("nobody waits too long: 0.5 s at most"),
                                testing::Not(HasSubstr("first cause"))));
  // 61 s, where 40 s for one stage were usual.
  records = Chain();
  const Op op{.kind = OpKind::kForward, .stage = StageId(0)};
  for (FlightRecord& record : records) {
    record.events = {{.time = -kSecond, .kind = EventKind::kBegin, .op = op},
                     {.time = 39 * kSecond, .kind = EventKind::kEnd, .op = op}};
  }
  EXPECT_THAT(BlameFlights(records).text, HasSubstr("nobody waits too long: 61 s at most"));
  records[0].events.clear();
  EXPECT_EQ(BlameFlights(records).first_cause, WorkerId(2));
}

// No worker waits for it, and it is stuck.
TEST(FlightBlameTest, OneWorkerThatDoesNotComeBack) {
  FlightRecord record{.workers = 1, .why = "signal 10", .time_ns = 61 * kSecond};
  record.has_waits = true;
  record.now = {.says = "has been outside of the engine for 61 s"};
  EXPECT_EQ(BlameFlights({&record, 1}).first_cause, WorkerId(0));
}

TEST(FlightBlameTest, NobodyWaits) {
  FlightRecord record{.workers = 1, .why = "it is over"};
  record.has_waits = true;
  record.error = absl::DeadlineExceededError("worker 0 waited");
  record.now = {.says = "waits for nothing: its program is done"};
  EXPECT_THAT(BlameFlights({&record, 1}).text, HasSubstr("nobody waits for another worker"));
}

}  // namespace
}  // namespace ringzero
