// How every Transport ends: aborts, deaths, goodbyes, and callbacks called exactly once.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "tests/p2p/implementations.h"

namespace ringzero {
namespace {

bool Mentions(const absl::Status& status, const std::string& words) {
  return status.ToString().find(words) != std::string::npos;
}

class TransportFailure : public TransportSuite {};

TEST_P(TransportFailure, AnAbortReachesAllAndCallsEveryCallbackOnce) {
  constexpr int kWorkers = 4;
  std::vector<std::atomic<int>> failures(kWorkers);
  std::vector<TransportOptions> options(kWorkers, SmallOptions());
  for (int w = 0; w < kWorkers; ++w) {
    options[w].on_failure = [&failures, w](const absl::Status&) { ++failures[w]; };
  }
  std::vector<Waiter<Buffer>> owned(kWorkers);
  std::vector<Waiter<SharedBuffer>> shared(kWorkers);
  {
    Cluster cluster = Make(options);
    for (int w = 0; w < kWorkers; ++w) {
      const WorkerId from((w + 1) % kWorkers);
      ASSERT_TRUE(cluster[w].ExpectOwned(from, {0, 0}, 64, owned[w].Callback()).ok());
      ASSERT_TRUE(cluster[w].ExpectShared(from, {1, 0}, 64, shared[w].Callback()).ok());
    }
    cluster[2].Abort(absl::DataLossError("a bad file"));
    cluster[2].Abort(absl::InternalError("a second thought"));
    for (int w = 0; w < kWorkers; ++w) {
      const absl::Status status = owned[w].TakeResult().status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_TRUE(Mentions(status, w == 2 ? "a bad file" : "aborted by worker 2: a bad file"));
      EXPECT_EQ(shared[w].TakeResult().status(), status);
      EXPECT_EQ(cluster[w].status(), status);
      cluster[w].Abort(absl::InternalError("too late"));
      EXPECT_EQ(cluster[w].status(), status);
      // Later calls return it, and their callbacks are not called.
      EXPECT_EQ(cluster[w].ExpectOwned(WorkerId(0), {0, 1}, 64, owned[w].Callback()), status);
      EXPECT_EQ(cluster[w].Give(WorkerId(0), {0, 1}, MakeHeapBuffer(64)), status);
      EXPECT_EQ(cluster[w].Close(), status);
    }
  }
  for (int w = 0; w < kWorkers; ++w) {
    EXPECT_EQ(owned[w].calls(), 1);
    EXPECT_EQ(shared[w].calls(), 1);
    EXPECT_EQ(failures[w], w == 2 ? 0 : 1);
  }
}

TEST_P(TransportFailure, AnAbortFromACallbackIsFine) {
  Cluster cluster = Make(2);
  Waiter<Buffer> first;
  ASSERT_TRUE(cluster[0].ExpectOwned(WorkerId(1), {0, 0}, 64, first.Callback()).ok());
  ASSERT_TRUE(cluster[1]
                  .ExpectOwned(WorkerId(0), {0, 0}, 64,
                               [&](absl::StatusOr<Buffer>) {
                                 cluster[1].Abort(absl::InternalError("from a callback"));
                               })
                  .ok());
  ASSERT_TRUE(
      cluster[0].Give(WorkerId(1), {0, 0}, Filled(cluster[0], MemoryUse::kSums, 16, 0)).ok());
  EXPECT_TRUE(Mentions(first.TakeResult().status(), "aborted by worker 1: from a callback"));
}

TEST_P(TransportFailure, AbortFreesWhatWaitsForCredit) {
  TransportOptions options = SmallOptions();
  options.slots = {1};
  options.sum_bytes = 4 * 128;
  Cluster cluster = Make(2, options);
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(
        cluster[0].Give(WorkerId(1), {0, i}, Filled(cluster[0], MemoryUse::kSums, 16, i)).ok());
  }
  EXPECT_FALSE(cluster[0].Allocate(64, MemoryUse::kSums).ok());
  cluster[0].Abort(absl::InternalError("enough"));
  EXPECT_TRUE(cluster[0].Allocate(64, MemoryUse::kSums).ok());
}

TEST_P(TransportFailure, AVanishedWorkerIsNamed) {
  Cluster cluster = Make(3);
  Waiter<Buffer> at0;
  Waiter<Buffer> at1;
  ASSERT_TRUE(cluster[0].ExpectOwned(WorkerId(1), {0, 0}, 64, at0.Callback()).ok());
  ASSERT_TRUE(cluster[1].ExpectOwned(WorkerId(2), {0, 0}, 64, at1.Callback()).ok());
  cluster.Destroy(2);
  for (Waiter<Buffer>* waiter : {&at0, &at1}) {
    const absl::Status status = waiter->TakeResult().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(Mentions(status, "worker 2 died")) << status;
  }
}

TEST_P(TransportFailure, AGoodbyeIsNoFailure) {
  Cluster cluster = Make(3);
  Waiter<Buffer> last;
  ASSERT_TRUE(cluster[0].ExpectOwned(WorkerId(2), {0, 0}, 64, last.Callback()).ok());
  ASSERT_TRUE(
      cluster[2].Give(WorkerId(0), {0, 0}, Filled(cluster[2], MemoryUse::kSums, 16, 8)).ok());
  EXPECT_TRUE(cluster[2].Close().ok());
  EXPECT_TRUE(cluster[2].Close().ok());
  cluster.Destroy(2);
  EXPECT_EQ(last.Take().as<float>()[0], 8);
  // The others go on.
  Waiter<Buffer> more;
  ASSERT_TRUE(cluster[1].ExpectOwned(WorkerId(0), {0, 0}, 64, more.Callback()).ok());
  ASSERT_TRUE(
      cluster[0].Give(WorkerId(1), {0, 0}, Filled(cluster[0], MemoryUse::kSums, 16, 9)).ok());
  EXPECT_EQ(more.Take().as<float>()[0], 9);
  EXPECT_TRUE(cluster[0].Close().ok());
  cluster.Destroy(0);
  EXPECT_TRUE(cluster[1].status().ok());
  EXPECT_TRUE(cluster[1].Close().ok());
}

TEST_P(TransportFailure, ClosedWorkersDoNotMindADeath) {
  Cluster cluster = Make(2);
  EXPECT_TRUE(cluster[0].Close().ok());
  cluster.Destroy(1);
  EXPECT_TRUE(cluster[0].status().ok());
}

TEST_P(TransportFailure, CloseSendsWhatStillWaits) {
  TransportOptions options = SmallOptions();
  options.slots = {1};
  Cluster cluster = Make(2, options);
  std::vector<Waiter<Buffer>> waiters(4);
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(cluster[1].ExpectOwned(WorkerId(0), {0, i}, 64, waiters[i].Callback()).ok());
    ASSERT_TRUE(
        cluster[0].Give(WorkerId(1), {0, i}, Filled(cluster[0], MemoryUse::kSums, 16, i)).ok());
  }
  EXPECT_TRUE(cluster[0].Close().ok());
  EXPECT_EQ(cluster[0].Give(WorkerId(1), {1, 0}, MakeHeapBuffer(64)).code(),
            absl::StatusCode::kFailedPrecondition);
  std::thread destroyer([&] { cluster.Destroy(0); });
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(waiters[i].Take().as<float>()[0], i);
  destroyer.join();
  EXPECT_TRUE(cluster[1].status().ok()) << cluster[1].status();
}

TEST_P(TransportFailure, CloseRefusesWhileAMessageIsExpected) {
  Cluster cluster = Make(2);
  Waiter<Buffer> waiter;
  ASSERT_TRUE(cluster[0].ExpectOwned(WorkerId(1), {3, 77}, 64, waiter.Callback()).ok());
  const absl::Status status = cluster[0].Close();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Mentions(status, "tag 77")) << status;
  EXPECT_TRUE(cluster[0].status().ok());
}

TEST_P(TransportFailure, AGoodbyeBeforeAnExpectedMessageFails) {
  Cluster cluster = Make(2);
  Waiter<Buffer> waiter;
  ASSERT_TRUE(cluster[0].ExpectOwned(WorkerId(1), {3, 77}, 64, waiter.Callback()).ok());
  EXPECT_TRUE(cluster[1].Close().ok());
  const absl::Status status = waiter.TakeResult().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(Mentions(status, "worker 1 said goodbye") && Mentions(status, "tag 77")) << status;
}

TEST_P(TransportFailure, DestructionAnswersEveryExpect) {
  Waiter<Buffer> waiter;
  {
    Cluster cluster = Make(2);
    ASSERT_TRUE(cluster[0].ExpectOwned(WorkerId(1), {0, 0}, 64, waiter.Callback()).ok());
    cluster.Destroy(0);
  }
  EXPECT_EQ(waiter.TakeResult().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(waiter.calls(), 1);
}

TEST_P(TransportFailure, HandlesMayOutliveTheirTransport) {
  Waiter<Buffer> waiter;
  Buffer own;
  {
    Cluster cluster = Make(2);
    own = Filled(cluster[1], MemoryUse::kSums, 16, 4);
    ASSERT_TRUE(cluster[1].ExpectOwned(WorkerId(0), {0, 0}, 64, waiter.Callback()).ok());
    ASSERT_TRUE(
        cluster[0].Give(WorkerId(1), {0, 0}, Filled(cluster[0], MemoryUse::kSums, 16, 5)).ok());
    EXPECT_TRUE(Eventually([&] { return waiter.calls() == 1; }));
  }
  const Buffer received = waiter.Take();
  received.as<float>()[1] = 6;
  own.as<float>()[1] = 7;
  EXPECT_EQ(received.as<float>()[0], 5);
  EXPECT_EQ(own.as<float>()[0], 4);
}

RINGZERO_FOR_ALL_TRANSPORTS(TransportFailure);

}  // namespace
}  // namespace ringzero
