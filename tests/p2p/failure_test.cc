// Echoes are recognised through annotations, and name their origin.
#include "p2p/failure.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace ringzero {
namespace {

TEST(Failure, AnEchoNamesItsOrigin) {
  const absl::Status cause = absl::DataLossError("bad file");
  EXPECT_FALSE(IsEcho(cause));
  EXPECT_EQ(CauseOf(cause), cause);
  const absl::Status echo = AbortedBy(WorkerId(2), cause);
  EXPECT_EQ(echo, absl::DataLossError("aborted by worker 2: bad file"));
  const absl::Status annotated = Annotate(Annotate(echo, "iteration 7"), "worker 1");
  EXPECT_TRUE(IsEcho(annotated));
  EXPECT_EQ(CauseOf(annotated), absl::DataLossError("worker 2: bad file"));
}

TEST(Failure, AnEchoIsPassedOnUnchanged) {
  const absl::Status echo = AbortedBy(WorkerId(2), absl::DataLossError("bad file"));
  EXPECT_EQ(AbortedBy(WorkerId(5), echo), echo);
  const absl::Status death = WorkerDied(WorkerId(3));
  EXPECT_EQ(death.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsEcho(death));
  EXPECT_EQ(AbortedBy(WorkerId(5), death), death);
  EXPECT_EQ(CauseOf(death), death);
}

TEST(Failure, SilenceNamesTheSilentWorker) {
  const absl::Status silence = WorkerSilent(WorkerId(12), std::chrono::milliseconds(5000));
  EXPECT_EQ(silence,
            absl::UnavailableError("worker 12 gave no sign of life for 5.0 s (peer_timeout)"));
  EXPECT_TRUE(IsEcho(silence));
  EXPECT_EQ(AbortedBy(WorkerId(5), silence), silence);
  EXPECT_EQ(SilentWorker(Annotate(silence, "worker 3")), WorkerId(12));
  EXPECT_EQ(SilentWorker(WorkerDied(WorkerId(1))), std::nullopt);
}

TEST(Failure, BlameOfAnotherWorkerIsNotPutOnItsReporter) {
  const absl::Status blame = absl::DeadlineExceededError("worker 2 has been computing");
  EXPECT_EQ(ReportedBy(WorkerId(0), blame), blame);
  EXPECT_EQ(CauseOf(AbortedBy(WorkerId(0), blame)), blame);
  EXPECT_EQ(ReportedBy(WorkerId(0), absl::DataLossError("bad file")),
            absl::DataLossError("worker 0: bad file"));
  EXPECT_EQ(ReportedBy(WorkerId(0), absl::DataLossError("worker bees")),
            absl::DataLossError("worker 0: worker bees"));
  EXPECT_TRUE(ReportedBy(WorkerId(0), absl::OkStatus()).ok());
}

}  // namespace
}  // namespace ringzero
