// The desk writes on the signal, at a failure and when asked, and keeps a folder to one run.
#include "integrations/sight/flight_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/p2p/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::HasSubstr;

FlightRecord RecordOf(int worker, const std::string& why) {
  return {.worker = WorkerId(worker),
          .workers = 2,
          .why = why,
          .has_waits = true,
          .now = {.says = "waits for nothing"}};
}

// What a worker gives the desk to write.
FlightDesk::Callbacks TakenOf(int worker) {
  return {.take = [worker](const std::string& why) { return RecordOf(worker, why); },
          .written = [](const absl::Status& status) { EXPECT_EQ(status, absl::OkStatus()); }};
}

// Polls for what another thread does; the limit is for a broken desk only.
bool Soon(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!done() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return done();
}

TEST(FlightDeskTest, WritesAllWorkersOnTheSignal) {
  BlockDeskSignals();
  const TemporaryFolder folder;
  FlightDesk desk(folder.path("flight"));
  ASSERT_EQ(desk.Start(), absl::OkStatus());
  const auto first = desk.Add(WorkerId(0), TakenOf(0));
  const auto second = desk.Add(WorkerId(1), TakenOf(1));
  ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
  ASSERT_TRUE(Soon([&] { return ReadFlightFile(FlightPath(desk.folder(), WorkerId(1))).ok(); }));
  RZ_ASSIGN(const auto records, ReadFlightFolder(desk.folder()));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_THAT(records[0].why, HasSubstr("signal 10"));
}

TEST(FlightDeskTest, TheOtherSignalAsksForATrace) {
  BlockDeskSignals();
  const TemporaryFolder folder;
  FlightDesk desk(folder.path("flight"));
  ASSERT_EQ(desk.Start(), absl::OkStatus());
  std::atomic<int> asked = 0;
  const auto seat = desk.Add(WorkerId(0), TakenOf(0));
  desk.TraceWith(WorkerId(0), [&] { ++asked; });
  ASSERT_EQ(kill(getpid(), SIGUSR2), 0);
  EXPECT_TRUE(Soon([&] { return asked > 0; }));
  EXPECT_FALSE(ReadFlightFolder(desk.folder()).ok());
}

TEST(FlightDeskTest, AFailureIsWrittenOnce) {
  const TemporaryFolder folder;
  FlightDesk desk(folder.path("flight"));
  ASSERT_EQ(desk.Start(), absl::OkStatus());
  std::atomic<int> taken = 0;
  std::atomic<bool> failed = false;
  const auto seat = desk.Add(WorkerId(0), {.take = [&](const std::string& why) {
                               FlightRecord record = RecordOf(0, why);
                               if (failed)
                                 record.error = absl::DeadlineExceededError("waited too long");
                               if (failed) ++taken;
                               return record;
                             }});
  desk.Wake();  // of no failure
  failed = true;
  desk.Wake();
  ASSERT_TRUE(Soon([&] { return taken > 0; }));
  desk.WriteFailure(WorkerId(0), absl::InternalError("later"));
  RZ_ASSIGN(const auto record, ReadFlightFile(FlightPath(desk.folder(), WorkerId(0))));
  EXPECT_EQ(record.why, "waited too long");
  EXPECT_EQ(taken, 1);
}

TEST(FlightDeskTest, MakesItsFolderOrSaysWhyNot) {
  const TemporaryFolder folder;
  FlightDesk desk(folder.path("a/b/flight"));
  ASSERT_EQ(desk.Start(), absl::OkStatus());
  const auto seat = desk.Add(WorkerId(0), TakenOf(0));
  desk.WriteFailure(WorkerId(0), absl::InternalError("mine"));
  RZ_ASSIGN(const auto record, ReadFlightFile(FlightPath(desk.folder(), WorkerId(0))));
  EXPECT_EQ(record.error, absl::InternalError("mine"));
  folder.Write("file", "in the way");
  FlightDesk barred(folder.path("file/flight"));
  ASSERT_EQ(barred.Start(), absl::OkStatus());
  const auto other = barred.Add(WorkerId(0), TakenOf(0));
  ::testing::internal::CaptureStderr();
  barred.WriteFailure(WorkerId(0), absl::InternalError("mine"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("file/flight: cannot make the folder"));
}

TEST(FlightDeskTest, RemovesRecordsOfEarlierRuns) {
  const TemporaryFolder folder;
  for (int w = 0; w < 5; ++w) {
    FlightRecord record = RecordOf(w, "old");
    record.workers = 5;
    ASSERT_EQ(WriteFlightFile(folder.path("flight"), record), absl::OkStatus());
  }
  folder.Write("flight/notes.txt", "mine");
  folder.Write("flight/worker-4.flight.123.tmp", "half");
  folder.Write("flight/worker-2.flight.123.tmp", "another host's");
  RemoveFlights(folder.path("flight"), WorkerId(0), WorkerId(3));
  EXPECT_THAT(folder.List("flight"),
              ::testing::UnorderedElementsAre("worker-1.flight", "worker-2.flight",
                                              "worker-2.flight.123.tmp", "notes.txt"));
}

TEST(FlightDeskTest, AnInterruptIsHeardByWhoeverComesLater) {
  BlockDeskSignals();
  const TemporaryFolder folder;
  FlightDesk desk(folder.path("flight"));
  ASSERT_EQ(desk.Start(), absl::OkStatus());
  std::atomic<int> heard = 0;
  const FlightDesk::Callbacks callbacks{
      .take = [](const std::string& why) { return RecordOf(0, why); },
      .interrupt = [&] { ++heard; }};
  const auto first = desk.Add(WorkerId(0), callbacks);
  ASSERT_EQ(kill(getpid(), kInterruptSignal), 0);
  ASSERT_TRUE(Soon([&] { return heard == 1; }));
  const auto second = desk.Add(WorkerId(1), callbacks);
  EXPECT_EQ(heard, 2);
}

}  // namespace
}  // namespace ringzero
