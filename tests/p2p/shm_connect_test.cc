// Workers that were not forked together find each other; strangers do no harm and leave no trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "p2p/job/hosts.h"
#include "p2p/shm/shm_endpoint.h"
#include "p2p/shm/shm_packet.h"
#include "p2p/shm/shm_transport.h"
#include "tests/p2p/cluster.h"
#include "tests/p2p/losing_rendezvous.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using testing::HasSubstr;

JobSeat SeatOf(int self, int workers, std::shared_ptr<Rendezvous> rendezvous) {
  return {.self = WorkerId(self),
          .workers = workers,
          .secret = "a secret of this job",
          .rendezvous = std::move(rendezvous),
          .join_limit = kDeadline};
}

using Joining = std::future<absl::StatusOr<ShmEndpoint>>;

Joining Join(const JobSeat& seat, std::vector<WorkerId> peers) {
  return std::async(std::launch::async, [seat, peers] { return ConnectShmEndpoint(seat, peers); });
}

Joining JoinHost(const JobSeat& seat) {
  return std::async(std::launch::async, [seat]() -> absl::StatusOr<ShmEndpoint> {
    const auto hosts = HostsOfWorkers(seat);
    if (!hosts.ok()) return hosts.status();
    return ConnectShmEndpoint(seat, PeersOf(seat.self, *hosts));
  });
}

std::unique_ptr<Transport> TransportOf(Joining joining) {
  absl::StatusOr<ShmEndpoint> endpoint = joining.get();
  EXPECT_TRUE(endpoint.ok()) << endpoint.status();
  if (!endpoint.ok()) return nullptr;
  auto transport = CreateShmTransport(*std::move(endpoint), SmallOptions());
  EXPECT_TRUE(transport.ok()) << transport.status();
  return *std::move(transport);
}

// Abstract sockets of ours that listen now, in the whole network namespace.
std::set<std::string> ListeningNames() {
  std::ifstream file("/proc/net/unix");
  std::set<std::string> names;
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find("@ringzero-");
    const bool listens = line.find(" 00010000 ") != std::string::npos;
    if (at != std::string::npos && listens) names.insert(line.substr(at));
  }
  return names;
}

// Calls bind or connect with an abstract name.
template <typename Call>
int WithAddress(Call call, const UniqueFd& socket, const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return call(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes);
}

TEST(ShmConnect, AllWorkersOfAHostMeet) {
  const auto rendezvous = MakeLocalRendezvous();
  std::vector<Joining> joinings;
  for (int w = 0; w < 4; ++w) joinings.push_back(JoinHost(SeatOf(w, 4, rendezvous)));
  std::vector<std::unique_ptr<Transport>> transports;
  for (Joining& each : joinings) transports.push_back(TransportOf(std::move(each)));
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      if (a != b) PassOne(*transports[a], *transports[b]);
    }
  }
  for (int w = 0; w < 4; ++w) {
    RZ_ASSIGN(auto name, rendezvous->Get("shm/" + std::to_string(w), std::chrono::milliseconds(0)));
    EXPECT_EQ(ListeningNames().count("@" + name), 0u);
  }
}

TEST(ShmConnect, WorkersOfOtherHostsAreNoPeers) {
  const auto rendezvous = MakeLocalRendezvous();
  std::vector<Joining> joinings;
  for (int w = 0; w < 4; ++w) {
    joinings.push_back(Join(SeatOf(w, 4, rendezvous), {WorkerId(w), WorkerId((w + 2) % 4)}));
  }
  for (int w = 0; w < 4; ++w) {
    RZ_ASSIGN(const ShmEndpoint endpoint, joinings[w].get());
    EXPECT_EQ(endpoint.self, WorkerId(w));
    ASSERT_EQ(endpoint.sockets.size(), 4u);
    for (int peer = 0; peer < 4; ++peer) {
      EXPECT_EQ(static_cast<bool>(endpoint.sockets[peer]), peer == (w + 2) % 4);
    }
    EXPECT_EQ(endpoint.board->workers(), 4);
  }
}

TEST(ShmConnect, AloneOnAHostNobodyIsAwaited) {
  RZ_ASSIGN(const ShmEndpoint endpoint,
            ConnectShmEndpoint(SeatOf(1, 3, MakeLocalRendezvous()), {}));
  EXPECT_EQ(endpoint.sockets.size(), 3u);
}

TEST(ShmConnect, WhoIsMissingIsNamedInTime) {
  const auto rendezvous = MakeLocalRendezvous();
  JobSeat first = SeatOf(0, 3, rendezvous);
  first.join_limit = std::chrono::milliseconds(100);
  JobSeat last = SeatOf(2, 3, rendezvous);
  last.join_limit = std::chrono::milliseconds(100);
  Joining at0 = Join(first, {WorkerId(1), WorkerId(2)});
  const absl::Status at2 = ConnectShmEndpoint(last, std::vector{WorkerId(0), WorkerId(1)}).status();
  EXPECT_THAT(at2, Fails(absl::StatusCode::kDeadlineExceeded, "worker 1 is missing on this host"));
  const absl::Status status = at0.get().status();
  EXPECT_THAT(status, Fails(absl::StatusCode::kDeadlineExceeded,
                            "did not connect on this host within 100 ms"));
  EXPECT_THAT(status.ToString(), HasSubstr("1"));

  const auto nobody = MakeLocalRendezvous();
  JobSeat alone = SeatOf(2, 3, nobody);
  alone.join_limit = std::chrono::milliseconds(50);
  const absl::Status lost = HostsOfWorkers(alone).status();
  EXPECT_THAT(lost, Fails(absl::StatusCode::kDeadlineExceeded, "worker 0 has not told its host"));
}

TEST(ShmConnect, AnotherSecretIsRefused) {
  const auto rendezvous = MakeLocalRendezvous();
  JobSeat first = SeatOf(0, 2, rendezvous);
  first.join_limit = std::chrono::milliseconds(300);
  JobSeat other = SeatOf(1, 2, rendezvous);
  other.secret = "the secret of another job";
  Joining at0 = Join(first, {WorkerId(1)});
  EXPECT_EQ(ConnectShmEndpoint(other, std::vector{WorkerId(0)}).status(),
            absl::PermissionDeniedError("worker 0 on this host does not know this job's secret"));
  EXPECT_EQ(at0.get().status(),
            absl::DeadlineExceededError(
                "worker 1 did not connect on this host within 300 ms; a process that called itself "
                "worker 1 did not prove that it knows this job's secret"));
}

TEST(ShmConnect, WhoDiedBeforeItCameEndsTheWait) {
  const auto losing = std::make_shared<LosingRendezvous>();
  Joining at0 = Join(SeatOf(0, 2, losing), {WorkerId(1)});
  ASSERT_TRUE(losing->Get("shm/0", kDeadline).ok());  // it listens
  const absl::Status lost = absl::UnavailableError("worker 1 gave no sign of life for 1.0 s");
  losing->Lose(lost);
  EXPECT_EQ(at0.get().status(), lost);
}

// Worker 0 closes the connection because it ends, and it ends because of worker 2.
TEST(ShmConnect, WhoClosesIsBlamedOnlyIfItDoesNotSayWhy) {
  for (const bool says_why : {true, false}) {
    const auto losing = std::make_shared<LosingRendezvous>();
    const std::string name = "ringzero-shm-connect-test-" + std::to_string(getpid());
    UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(WithAddress(bind, listener, name), 0);
    ASSERT_EQ(listen(listener.get(), 1), 0);
    ASSERT_TRUE(losing->Put("shm/0", name).ok());
    Joining at1 = Join(SeatOf(1, 3, losing), {WorkerId(0), WorkerId(2)});
    UniqueFd(accept(listener.get(), nullptr, nullptr)).Reset();
    const absl::Status lost = absl::UnavailableError("worker 2 gave no sign of life for 1.0 s");
    if (says_why) losing->Lose(lost, 3);  // after the end of the connection was found
    EXPECT_EQ(at1.get().status(), says_why ? lost
                                           : absl::UnavailableError("worker 0 on this host closed "
                                                                    "its connection as it began"));
  }
}

// A client without manners, connected to worker 0's socket.
class Stranger {
 public:
  explicit Stranger(const std::string& name)
      : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    connected_ = WithAddress(connect, socket_, name) == 0;
  }
  bool connected() const { return connected_; }
  void Send(const std::string& packet, const std::vector<int>& descriptors = {}) {
    // Fails once we have been cut off.
    SendPacket(socket_.get(), std::as_bytes(std::span(packet)), descriptors);
  }
  template <typename T>
  void SendStruct(const T& value) {
    Send(std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
  }
  // Until the other end closes, at most kDeadline.
  bool IsCutOff() {
    return Eventually([&] {
      std::array<std::byte, 1000> buffer;
      ReceiveResult got = ReceivePacket(socket_.get(), buffer);
      answered_ = answered_ || got.kind == ReceiveResult::Kind::kPacket;
      return got.kind == ReceiveResult::Kind::kClosed;
    });
  }
  bool answered() const { return answered_; }

 private:
  UniqueFd socket_;
  bool connected_ = false;
  bool answered_ = false;
};

TEST(ShmConnect, StrangersAreCutOffAndTheOthersMeet) {
  const auto rendezvous = MakeLocalRendezvous();
  Joining at0 = Join(SeatOf(0, 2, rendezvous), {WorkerId(1)});
  const std::string name = *rendezvous->Get("shm/0", kDeadline);
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    Stranger stranger(name);
    ASSERT_TRUE(stranger.connected());
    std::string packet(1 + random() % 300, '\0');
    for (char& c : packet) c = static_cast<char>(random());
    stranger.Send(packet, i % 3 == 0 ? std::vector{0, 1, 2, 0} : std::vector<int>());
    if (i % 20 == 0) {
      EXPECT_TRUE(stranger.IsCutOff());
      EXPECT_FALSE(stranger.answered());
    }
  }
  std::vector<Opening> openings(3);
  openings[0] = {.from = 1, .to = 1};     // not for worker 0
  openings[1] = {.from = 0, .to = 0};     // itself
  openings[2] = {.from = 1000, .to = 0};  // nobody
  for (const Opening& opening : openings) {
    Stranger stranger(name);
    stranger.SendStruct(opening);
    EXPECT_TRUE(stranger.IsCutOff());
    EXPECT_FALSE(stranger.answered());
  }
  Stranger guesser(name);  // says the right things and does not know the secret
  guesser.SendStruct(Opening{.from = 1, .to = 0});
  guesser.SendStruct(Digest());
  EXPECT_TRUE(guesser.IsCutOff());
  EXPECT_TRUE(guesser.answered());  // with a challenge
  Stranger large(name);
  large.Send(std::string(100000, 'x'));
  EXPECT_TRUE(large.IsCutOff());
  std::vector<std::unique_ptr<Stranger>> silent;  // more than are listened to
  for (int i = 0; i < 400; ++i) silent.push_back(std::make_unique<Stranger>(name));
  EXPECT_TRUE(silent.front()->IsCutOff());

  Joining at1 = Join(SeatOf(1, 2, rendezvous), {WorkerId(0)});
  const auto first = TransportOf(std::move(at0));
  const auto second = TransportOf(std::move(at1));
  PassOne(*first, *second);
  for (const auto& each : silent) EXPECT_TRUE(each->IsCutOff());
}

TEST(ShmConnect, AnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto rendezvous = MakeLocalRendezvous();
  JobSeat seat = SeatOf(0, 2, rendezvous);
  Joining at0 = Join(seat, {WorkerId(1)});
  const std::string name = *rendezvous->Get("shm/0", kDeadline);
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    Stranger stranger(name);
    stranger.SendStruct(Opening{.from = 1, .to = 0});
    _exit(stranger.IsCutOff() && !stranger.answered() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Joining at1 = Join(SeatOf(1, 2, rendezvous), {WorkerId(0)});
  EXPECT_TRUE(at0.get().ok());
  EXPECT_TRUE(at1.get().ok());
}

TEST(ShmConnect, APeerThatIsNoneIsRefused) {
  const JobSeat seat = SeatOf(0, 2, MakeLocalRendezvous());
  EXPECT_EQ(ConnectShmEndpoint(seat, std::vector{WorkerId(2)}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ThisHost, ANetworkNamespaceIsAHost) {
  RZ_ASSIGN(const std::string here, ThisHost());
  EXPECT_EQ(*ThisHost(), here);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0) _exit(77);
    const std::string there = *ThisHost();
    _exit(write(ends[1], there.data(), there.size()) == static_cast<ssize_t>(there.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string there(1000, '\0');
  const ssize_t got = read(ends[0], there.data(), there.size());
  close(ends[0]);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no right to make a network namespace";
  ASSERT_GT(got, 0);
  there.resize(static_cast<size_t>(got));
  EXPECT_NE(there, here);
  EXPECT_EQ(there.substr(0, there.find(',')), here.substr(0, here.find(',')));  // one boot
}

}  // namespace
}  // namespace ringzero
