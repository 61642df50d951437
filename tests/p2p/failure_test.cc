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

}  // namespace
}  // namespace ringzero
