// How every Transport ends: aborts, deaths, silence, goodbyes, and callbacks called exactly once.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "p2p/shm/shm_transport.h"
#include "p2p/transport.h"
#include "tests/p2p/cluster.h"
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
  std::vector<BlockCall> first, second, waiting;
  {
    Cluster cluster = Make(options);
    for (int w = 0; w < kWorkers; ++w) {
      first.push_back(PostEmpty(cluster[w], (w + 1) % kWorkers, {0, 0}));
      second.push_back(PostEmpty(cluster[w], (w + 1) % kWorkers, {1, 0}));
      waiting.push_back(SendFilled(cluster[w], (w + 1) % kWorkers, {2, 0}, 0, 20'000));
    }
    cluster[2].Abort(absl::DataLossError("a bad file"));
    cluster[2].Abort(absl::InternalError("a second thought"));
    for (int w = 0; w < kWorkers; ++w) {
      const absl::Status status = first[w].Take();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_THAT(status, Says(w == 2 ? "a bad file" : "aborted by worker 2: a bad file"));
      EXPECT_EQ(second[w].Take(), status);
      EXPECT_EQ(waiting[w].Take(), status);
      EXPECT_EQ(cluster[w].status(), status);
      cluster[w].Abort(absl::InternalError("too late"));
      EXPECT_EQ(cluster[w].status(), status);
      // Later calls return it, and their callbacks are not called.
      const std::span<std::byte> block = first[w].block.as<std::byte>();
      EXPECT_EQ(cluster[w].Post(WorkerId(0), {0, 1}, block, first[w].ends.Next()), status);
      EXPECT_EQ(cluster[w].Send(WorkerId(0), {0, 1}, block, first[w].ends.Next()), status);
      EXPECT_EQ(cluster[w].Close(), status);
    }
  }
  for (int w = 0; w < kWorkers; ++w) {
    EXPECT_EQ(first[w].ends.calls(), 1);
    EXPECT_EQ(second[w].ends.calls(), 1);
    EXPECT_EQ(waiting[w].ends.calls(), 1);
    EXPECT_EQ(failures[w], w == 2 ? 0 : 1);
  }
}

TEST_P(TransportFailure, AnAbortFromACallbackIsFine) {
  Cluster cluster = Make(2);
  BlockCall first = PostEmpty(cluster[0], 1, {0, 0});
  Buffer block = Empty(cluster[1]);
  ASSERT_TRUE(cluster[1]
                  .Post(WorkerId(0), {0, 0}, block.as<std::byte>(),
                        [&](const absl::Status&) {
                          cluster[1].Abort(absl::InternalError("from a callback"));
                        })
                  .ok());
  const BlockCall sent = SendFilled(cluster[0], 1, {0, 0}, 0);
  EXPECT_THAT(first.Take(), Says("aborted by worker 1: from a callback"));
}

TEST_P(TransportFailure, AVanishedWorkerIsNamed) {
  Cluster cluster = Make(3);
  BlockCall at0 = PostEmpty(cluster[0], 1, {0, 0});
  BlockCall at1 = PostEmpty(cluster[1], 2, {0, 0});
  BlockCall sent = SendFilled(cluster[1], 2, {0, 0}, 0, 20'000);
  cluster.Destroy(2);
  for (BlockCall* call : {&at0, &at1, &sent}) {
    EXPECT_THAT(call->Take(), Fails(absl::StatusCode::kUnavailable, "worker 2 died"));
  }
}

TEST_P(TransportFailure, AGoodbyeIsNoFailure) {
  Cluster cluster = Make(3);
  BlockCall last = PostEmpty(cluster[0], 2, {0, 0});
  const BlockCall sent = SendFilled(cluster[2], 0, {0, 0}, 8);
  EXPECT_TRUE(cluster[2].Close().ok());
  EXPECT_TRUE(cluster[2].Close().ok());
  cluster.Destroy(2);
  ExpectArrival(last, 8);
  // The others go on.
  PassOne(cluster[0], cluster[1]);
  EXPECT_TRUE(cluster[0].Close().ok());
  cluster.Destroy(0);
  EXPECT_TRUE(cluster[1].status().ok());
  EXPECT_TRUE(cluster[1].Close().ok());
}

TEST_P(TransportFailure, ClosedWorkersDoNotMindADeath) {
  Cluster cluster = Make(2);
  EXPECT_TRUE(cluster[0].Close().ok());
  cluster.Destroy(1);
  EXPECT_TRUE(cluster[0].status().ok()) << cluster[0].status();
}

// Small and large ones, which are posted after the goodbye, while their sender is destroyed.
TEST_P(TransportFailure, CloseSendsWhatStillWaits) {
  const std::vector<int> sizes = {16, 1024, 20'000, 16};
  Cluster cluster = Make(2);
  std::vector<BlockCall> sent, posted;
  for (uint64_t i = 0; i < sizes.size(); ++i) {
    sent.push_back(SendFilled(cluster[0], 1, {0, i}, static_cast<float>(i), sizes[i]));
  }
  EXPECT_TRUE(cluster[0].Close().ok());
  Ends never;
  const Buffer& block = sent[0].block;
  EXPECT_EQ(cluster[0].Send(WorkerId(1), {1, 0}, block.as<std::byte>(), never.Next()).code(),
            absl::StatusCode::kFailedPrecondition);
  std::thread destroyer([&] { cluster.Destroy(0); });
  for (uint64_t i = 0; i < sizes.size(); ++i) {
    posted.push_back(PostEmpty(cluster[1], 0, {0, i}, sizes[i]));
  }
  for (uint64_t i = 0; i < sizes.size(); ++i) ExpectArrival(posted[i], static_cast<float>(i));
  destroyer.join();
  for (BlockCall& each : sent) EXPECT_EQ(each.Take(), absl::OkStatus());
  EXPECT_EQ(never.calls(), 0);
  EXPECT_TRUE(cluster[1].status().ok()) << cluster[1].status();
}

TEST_P(TransportFailure, DestructionEndsEveryCall) {
  BlockCall posted, sent;
  {
    Cluster cluster = Make(2);
    posted = PostEmpty(cluster[0], 1, {0, 0});
    sent = SendFilled(cluster[0], 1, {0, 0}, 0, 20'000);
    cluster.Destroy(0);
  }
  for (BlockCall* call : {&posted, &sent}) {
    EXPECT_EQ(call->Take().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(call->ends.calls(), 1);
  }
}

TEST_P(TransportFailure, MemoryMayOutliveItsTransport) {
  Buffer block;
  {
    Cluster cluster = Make(2);
    block = Filled(cluster[1], MemoryUse::kSums, 16, 4);
  }
  block.as<float>()[1] = 7;
  EXPECT_EQ(block.as<float>()[0], 4);
}

// The first message to worker 2 keeps its message thread until `until` is set: to the others it
// looks as if it were stopped. Returns when it does: a delayed message would be overtaken by what
// comes next.
void HoldUp(Cluster& cluster, std::atomic<bool>& until) {
  const auto held = std::make_shared<std::atomic<bool>>(false);
  const auto from = std::make_shared<Buffer>(Filled(cluster[0], MemoryUse::kSums, 16, 0));
  const auto to = std::make_shared<Buffer>(Empty(cluster[2]));
  ASSERT_TRUE(cluster[2]
                  .Post(WorkerId(0), {0, 0}, to->as<std::byte>(),
                        [to, held, &until](const absl::Status&) {
                          *held = true;
                          while (!until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                        })
                  .ok());
  ASSERT_TRUE(cluster[0]
                  .Send(WorkerId(2), {0, 0}, from->as<std::byte>(), [from](const absl::Status&) {})
                  .ok());
  ASSERT_TRUE(Eventually([&] { return held->load(); }));
}

TEST_P(TransportFailure, ASilentWorkerIsNamedByAllOthersInTime) {
  const std::chrono::milliseconds timeout(500);
  TransportOptions options = SmallOptions();
  options.peer_timeout = timeout;
  std::atomic<bool> until{false};
  Cluster cluster = Make(4, options);
  // Worker 3 waits for worker 1, not for the culprit.
  BlockCall at3 = PostEmpty(cluster[3], 1, {0, 0});
  const auto start = std::chrono::steady_clock::now();
  HoldUp(cluster, until);
  const absl::Status status = at3.Take();
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
