// How every Transport ends: aborts, deaths, silence, goodbyes, and callbacks called exactly once.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "p2p/local_transport.h"
#include "p2p/shm/shm_transport.h"
#include "tests/p2p/implementations.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

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
      EXPECT_THAT(status, Says(w == 2 ? "a bad file" : "aborted by worker 2: a bad file"));
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
  ExpectOwned(cluster[0], 1, {0, 0}, first);
  ASSERT_TRUE(cluster[1]
                  .ExpectOwned(WorkerId(0), {0, 0}, 64,
                               [&](absl::StatusOr<Buffer>) {
                                 cluster[1].Abort(absl::InternalError("from a callback"));
                               })
                  .ok());
  Give(cluster[0], 1, {0, 0}, 0);
  EXPECT_THAT(first.TakeResult().status(), Says("aborted by worker 1: from a callback"));
}

TEST_P(TransportFailure, AbortFreesWhatWaitsForCredit) {
  TransportOptions options = SmallOptions();
  options.slots = {1};
  options.sum_bytes = 4 * 128;
  Cluster cluster = Make(2, options);
  uint64_t given = 0;
  while (true) {
    absl::StatusOr<Buffer> buffer = cluster[0].Allocate(64, MemoryUse::kSums);
    if (!buffer.ok()) break;
    ASSERT_TRUE(cluster[0].Give(WorkerId(1), {0, given++}, *std::move(buffer)).ok());
  }
  EXPECT_GE(given, 4u);
  cluster[0].Abort(absl::InternalError("enough"));
  EXPECT_TRUE(cluster[0].Allocate(64, MemoryUse::kSums).ok());
}

TEST_P(TransportFailure, AVanishedWorkerIsNamed) {
  Cluster cluster = Make(3);
  Waiter<Buffer> at0;
  Waiter<Buffer> at1;
  ExpectOwned(cluster[0], 1, {0, 0}, at0);
  ExpectOwned(cluster[1], 2, {0, 0}, at1);
  cluster.Destroy(2);
  for (Waiter<Buffer>* waiter : {&at0, &at1}) {
    const absl::Status status = waiter->TakeResult().status();
    EXPECT_THAT(status, Fails(absl::StatusCode::kUnavailable, "worker 2 died"));
  }
}

TEST_P(TransportFailure, AGoodbyeIsNoFailure) {
  Cluster cluster = Make(3);
  Waiter<Buffer> last;
  ExpectOwned(cluster[0], 2, {0, 0}, last);
  Give(cluster[2], 0, {0, 0}, 8);
  EXPECT_TRUE(cluster[2].Close().ok());
  EXPECT_TRUE(cluster[2].Close().ok());
  cluster.Destroy(2);
  EXPECT_EQ(last.Take().as<float>()[0], 8);
  // The others go on.
  PassOne(cluster[0], cluster[1]);
  EXPECT_TRUE(cluster[0].Close().ok());
  cluster.Destroy(0);
  EXPECT_TRUE(cluster[1].status().ok());
  EXPECT_TRUE(cluster[1].Close().ok());
}

TEST_P(TransportFailure, WhatCameBeforeAGoodbyeMayBeExpectedAfterIt) {
  Cluster cluster = Make(2);
  // As much as travels behind a header. Over UCX more than this leaves when it is expected, not
  // before.
  constexpr int kMany = 1024;
  Give(cluster[1], 0, {0, 0}, 8, kMany);
  EXPECT_TRUE(cluster[1].Close().ok());
  cluster.Destroy(1);
  Waiter<Buffer> late;
  const absl::Status expected =
      cluster[0].ExpectOwned(WorkerId(1), {0, 0}, kMany * sizeof(float), late.Callback());
  ASSERT_TRUE(expected.ok()) << expected;
  EXPECT_EQ(late.Take().as<float>()[kMany - 1], 8 + kMany - 1);
  EXPECT_TRUE(cluster[0].Close().ok());
}

TEST_P(TransportFailure, ClosedWorkersDoNotMindADeath) {
  Cluster cluster = Make(2);
  EXPECT_TRUE(cluster[0].Close().ok());
  cluster.Destroy(1);
  EXPECT_TRUE(cluster[0].status().ok()) << cluster[0].status();
}

TEST_P(TransportFailure, CloseSendsWhatStillWaits) {
  TransportOptions options = SmallOptions();
  options.slots = {1};
  Cluster cluster = Make(2, options);
  std::vector<Waiter<Buffer>> waiters(4);
  for (uint64_t i = 0; i < 4; ++i) {
    ExpectOwned(cluster[1], 0, {0, i}, waiters[i]);
    Give(cluster[0], 1, {0, i}, i);
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
  ExpectOwned(cluster[0], 1, {3, 77}, waiter);
  const absl::Status status = cluster[0].Close();
  EXPECT_THAT(status, Fails(absl::StatusCode::kFailedPrecondition, "tag 77"));
  EXPECT_TRUE(cluster[0].status().ok());
}

TEST_P(TransportFailure, AGoodbyeBeforeAnExpectedMessageFails) {
  Cluster cluster = Make(2);
  Waiter<Buffer> waiter;
  ExpectOwned(cluster[0], 1, {3, 77}, waiter);
  EXPECT_TRUE(cluster[1].Close().ok());
  const absl::Status status = waiter.TakeResult().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(status, Says(testing::AllOf(testing::HasSubstr("worker 1 said goodbye"),
                                          testing::HasSubstr("tag 77"))));
}

TEST_P(TransportFailure, DestructionAnswersEveryExpect) {
  Waiter<Buffer> waiter;
  {
    Cluster cluster = Make(2);
    ExpectOwned(cluster[0], 1, {0, 0}, waiter);
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
    ExpectOwned(cluster[1], 0, {0, 0}, waiter);
    Give(cluster[0], 1, {0, 0}, 5);
    EXPECT_TRUE(Eventually([&] { return waiter.calls() == 1; }));
  }
  const Buffer received = waiter.Take();
  received.as<float>()[1] = 6;
  own.as<float>()[1] = 7;
  EXPECT_EQ(received.as<float>()[0], 5);
  EXPECT_EQ(own.as<float>()[0], 4);
}

// The first message to worker 2 keeps its message thread until `until` is set: to the others it
// looks as if it were stopped. Returns when it does: a delayed message would be overtaken by what
// comes next.
void HoldUp(Cluster& cluster, std::atomic<bool>& until) {
  const auto held = std::make_shared<std::atomic<bool>>(false);
  ASSERT_TRUE(cluster[2]
                  .ExpectOwned(WorkerId(0), {0, 0}, 64,
                               [held, &until](absl::StatusOr<Buffer>) {
                                 *held = true;
                                 while (!until)
                                   std::this_thread::sleep_for(std::chrono::milliseconds(1));
                               })
                  .ok());
  Give(cluster[0], 2, {0, 0}, 0);
  ASSERT_TRUE(Eventually([&] { return held->load(); }));
}

TEST_P(TransportFailure, ASilentWorkerIsNamedByAllOthersInTime) {
  const std::chrono::milliseconds timeout(500);
  TransportOptions options = SmallOptions();
  options.peer_timeout = timeout;
  std::atomic<bool> until{false};
  Cluster cluster = Make(4, options);
  // Worker 3 waits for worker 1, not for the culprit.
  Waiter<Buffer> at3;
  ExpectOwned(cluster[3], 1, {0, 0}, at3);
  const auto start = std::chrono::steady_clock::now();
  HoldUp(cluster, until);
  const absl::Status status = at3.TakeResult().status();
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_THAT(status,
              Fails(absl::StatusCode::kUnavailable, "worker 2 gave no sign of life for 0.5 s"));
  EXPECT_GE(took, timeout * 4 / 5 - std::chrono::milliseconds(10));
  EXPECT_LT(took, timeout + std::chrono::seconds(1));
  for (const int w : {0, 1}) {
    EXPECT_TRUE(Eventually([&] { return !cluster[w].status().ok(); }));
    EXPECT_THAT(cluster[w].status(), Says("worker 2 gave no sign of life"));
  }
  // It wakes up, and blames no worker: it learns what was said of it.
  until = true;
  EXPECT_TRUE(Eventually([&] { return !cluster[2].status().ok(); }));
  EXPECT_THAT(cluster[2].status(), Says("worker 2 gave no sign of life"));
}

TEST_P(TransportFailure, ASilenceShorterThanTheTimeoutIsNone) {
  TransportOptions options = SmallOptions();
  options.peer_timeout = kDeadline;
  std::atomic<bool> until{false};
  Cluster cluster = Make(3, options);
  HoldUp(cluster, until);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  until = true;
  PassOne(cluster[2], cluster[1]);
}

TEST_P(TransportFailure, IdleWorkersLiveAndWhoSaidGoodbyeIsNotMissed) {
  TransportOptions options = SmallOptions();
  options.peer_timeout = std::chrono::milliseconds(500);
  Cluster cluster = Make(4, options);
  EXPECT_TRUE(cluster[3].Close().ok());
  cluster.Destroy(3);
  std::this_thread::sleep_for(2 * options.peer_timeout);
  for (int w = 0; w < 3; ++w) EXPECT_TRUE(cluster[w].status().ok()) << cluster[w].status();
}

TEST_P(TransportFailure, ATimeoutOfNothingIsRefused) {
  TransportOptions options = SmallOptions();
  options.peer_timeout = std::chrono::milliseconds(0);
  EXPECT_EQ(CreateLocalTransports({options}).status().code(), absl::StatusCode::kInvalidArgument);
  RZ_ASSIGN(auto endpoints, MakeShmEndpoints(1));
  EXPECT_EQ(CreateShmTransport(std::move(endpoints[0]), options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(TransportFailure, QuestionsAreAnsweredOnce) {
  Cluster cluster = Make(3);
  cluster[1].AnswerWith([](WorkerId from, const std::string& question) {
    return question + " from " + std::to_string(from.value);
  });
  Waiter<std::string> one;
  Waiter<std::string> two;
  ASSERT_TRUE(cluster[2].Ask(WorkerId(1), "what", one.Callback()).ok());
  ASSERT_TRUE(cluster[0].Ask(WorkerId(1), std::string(10000, 'x'), two.Callback()).ok());
  EXPECT_EQ(one.Take(), "what from 2");
  EXPECT_EQ(two.Take(), std::string(kMaxTextBytes, 'x'));
  // Who has nothing to say says nothing.
  ASSERT_TRUE(cluster[1].Ask(WorkerId(2), "what", one.Callback()).ok());
  EXPECT_EQ(one.Take(), "");
  EXPECT_EQ(cluster[1].Ask(WorkerId(1), "me", one.Callback()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster[1].Ask(WorkerId(3), "nobody", one.Callback()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(one.calls(), 2);
}

TEST_P(TransportFailure, AQuestionEndsWithTheTransport) {
  std::atomic<bool> until{false};
  Waiter<std::string> aborted;
  Waiter<std::string> left;
  {
    Cluster cluster = Make(3);
    HoldUp(cluster, until);
    ASSERT_TRUE(cluster[0].Ask(WorkerId(2), "what", aborted.Callback()).ok());
    cluster[0].Abort(absl::DataLossError("a bad file"));
    EXPECT_EQ(aborted.TakeResult().status(), absl::DataLossError("a bad file"));
    EXPECT_EQ(cluster[0].Ask(WorkerId(1), "what", aborted.Callback()),
              absl::DataLossError("a bad file"));
    until = true;
  }
  {
    Cluster cluster = Make(2);
    EXPECT_TRUE(cluster[1].Close().ok());
    const absl::Status asked = cluster[0].Ask(WorkerId(1), "what", left.Callback());
    const absl::Status status = asked.ok() ? left.TakeResult().status() : asked;
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  }
  EXPECT_EQ(aborted.calls(), 1);
  EXPECT_LE(left.calls(), 1);
}

RINGZERO_FOR_ALL_TRANSPORTS(TransportFailure);

}  // namespace
}  // namespace ringzero
