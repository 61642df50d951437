// What can be said of NCCL without a GPU, and the ring of one worker where there is one.
#include "p2p/nccl/nccl_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/p2p/cluster.h"
#include "tests/p2p/transports.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Maps() {
  std::ifstream file("/proc/self/maps");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// First of all tests: programs that do not ask for NCCL must not have it in their memory.
TEST(ANcclTest, NothingIsLoadedBeforeItIsAskedFor) {
  EXPECT_THAT(Maps(), Not(AnyOf(HasSubstr("libnccl"), HasSubstr("libcudart"))));
  const absl::Status available = NcclAvailable();
  if (available.code() == absl::StatusCode::kUnimplemented) GTEST_SKIP() << available.message();
  EXPECT_THAT(Maps(), HasSubstr("libnccl"));
}

TEST(ANcclTest, SaysWhyItCannot) {
  const absl::Status status = NcclAvailable();
  if (!status.ok()) {
    EXPECT_THAT(status, Says("transport nccl: "));
  }
  if (status.code() == absl::StatusCode::kUnimplemented) GTEST_SKIP() << status.message();
  EXPECT_NE(status.code(), absl::StatusCode::kFailedPrecondition)
      << "it was built with these libraries, and every function must be found: " << status;
}

TEST(ANcclTest, WithoutAGpuItIsAnError) {
  const absl::Status available = NcclAvailable();
  if (available.ok()) GTEST_SKIP() << "there is a GPU";
  const JobSeat seat{.rendezvous = MakeLocalRendezvous()};
  EXPECT_EQ(CreateNcclTransport(seat, {}, SmallOptions()).status(), available);
}

TEST(NcclPlanTest, APairOfWorkersHasALane) {
  const std::vector<WorkerPair> pairs = {
      {WorkerId(0), WorkerId(1)}, {WorkerId(3), WorkerId(1)}, {WorkerId(1), WorkerId(2)}};
  const NcclPlan plan = PlanNccl(WorkerId(1), 4, pairs);
  std::vector<std::string> names;
  for (const auto& [from, to] : plan.pairs) {
    names.push_back(absl::StrCat(from.value, " -> ", to.value));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"0 -> 0", "0 -> 1", "1 -> 1", "1 -> 2", "2 -> 2",
                                             "3 -> 1", "3 -> 3"}));
  EXPECT_EQ(plan.routes.to, (std::vector<int>{kNoLane, 2, 3, kNoLane}));
  EXPECT_EQ(plan.routes.from, (std::vector<int>{1, 2, kNoLane, 5}));
  // Without pairs: neighbours.
  EXPECT_EQ(PlanNccl(WorkerId(1), 4, {}).routes.to, (std::vector<int>{kNoLane, 2, 3, kNoLane}));
  EXPECT_EQ(PlanNccl(WorkerId(0), 2, {}).pairs.size(), 4u);
  EXPECT_EQ(PlanNccl(WorkerId(0), 1, {}).pairs.size(), 1u);
}

// On a machine with one GPU: every part but the way between two.
TEST(NcclSelfRingTest, AWorkerSendsToItself) {
  if (const std::string missing = NcclMissing(1); !missing.empty()) GTEST_SKIP() << missing;
  Cluster cluster = MakeCluster(NcclTransports(), {SmallOptions()});
  for (uint64_t i = 0; i < 100; ++i) {
    for (const uint8_t kind : {0, 1}) PassOne(cluster[0], cluster[0], {kind, i}, 100);
  }
  EXPECT_TRUE(cluster[0].Close().ok());
}

TEST(NcclSelfRingTest, AnAbortEndsWhatIsUnderWay) {
  if (const std::string missing = NcclMissing(1); !missing.empty()) GTEST_SKIP() << missing;
  Cluster cluster = MakeCluster(NcclTransports(), {SmallOptions()});
  BlockCall posted = PostEmpty(cluster[0], 0, {0, 0});
  cluster[0].Abort(absl::DataLossError("enough"));
  EXPECT_EQ(posted.Take(), absl::DataLossError("enough"));
}

}  // namespace
}  // namespace ringzero
