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

#include "p2p/arena.h"
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
    const BlockCall sent = SendFilled(*transport, 0, {0, 0}, 3, 1000);
    while (true) pause();
  }
  endpoints[1] = ShmEndpoint();
  const std::unique_ptr<Transport> transport = Connect(std::move(endpoints[0]));
  BlockCall first = PostEmpty(*transport, 1, {0, 0}, 1000);
  BlockCall second = PostEmpty(*transport, 1, {0, 1});
  ExpectArrival(first, 3);
  const MappedMemory its = transport->MemoryOf(WorkerId(1), MemoryUse::kSums);
  const auto killed = std::chrono::steady_clock::now();
  EXPECT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(second.Take(),
            absl::UnavailableError("worker 1 died: its connection closed without a goodbye"));
  EXPECT_LT(std::chrono::steady_clock::now() - killed, kDeadline);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  // Its memory lives as long as somebody maps it.
  EXPECT_EQ(*reinterpret_cast<const float*>(its.bytes.data()), 3);
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
  const BlockCall small = SendFilled(*first, 1, {0, 0}, 3);
  const BlockCall large = SendFilled(*first, 1, {1, 0}, 4, 1000);
  const auto second = Connect(std::move(endpoints[1]));
  BlockCall arrived[] = {PostEmpty(*second, 0, {0, 0}), PostEmpty(*second, 0, {1, 0}, 1000)};
  ExpectArrival(arrived[0], 3);
  ExpectArrival(arrived[1], 4);
}

TEST(ShmTransport, AFullRingBlocksNobodyAndKeepsOrder) {
  constexpr uint64_t kMessages = 5000;  // a ring takes a tenth of their words
  std::vector<ShmEndpoint> endpoints = Endpoints(2);
  const auto first = Connect(std::move(endpoints[0]));
  const auto second = Connect(std::move(endpoints[1]));
  const Buffer from = Filled(*first, MemoryUse::kSums, 16, 5);
  Buffer to = Empty(*second);
  Ends gate, entered, sent, arrived;
  const auto send = [&](uint64_t tag) {
    ASSERT_TRUE(first->Send(WorkerId(1), {0, tag}, from.as<std::byte>(), sent.Next()).ok());
  };
  ASSERT_TRUE(second
                  ->Post(WorkerId(0), {0, 0}, to.as<std::byte>(),
                         [&](const absl::Status& end) {
                           entered.Next()(end);
                           // Against all rules: nothing is read meanwhile.
                           EXPECT_EQ(gate.Take(), absl::OkStatus());
                         })
                  .ok());
  send(0);
  EXPECT_EQ(entered.Take(), absl::OkStatus());
  for (uint64_t i = 1; i < kMessages; ++i) send(i);
  // A text of many words, behind all that waits.
  second->AnswerWith([](WorkerId, const std::string& question) { return question; });
  const std::string text(kMaxTextBytes, 'q');
  Waiter<std::string> answer;
  ASSERT_TRUE(first->Ask(WorkerId(1), text, answer.Callback()).ok());
  gate.Next()(absl::OkStatus());
  EXPECT_EQ(answer.Take(), text);
  for (uint64_t i = 1; i < kMessages; ++i) {
    ASSERT_TRUE(second->Post(WorkerId(0), {0, i}, to.as<std::byte>(), arrived.Next()).ok());
  }
  for (uint64_t i = 1; i < kMessages; ++i) ASSERT_EQ(arrived.Take(), absl::OkStatus());
  for (uint64_t i = 0; i < kMessages; ++i) ASSERT_EQ(sent.Take(), absl::OkStatus());
  EXPECT_TRUE(Holds(to, 5));
}

// Worker 1 of two by hand: says a hello and puts words of its own into the ring to worker 0.
class Forger {
 public:
  explicit Forger(ShmEndpoint endpoint)
      : endpoint_(std::move(endpoint)), ring_(endpoint_.rings->Writer(1, 0)) {}

  void SayHello() {
    ShmHello hello;
    hello.worker = 1;
    hello.workers = 2;
    std::vector<int> files;
    RZ_ASSIGN(arenas_, MakeShmArenas(WorkerId(1), SmallOptions()));
    for (int i = 0; i < kMemoryUses; ++i) {
      hello.arena_bytes[i] = arenas_[i].arena->memory().size();
      files.push_back(arenas_[i].file.get());
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
  ShmArenas arenas_;
};

absl::Status EndAfter(const ShmToken& token) {
  std::vector<ShmEndpoint> endpoints = Endpoints(2);
  Forger forger(std::move(endpoints[1]));
  forger.SayHello();
  const auto transport = Connect(std::move(endpoints[0]));
  BlockCall posted = PostEmpty(*transport, 1, {0, 0});
  forger.Put(token);
  const absl::Status end = EndOf(*transport);
  EXPECT_EQ(posted.Take(), end);
  return end;
}

TEST(ShmTransport, WordsThatCannotBeTrueEndIt) {
  using Type = ShmToken::Type;
  const auto packet = [](const std::string& what) {
    return absl::InternalError("a packet of worker 1: " + what);
  };
  EXPECT_EQ(EndAfter({.type = Type::kBlock, .use = 2, .bytes = 64}),
            packet("it names memory that does not exist"));
  for (const uint64_t offset : {uint64_t{1} << 30, ~uint64_t{0} - 63}) {
    EXPECT_THAT(EndAfter({.type = Type::kBlock, .use = 1, .offset = offset, .bytes = 64}),
                Says("it names 64 bytes at " + std::to_string(offset) + " of memory that has"));
  }
  EXPECT_THAT(EndAfter({.type = Type::kBlock, .use = 1, .offset = 64, .bytes = ~uint64_t{0}}),
              Says("a packet of worker 1: it names 18446744073709551615 bytes at 64 of memory"));
  EXPECT_EQ(EndAfter({.type = Type::kSmall, .bytes = kMaxTextBytes + 1}),
            packet("its text is too long"));
  EXPECT_EQ(EndAfter({.type = Type::kBlock, .kind = 200}), packet("its kind is unknown"));
  EXPECT_EQ(EndAfter({.type = static_cast<Type>(77)}), packet("its type is unknown"));
  for (const int code : {0, -1, 17}) {
    EXPECT_EQ(EndAfter({.type = Type::kNote, .code = code}), packet("its code is unknown"));
  }
  EXPECT_EQ(EndAfter({.type = Type::kNote, .kind = 4}), packet("its kind is unknown"));
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
