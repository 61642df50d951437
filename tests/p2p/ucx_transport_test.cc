// What UCX is told, and what the user's environment may say instead.
#include "p2p/ucx/ucx_transport.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "p2p/job/rendezvous.h"
#include "p2p/nccl/nccl_transport.h"
#include "p2p/ucx/ucx_links.h"
#include "p2p/ucx/ucx_worker.h"
#include "tests/p2p/cluster.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

// A variable of the environment while it lives.
class Environment {
 public:
  Environment(std::string name, const char* value) : name_(std::move(name)) {
    setenv(name_.c_str(), value, 1);
  }
  ~Environment() { unsetenv(name_.c_str()); }

 private:
  const std::string name_;
};

std::string Link() {
  Cluster cluster = MakeCluster(UcxTransports(), {SmallOptions(), SmallOptions()});
  return cluster[0].LinkTo(WorkerId(1));
}

TEST(UcxTransportTest, TakesSharedMemoryOnOneHost) {
  const std::string link = Link();
  EXPECT_TRUE(absl::StrContains(link, "/memory")) << link;
  EXPECT_FALSE(absl::StrContains(link, "tcp")) << link;
}

// What the descriptors of this process are: "socket:[1234]", "/dev/shm/ucx…".
std::set<std::string> Descriptors() {
  std::set<std::string> all;
  std::error_code gone;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    all.insert(std::filesystem::read_symlink(each.path(), gone).string());
  }
  return all;
}

// A table of /proc: the words of each line after its head.
std::vector<std::vector<std::string>> Rows(const char* table) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream lines(table);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) rows.push_back(absl::StrSplit(line, ' ', absl::SkipEmpty()));
  return rows;
}

// The local addresses, without ports, of this process' listening TCP sockets, as /proc/net has
// them: "0100007F" is 127.0.0.1.
std::set<std::string> ListeningAddresses() {
  const std::set<std::string> descriptors = Descriptors();
  std::set<std::string> addresses;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    for (const std::vector<std::string>& row : Rows(table)) {
      const std::string &local = row[1], &state = row[3], &inode = row[9];
      if (state != "0A" || !descriptors.contains(absl::StrCat("socket:[", inode, "]"))) continue;
      addresses.insert(local.substr(0, local.find(':')));
    }
  }
  return addresses;
}

TEST(UcxTransportTest, OpensNoPortOnOneHost) {
  Cluster cluster = MakeCluster(UcxTransports(), {SmallOptions(), SmallOptions()});
  EXPECT_EQ(ListeningAddresses(), std::set<std::string>());
}

TEST(UcxTransportTest, ListensOnTheInterfacesThatItIsGiven) {
  Cluster cluster = MakeCluster(UcxHostsTransports(), {SmallOptions(), SmallOptions()});
  EXPECT_EQ(ListeningAddresses(), std::set<std::string>{"0100007F"});
  // A worker that is elsewhere is not reached by memory, though UCX could.
  EXPECT_EQ(cluster[0].LinkTo(WorkerId(1)), "ucx tcp/lo");
}

// Memory by which workers reach each other is their user's alone.
TEST(UcxTransportTest, NobodyElseCanMapItsMemory) {
  Cluster cluster = MakeCluster(UcxTransports(), {SmallOptions(), SmallOptions()});
  int segments = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string name = std::filesystem::read_symlink(each.path(), gone).string();
    struct stat facts = {};
    if (!absl::StartsWith(name, "/dev/shm/") || stat(each.path().c_str(), &facts) != 0) continue;
    ++segments;
    EXPECT_EQ(facts.st_mode & 07777, 0600U) << name;
  }
  EXPECT_GT(segments, 0);
  for (const std::vector<std::string>& row : Rows("/proc/sysvipc/shm")) {
    EXPECT_NE(row[4], absl::StrCat(getpid())) << "a System V segment of mode " << row[2];
  }
}

// The trap that the setting is there for: without it UCX takes TCP where it may, and says nothing.
// We do.
TEST(UcxTransportTest, WithoutErrorHandlingADemotionToTcpIsSeen) {
  const Environment tls("UCX_TLS", "all");
  const Environment posix("UCX_POSIX_ERROR_HANDLING", "n");
  const Environment sysv("UCX_SYSV_ERROR_HANDLING", "n");
  const std::string link = Link();
  EXPECT_TRUE(absl::StrContains(link, "ucx tcp/")) << link;
}

TEST(UcxTransportTest, TheEnvironmentChoosesTheWay) {
  const Environment tls("UCX_TLS", "posix,self");
  const std::string link = Link();
  EXPECT_TRUE(absl::StrContains(link, "posix/memory")) << link;
}

TEST(UcxTransportTest, ASeatThatIsNoneIsRefused) {
  JobSeat seat = {.self = WorkerId(2), .workers = 2, .rendezvous = MakeLocalRendezvous()};
  EXPECT_EQ(CreateUcxTransport(seat, SmallOptions()).status().code(),
            absl::StatusCode::kInvalidArgument);
  seat.self = WorkerId(0);
  seat.rendezvous = nullptr;
  EXPECT_EQ(CreateUcxTransport(seat, SmallOptions()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// By the ways of a GPU's memory, in memory that the host can read. Both workers have one GPU.
TEST(UcxTransportTest, PayloadInMemoryOfAGpu) {
  if (const absl::Status there = NcclAvailable(); !there.ok()) GTEST_SKIP() << there.message();
  RZ_ASSIGN(PayloadMemory memory, MakeCudaMemory(0, CudaPlace::kManaged));
  memory.kind = MemoryKind::kCuda;
  TransportOptions options = SmallOptions();
  options.memory = MemoryKind::kCuda;
  const auto made =
      MakeTogether({options, options}, [&](const JobSeat& seat, const TransportOptions& each) {
        return CreateUcxTransport(seat, each, {.memory = memory});
      });
  ASSERT_TRUE(made.ok()) << made.status();
  uint64_t tag = 0;
  for (const int floats : {1, 16, 1024, 5000}) {
    for (const int from : {0, 1}) {
      PassOne(*(*made)[from], *(*made)[1 - from], {0, tag++}, floats);
    }
  }
}

TEST(UcxTransportTest, MemoryOfAnotherKindThanAskedForIsRefused) {
  PayloadMemory memory = HostMemory();
  memory.kind = MemoryKind::kCuda;
  const auto made =
      CreateUcxTransport({.rendezvous = MakeLocalRendezvous()}, SmallOptions(), {.memory = memory});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << made.status();
}

// The endpoint says who is here, the seat who there is.
TEST(UcxTransportTest, AnEndpointOfAnotherSeatIsRefused) {
  for (const int workers : {1, 3}) {
    RZ_ASSIGN(auto endpoints, MakeShmEndpoints(2));
    const JobSeat seat = {
        .self = WorkerId(0), .workers = workers, .rendezvous = MakeLocalRendezvous()};
    const auto made = CreateMixedTransport(seat, std::move(endpoints[0]), SmallOptions());
    EXPECT_THAT(made, Fails(absl::StatusCode::kInvalidArgument, absl::StrCat("of ", workers)));
  }
}

}  // namespace
}  // namespace ringzero
