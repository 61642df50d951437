// What only processes that share memory can get wrong: deaths, hellos, full rings, copies.
#include "p2p/shm_transport.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "p2p/packet_socket.h"
#include "tests/p2p/cluster.h"

namespace ringzero {
namespace {

std::vector<ShmEndpoint> Endpoints(int workers) {
  auto endpoints = MakeShmEndpoints(workers);
  EXPECT_TRUE(endpoints.ok()) << endpoints.status();
  return *std::move(endpoints);
}

std::unique_ptr<Transport> Connect(ShmEndpoint endpoint,
                                   TransportOptions options = SmallOptions()) {
  auto transport = CreateShmTransport(std::move(endpoint), options);
  EXPECT_TRUE(transport.ok()) << transport.status();
  return *std::move(transport);
}

absl::Status EndOf(Transport& transport) {
  EXPECT_TRUE(Eventually([&] { return !transport.status().ok(); }));
  return transport.status();
}

TEST(ShmTransport, AKilledProcessIsNamedAtOnce) {
  std::vector<ShmEndpoint> endpoints = Endpoints(2);
  const pid_t child = fork();  // before this process starts a thread
  if (child == 0) {
    ShmEndpoint own = std::move(endpoints[1]);
    endpoints.clear();
    const std::unique_ptr<Transport> transport = Connect(std::move(own));
    if (!transport->Give(WorkerId(0), {0, 0}, Filled(*transport, MemoryUse::kSums, 16, 3)).ok()) {
      _exit(1);
    }
    while (true) pause();
  }
  endpoints[1] = ShmEndpoint();
  const std::unique_ptr<Transport> transport = Connect(std::move(endpoints[0]));
  Waiter<Buffer> first;
  Waiter<Buffer> second;
  ASSERT_TRUE(transport->ExpectOwned(WorkerId(1), {0, 0}, 64, first.Callback()).ok());
  ASSERT_TRUE(transport->ExpectOwned(WorkerId(1), {0, 1}, 64, second.Callback()).ok());
  const Buffer received = first.Take();
  const auto killed = std::chrono::steady_clock::now();
  EXPECT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(second.TakeResult().status(),
            absl::UnavailableError("worker 1 died: its connection closed without a goodbye"));
  EXPECT_LT(std::chrono::steady_clock::now() - killed, kDeadline);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(received.as<float>()[0], 3);  // its memory lives as long as somebody maps it
}

TEST(ShmTransport, AWorkerThatNeverSaysHelloIsNamed) {
  std::vector<ShmEndpoint> endpoints = Endpoints(3);
  endpoints[0].hello_limit = std::chrono::milliseconds(50);
  const auto first = Connect(std::move(endpoints[0]));
  const auto second = Connect(std::move(endpoints[1]));
  EXPECT_EQ(EndOf(*first), absl::DeadlineExceededError("worker 2 has not said hello within 50 ms"));
  EXPECT_EQ(EndOf(*second), absl::DeadlineExceededError(
                                "aborted by worker 0: worker 2 has not said hello within 50 ms"));
}

TEST(ShmTransport, AStrangerIsRefused) {
  std::vector<ShmEndpoint> endpoints = Endpoints(2);
  const std::string words = "GET / HTTP/1.1";
  const auto bytes = std::as_bytes(std::span(words));
  ASSERT_EQ(SendPacket(endpoints[1].sockets[0].get(), bytes), SendResult::kSent);
  const auto transport = Connect(std::move(endpoints[0]));
  EXPECT_EQ(EndOf(*transport), absl::InternalError("a packet of worker 1: it is no hello"));
}

TEST(ShmTransport, MessagesMayBeSentBeforeTheOtherExists) {
  std::vector<ShmEndpoint> endpoints = Endpoints(2);
  const auto first = Connect(std::move(endpoints[0]));
  ASSERT_TRUE(first->Give(WorkerId(1), {0, 0}, Filled(*first, MemoryUse::kSums, 16, 3)).ok());
  const auto second = Connect(std::move(endpoints[1]));
  Waiter<Buffer> waiter;
  ASSERT_TRUE(second->ExpectOwned(WorkerId(0), {0, 0}, 64, waiter.Callback()).ok());
  EXPECT_EQ(waiter.Take().as<float>()[0], 3);
}

TEST(ShmTransport, AFullRingBlocksNobodyAndKeepsOrder) {
  constexpr uint64_t kMessages = 5000;  // a ring takes a tenth
  TransportOptions options = SmallOptions();
  options.slots = {kMessages};
  std::vector<ShmEndpoint> endpoints = Endpoints(2);
  const auto first = Connect(std::move(endpoints[0]), options);
  const auto second = Connect(std::move(endpoints[1]), options);
  Waiter<SharedBuffer> gate;
  Waiter<SharedBuffer> entered;
  const SharedBuffer version = Filled(*first, MemoryUse::kParameters, 16, 0).Seal();
  ASSERT_TRUE(second
                  ->ExpectShared(WorkerId(0), {0, 0}, 64,
                                 [&](absl::StatusOr<SharedBuffer>) {
                                   entered.Callback()(SharedBuffer());
                                   gate.Take();  // against all rules: nothing is read meanwhile
                                 })
                  .ok());
  ASSERT_TRUE(first->Share(WorkerId(1), {0, 0}, version).ok());
  entered.Take();
  for (uint64_t i = 1; i < kMessages; ++i) {
    ASSERT_TRUE(first->Share(WorkerId(1), {0, i}, version).ok());
  }
  // A text of many words, behind all that waits.
  second->AnswerWith([](WorkerId, const std::string& question) { return question; });
  const std::string text(kMaxTextBytes, 'q');
  Waiter<std::string> answer;
  ASSERT_TRUE(first->Ask(WorkerId(1), text, answer.Callback()).ok());
  gate.Callback()(SharedBuffer());
  EXPECT_EQ(answer.Take(), text);
  Waiter<SharedBuffer> waiter;
  for (uint64_t i = 1; i < kMessages; ++i) {
    ASSERT_TRUE(second->ExpectShared(WorkerId(0), {0, i}, 64, waiter.Callback()).ok());
  }
  EXPECT_TRUE(Eventually([&] { return waiter.calls() == kMessages - 1; }));
}

TEST(ShmTransport, ForeignMemoryIsCopiedAndCounted) {
  Cluster cluster = MakeCluster(ShmTransports(), {SmallOptions(), SmallOptions()});
  ASSERT_TRUE(cluster[0].Give(WorkerId(1), {0, 0}, MakeHeapBuffer(100)).ok());
  ASSERT_TRUE(cluster[0].Share(WorkerId(1), {1, 0}, MakeHeapBuffer(60).Seal()).ok());
  EXPECT_EQ(cluster[0].stats().bytes_copied, 160u);
  // A block of another worker's view is foreign here, too: its address means nothing to the wire.
  ASSERT_TRUE(
      cluster[0].Give(WorkerId(1), {2, 0}, Filled(cluster[1], MemoryUse::kSums, 16, 0)).ok());
  EXPECT_EQ(cluster[0].stats().bytes_copied, 224u);
}

TEST(ShmTransport, ALongAbortTextIsCut) {
  Cluster cluster = MakeCluster(ShmTransports(), {SmallOptions(), SmallOptions()});
  cluster[0].Abort(absl::InternalError(std::string(100000, 'x')));
  const absl::Status status = EndOf(cluster[1]);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_GT(status.message().size(), 3000u);
}

}  // namespace
}  // namespace ringzero
