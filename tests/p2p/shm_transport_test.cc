// What only processes that share memory can get wrong: deaths, hellos, full rings, copies.
#include "p2p/shm/shm_transport.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "p2p/shm/packet_socket.h"
#include "p2p/shm/shm_arena.h"
#include "p2p/shm/shm_packet.h"
#include "p2p/shm/shm_rings.h"
#include "tests/p2p/cluster.h"
#include "tests/support/status_matchers.h"

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
  ExpectOwned(*transport, 1, {0, 0}, first);
  ExpectOwned(*transport, 1, {0, 1}, second);
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
  Give(*first, 1, {0, 0}, 3);
  const auto second = Connect(std::move(endpoints[1]));
  Waiter<Buffer> waiter;
  ExpectOwned(*second, 0, {0, 0}, waiter);
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
    ExpectShared(*second, 0, {0, i}, waiter);
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

// Worker 1 of two by hand: says a hello and puts words of its own into the ring to worker 0.
class Forger {
 public:
  explicit Forger(ShmEndpoint endpoint)
      : endpoint_(std::move(endpoint)), ring_(endpoint_.rings->Writer(1, 0)) {}

  void SayHello(int slots) {
    ShmHello hello;
    hello.worker = 1;
    hello.workers = 2;
    for (int kind = 0; kind < kMaxMessageKinds; ++kind) hello.slots[kind] = slots;
    std::vector<int> files;
    for (int i = 0; i < kMemoryUses; ++i) {
      RZ_ASSIGN(auto arena, MakeShmArena(WorkerId(1), static_cast<MemoryUse>(i), size_t{1} << 20));
      hello.arena_bytes[i] = arena.bytes;
      arenas_.push_back(std::move(arena));
      files.push_back(arenas_.back().files.data.get());
      files.push_back(arenas_.back().files.counts.get());
    }
    const auto bytes = std::as_bytes(std::span(&hello, 1));
    ASSERT_EQ(SendPacket(endpoint_.sockets[0].get(), bytes, files), SendResult::kSent);
  }
  void Put(const ShmToken& token) {
    RingWord word = {};
    std::memcpy(word.data(), &token, sizeof(token));
    ASSERT_TRUE(ring_.Push(word));
    endpoint_.rings->bell(0).RingForSure();
  }

 private:
  ShmEndpoint endpoint_;
  RingWriter ring_;
  std::vector<ShmArena> arenas_;
};

absl::Status EndAfter(int slots, const std::vector<ShmToken>& tokens) {
  std::vector<ShmEndpoint> endpoints = Endpoints(2);
  Forger forger(std::move(endpoints[1]));
  forger.SayHello(slots);
  const auto transport = Connect(std::move(endpoints[0]));
  Waiter<Buffer> waiter;
  // The hello itself may have ended it by now.
  const absl::Status expected = transport->ExpectOwned(WorkerId(1), {0, 0}, 64, waiter.Callback());
  for (const ShmToken& token : tokens) forger.Put(token);
  const absl::Status end = EndOf(*transport);
  EXPECT_EQ(expected.ok() ? waiter.TakeResult().status() : expected, end);
  return end;
}

TEST(ShmTransport, WordsThatCannotBeTrueEndIt) {
  using Type = ShmToken::Type;
  const std::string block = "a packet of worker 1: a message names block ";
  EXPECT_EQ(
      EndAfter(2, {{.type = Type::kMessage, .use = 1, .origin = 1, .bytes = 64}}),
      absl::InternalError(block + "0 at 0 of 64 bytes, which worker 1's memory does not have"));
  // Worker 0's own memory, of which nothing was ever cut.
  EXPECT_EQ(
      EndAfter(2, {{.type = Type::kMessage, .use = 1, .block = 3, .offset = 64, .bytes = 64}}),
      absl::InternalError(block + "3 at 64 of 64 bytes, which worker 0's memory does not have"));
  EXPECT_EQ(EndAfter(2, {{.type = Type::kMessage, .origin = 7}}),
            absl::InternalError("a packet of worker 1: it names memory that does not exist"));
  EXPECT_EQ(EndAfter(2, {{.type = Type::kMessage, .kind = 200}}),
            absl::InternalError("a packet of worker 1: its kind is unknown"));
  EXPECT_EQ(EndAfter(2, {{.type = static_cast<Type>(77)}}),
            absl::InternalError("a packet of worker 1: its type is unknown"));
  for (const int code : {0, -1, 17}) {
    EXPECT_EQ(EndAfter(2, {{.type = Type::kAbort, .code = code}}),
              absl::InternalError("a packet of worker 1: its code is unknown"));
  }
  EXPECT_EQ(EndAfter(2, {{.type = Type::kCredit, .kind = 1}}),
            absl::InternalError("worker 1 gave credit for 3 messages of kind 1, but has 2 slots"));
  for (const int slots : {0, -5}) {
    EXPECT_EQ(EndAfter(slots, {}),
              absl::InternalError("a packet of worker 1: it has " + std::to_string(slots) +
                                  " slots for kind 0; at least 1 is needed"));
  }
}

TEST(ShmTransport, AQuestionToWhoLeavesIsAnsweredWithAnError) {
  TransportOptions polled = SmallOptions();
  polled.progress = ProgressMode::kCaller;  // so that it leaves without reading the question
  Cluster cluster = MakeCluster(ShmTransports(), {SmallOptions(), polled});
  Waiter<std::string> answer;
  ASSERT_TRUE(cluster[0].Ask(WorkerId(1), "are you there?", answer.Callback()).ok());
  ASSERT_TRUE(cluster[1].Close().ok());
  EXPECT_EQ(answer.TakeResult().status(),
            absl::FailedPreconditionError("worker 1 said goodbye before it answered"));
  ASSERT_TRUE(cluster[0].Close().ok());
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
