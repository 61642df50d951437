// The rendezvous contract over TCPStore, served by worker 0 and by somebody else (torchrun's
// agent).
#include "integrations/torch/tcp_rendezvous.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "p2p/job/store_rendezvous.h"
#include "tests/p2p/rendezvous_contract.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using Joined = absl::StatusOr<std::shared_ptr<Rendezvous>>;
using Results = absl::StatusOr<std::vector<std::string>>;
using Side = TcpPlace::Side;

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

int ListeningPort(const UniqueFd& listener) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(listen(listener.get(), 8), 0);
  return ntohs(address.sin_port);
}

// Nobody listens there any more.
int FreePort() { return ListeningPort(UniqueFd(socket(AF_INET, SOCK_STREAM, 0))); }

TcpPlace Place(int port, Side side, const std::string& host = "localhost") {
  return {
      .host = host, .port = port, .job = "test", .side = side, .limit = std::chrono::seconds(30)};
}

Joined JoinStore(const TcpPlace& place, const Gathering& gathering) {
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<RendezvousStore> store, OpenTcpStore(place));
  return GatherAt(std::move(store), gathering);
}

Results RunServed(int workers, const RendezvousBody& body) {
  const int port = FreePort();
  return RunInThreads(
      workers,
      [&](WorkerId self) {
        const bool serves = self.value == 0;
        return JoinStore(Place(port, serves ? Side::kServe : Side::kConnect),
                         {.self = self,
                          .workers = workers,
                          .leave_limit = std::chrono::seconds(serves ? 5 : 0)});
      },
      body);
}

// Twice at the same store, as after a restart: nothing of the first start is taken for the
// second's.
Results RunAtAgent(int workers, const RendezvousBody& body) {
  const int port = FreePort();
  RZ_ASSIGN_OR_RETURN(const std::unique_ptr<RendezvousStore> agent,
                      OpenTcpStore(Place(port, Side::kServe)));
  const auto run = [&](int restart) {
    return RunInThreads(
        workers,
        [&](WorkerId self) {
          return JoinStore(Place(port, Side::kConnect),
                           {.self = self, .workers = workers, .restart = restart});
        },
        body);
  };
  RZ_RETURN_IF_ERROR(run(0).status());
  return run(1);
}

INSTANTIATE_TEST_SUITE_P(Tcp, RendezvousContract,
                         testing::Values(RendezvousImplementation{"served_by_worker_0", RunServed},
                                         RendezvousImplementation{"at_an_agent", RunAtAgent}),
                         [](const auto& info) { return info.param.name; });

UniqueFd ConnectTo(int port) {
  UniqueFd connection(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = Loopback(port);
  EXPECT_EQ(connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
            0);
  return connection;
}

// Stands between one client and its server, and holds the server's answers back while it is told
// to.
class Relay {
 public:
  explicit Relay(int server_port)
      : listener_(socket(AF_INET, SOCK_STREAM, 0)),
        port_(ListeningPort(listener_)),
        thread_([this, server_port] { Run(server_port); }) {}
  ~Relay() {
    ended_ = true;
    thread_.join();
  }
  int port() const { return port_; }
  void Hold(bool held) { held_ = held; }

 private:
  static bool Pass(int from, int to) {
    char bytes[4096];
    const ssize_t count = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count < 0) return true;  // nothing yet
    return count > 0 && send(to, bytes, static_cast<size_t>(count), MSG_NOSIGNAL) == count;
  }
  void Run(int server_port) {
    const UniqueFd client(accept(listener_.get(), nullptr, nullptr));
    const UniqueFd server = ConnectTo(server_port);
    bool open = true;
    while (open && !ended_) {
      pollfd ready[] = {{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}};
      poll(ready, held_ ? 1 : 2, 5);
      open = Pass(client.get(), server.get()) && (held_ || Pass(server.get(), client.get()));
    }
  }

  std::atomic<bool> held_{false};
  std::atomic<bool> ended_{false};
  const UniqueFd listener_;
  const int port_;
  std::thread thread_;
};

// A server that looks up a client's name for seconds answers nobody else meanwhile: while workers
// arrive that is no loss, later it is.
TEST(TcpRendezvousTest, AnswersMayBeLateOnlyUntilAllHaveCome) {
  const int port = FreePort();
  RZ_ASSIGN(const auto agent, OpenTcpStore(Place(port, Side::kServe)));
  Relay relay(port);
  TcpPlace place = Place(relay.port(), Side::kConnect, "127.0.0.1");
  place.answer_limit = std::chrono::milliseconds(200);
  RZ_ASSIGN(auto store, OpenTcpStore(place));
  relay.Hold(true);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    relay.Hold(false);
  });
  const Joined joined = GatherAt(std::move(store), {.self = WorkerId(0), .workers = 1});
  later.join();
  ASSERT_TRUE(joined.ok()) << joined.status();
  ASSERT_TRUE((*joined)->Put("key", "value").ok());
  relay.Hold(true);
  const absl::Status status = (*joined)->Get("key", std::chrono::seconds(20)).status();
  EXPECT_THAT(status, Fails(absl::StatusCode::kUnavailable, "no answer within 0.2 s"));
}

TEST(TcpRendezvousTest, GarbageInTheStoreIsRefused) {
  const int port = FreePort();
  RZ_ASSIGN(const auto agent, OpenTcpStore(Place(port, Side::kServe)));
  // Before anybody gathers, and then under a key of theirs.
  for (const char* key : {"start", "join.0", "join.1", "accepted.1"}) {
    ASSERT_TRUE(agent->Write(key, std::string("garb\0age", 8)).ok());
  }
  const Results results = RunInThreads(
      2,
      [&](WorkerId self) {
        return JoinStore(Place(port, Side::kConnect), {.self = self, .workers = 2});
      },
      [&](WorkerId self, Rendezvous& at) -> absl::StatusOr<std::string> {
        if (self.value == 1) return std::string();
        const auto start = agent->Read("start");  // its second line is the start's name
        RZ_RETURN_IF_ERROR(start.status());
        const std::string text = (*start)->substr((*start)->find('\n') + 1);
        const std::string name = text.substr(0, text.find(' '));
        RZ_RETURN_IF_ERROR(agent->Write(absl::StrCat(name, "/plan"), "garbage"));
        const absl::Status status = at.Get("plan", std::chrono::seconds(5)).status();
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
        EXPECT_EQ(at.Put("plan", "mine").code(), absl::StatusCode::kInvalidArgument);
        return std::string();
      });
  EXPECT_TRUE(results.ok()) << results.status();
}

TEST(TcpRendezvousTest, NobodyThereIsAnErrorInTime) {
  TcpPlace place = Place(FreePort(), Side::kConnect);
  place.limit = std::chrono::seconds(1);
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = OpenTcpStore(place).status();
  EXPECT_THAT(status,
              Fails(absl::StatusCode::kUnavailable, absl::StrCat("tcp://localhost:", place.port)));
  EXPECT_FALSE(absl::StrContains(status.message(), "\n"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(TcpRendezvousTest, AStoreThatEndsIsUnavailable) {
  const int port = FreePort();
  RZ_ASSIGN(auto agent, OpenTcpStore(Place(port, Side::kServe)));
  RZ_ASSIGN(const auto joined,
            JoinStore(Place(port, Side::kConnect), {.self = WorkerId(0), .workers = 1}));
  agent.reset();
  const absl::Status status = joined->Get("never", std::chrono::seconds(20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

// As behind a cut cable: the connection is there, and no answer comes.
TEST(TcpRendezvousTest, AStoreThatNeverAnswersIsAnErrorInTime) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));
  TcpPlace place = Place(ListeningPort(listener), Side::kConnect, "127.0.0.1");
  place.limit = std::chrono::seconds(1);
  place.answer_limit = std::chrono::milliseconds(500);
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = OpenTcpStore(place).status();
  EXPECT_THAT(status, Fails(absl::StatusCode::kUnavailable, "no answer within 1.5 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

// A server of something else: what it says is no protocol of ours, and it ends as an error.
TEST(TcpRendezvousTest, AStrangersServerIsRefused) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));
  std::thread stranger([&] {
    while (true) {
      const UniqueFd client(accept(listener.get(), nullptr, nullptr));
      if (!client) return;
      const char garbage[] = "HTTP/1.1 400 Bad Request\r\n\r\nwhat do you want?";
      if (send(client.get(), garbage, sizeof(garbage), MSG_NOSIGNAL) < 0) return;
    }
  });
  TcpPlace place = Place(ListeningPort(listener), Side::kConnect, "127.0.0.1");
  place.limit = std::chrono::seconds(2);
  const Joined joined =
      JoinStore(place, {.self = WorkerId(0), .workers = 1, .limit = std::chrono::seconds(2)});
  EXPECT_FALSE(joined.ok());
  shutdown(listener.get(), SHUT_RDWR);
  stranger.join();
}

}  // namespace
}  // namespace ringzero
