// A worker over UCX is killed or stopped, idle or in the middle of large payloads: all others end
// in time and name it, and nothing is left behind.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "p2p/ucx_transport.h"
#include "p2p/unique_fd.h"
#include "tests/p2p/cluster.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kWorkers = 3;
constexpr int kVictim = 1;
constexpr size_t kLargeBytes = 16 << 20;
constexpr milliseconds kPeerTimeout(1000);
// After peer_timeout; for two busy cores.
constexpr milliseconds kSlack(1500);

// A folder with one file per key.
class FolderRendezvous final : public Rendezvous {
 public:
  explicit FolderRendezvous(std::string folder) : folder_(std::move(folder)) {}
  std::string name() const override { return "folder " + folder_; }
  absl::Status Put(const std::string& key, const std::string& value) override {
    const std::string path = PathOf(key);
    std::ofstream(path + ".new", std::ios::binary) << value;
    std::filesystem::rename(path + ".new", path);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(const std::string& key, milliseconds limit) override {
    const auto until = Clock::now() + limit;
    while (!std::filesystem::exists(PathOf(key))) {
      if (Clock::now() > until) return absl::DeadlineExceededError("nobody put " + key);
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::ifstream file(PathOf(key), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  std::string PathOf(const std::string& key) const {
    std::string name = key;
    for (char& each : name) each = each == '/' ? '-' : each;
    return folder_ + "/" + name;
  }
  const std::string folder_;
};

enum class Strike { kKill, kStop };
enum class Traffic { kIdle, kLarge };
enum class Way { kSharedMemory, kTcp };

struct Cell {
  Strike strike;
  Traffic traffic;
  Way way;
};

std::string NameOf(const Cell& cell) {
  return absl::StrCat(cell.strike == Strike::kKill ? "kill" : "stop",
                      cell.traffic == Traffic::kIdle ? "_idle" : "_large",
                      cell.way == Way::kTcp ? "_tcp" : "_shm");
}

// Buffers that go round and round: whoever gets one passes it on.
class Carousel {
 public:
  explicit Carousel(Transport& transport) : transport_(transport) {}
  void Begin() {
    for (int i = 0; i < 2; ++i) {
      absl::StatusOr<Buffer> buffer = transport_.Allocate(kLargeBytes, MemoryUse::kSums);
      if (buffer.ok()) Send(*std::move(buffer));
      Expect();
    }
  }

 private:
  WorkerId Beside(int distance) const {
    return WorkerId((transport_.self().value + distance + kWorkers) % kWorkers);
  }
  void Send(Buffer buffer) {
    transport_.Give(Beside(1), {1, sent_++}, std::move(buffer)).IgnoreError();
  }
  void Expect() {
    transport_
        .ExpectOwned(Beside(-1), {1, expected_++}, kLargeBytes,
                     [this](absl::StatusOr<Buffer> buffer) {
                       if (!buffer.ok()) return;
                       Send(*std::move(buffer));
                       Expect();
                     })
        .IgnoreError();
  }
  Transport& transport_;
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> expected_{0};
};

// In a child: says "ready", then what ended it and when.
int Work(const JobSeat& seat, const Cell& cell, const UcxOptions& ucx, int report) {
  TransportOptions options = SmallOptions();
  options.sum_bytes = options.received_sum_bytes = 16 * kLargeBytes;
  options.peer_timeout = kPeerTimeout;
  absl::StatusOr<std::unique_ptr<Transport>> transport = CreateUcxTransport(seat, options, ucx);
  std::string words = transport.ok() ? "ready\n" : transport.status().ToString() + "\n";
  if (write(report, words.data(), words.size()) < 0 || !transport.ok()) return 1;
  Carousel carousel(**transport);
  if (cell.traffic == Traffic::kLarge) carousel.Begin();
  while ((*transport)->status().ok()) std::this_thread::sleep_for(milliseconds(1));
  words = absl::StrCat(Clock::now().time_since_epoch().count(), " ",
                       (*transport)->status().ToString(), "\n");
  if (write(report, words.data(), words.size()) < 0) return 1;
  transport->reset();  // which must not hang either
  return 0;
}

struct Child {
  pid_t pid = -1;
  UniqueFd report;
};

// One line, or "" when none comes within the limit or its end is closed.
std::string ReadLine(const Child& child, milliseconds limit) {
  const auto until = Clock::now() + limit;
  std::string line;
  while (Clock::now() < until) {
    pollfd event = {child.report.get(), POLLIN, 0};
    if (poll(&event, 1, 10) <= 0) continue;
    char letter = 0;
    if (read(child.report.get(), &letter, 1) != 1) return "";
    if (letter == '\n') return line;
    line += letter;
  }
  return "";
}

bool ReapWithin(pid_t pid, milliseconds limit, int& status) {
  const auto until = Clock::now() + limit;
  while (Clock::now() < until) {
    if (waitpid(pid, &status, WNOHANG) == pid) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

class UcxDeath : public testing::TestWithParam<Cell> {
 protected:
  void SetUp() override {
    if (UcxVersion().empty()) GTEST_SKIP() << "this build has no UCX";
  }

  std::vector<Child> Launch(const std::string& folder) {
    const Cell cell = GetParam();
    JobSeat seat = {.workers = kWorkers,
                    .secret = "of this test",
                    .rendezvous = std::make_shared<FolderRendezvous>(folder)};
    UcxOptions ucx;
    if (cell.way == Way::kTcp) {
      ucx.settings = {{"TLS", "tcp,self"}};
    } else {
      absl::StatusOr<std::shared_ptr<PulseBoard>> board = PulseBoard::Create(kWorkers);
      EXPECT_TRUE(board.ok());
      ucx.board = *board;
    }
    std::vector<Child> children(kWorkers);
    for (int w = 0; w < kWorkers; ++w) {
      int ends[2];
      EXPECT_EQ(pipe(ends), 0);
      children[w].pid = fork();
      if (children[w].pid == 0) {
        seat.self = WorkerId(w);
        _exit(Work(seat, cell, ucx, ends[1]));
      }
      close(ends[1]);
      children[w].report = UniqueFd(ends[0]);
    }
    return children;
  }

  void StrikeOnce(milliseconds after) {
    std::string folder = testing::TempDir() + "ringzero-ucx-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    std::vector<Child> children = Launch(folder);
    for (const Child& child : children) ASSERT_EQ(ReadLine(child, kDeadline), "ready");
    std::this_thread::sleep_for(after);
    const auto struck = Clock::now();
    const bool kills = GetParam().strike == Strike::kKill;
    kill(children[kVictim].pid, kills ? SIGKILL : SIGSTOP);
    int status = 0;
    // At once: a zombie counts as alive, for UCX too.
    if (kills) waitpid(children[kVictim].pid, &status, 0);
    for (int w = 0; w < kWorkers; ++w) {
      if (w == kVictim) continue;
      const std::string line = ReadLine(children[w], kPeerTimeout + kSlack);
      const int64_t at = std::atoll(line.c_str());
      EXPECT_NE(line.find(absl::StrCat("worker ", kVictim)), std::string::npos)
          << "worker " << w << ": '" << line << "'";
      const bool says_how = line.find(kills ? "died" : "no sign of life") != std::string::npos ||
                            line.find("no sign of life") != std::string::npos;
      EXPECT_TRUE(says_how) << line;
      EXPECT_LT(Clock::duration(at) - struck.time_since_epoch(), kPeerTimeout + kSlack) << line;
    }
    for (int w = 0; w < kWorkers; ++w) {
      if (w == kVictim) continue;
      // The farewell to the victim is not waited for.
      EXPECT_TRUE(ReapWithin(children[w].pid, std::chrono::seconds(5), status)) << "worker " << w;
      EXPECT_EQ(status, 0) << "worker " << w;
      kill(children[w].pid, SIGKILL);
    }
    if (!kills) {
      kill(children[kVictim].pid, SIGKILL);
      waitpid(children[kVictim].pid, &status, 0);
    }
    std::filesystem::remove_all(folder);
  }
};

TEST_P(UcxDeath, AllOthersEndInTimeAndNameIt) {
  const int points = std::getenv("RINGZERO_TEST_FULL") != nullptr ? 20 : 3;
  std::mt19937 random(std::random_device{}());
  for (int point = 0; point < points; ++point) {
    const milliseconds after(random() % 100);
    SCOPED_TRACE(absl::StrCat("struck after ", after.count(), " ms"));
    StrikeOnce(after);
    if (HasFailure()) return;
  }
}

std::vector<Cell> AllCells() {
  std::vector<Cell> cells;
  for (const Strike strike : {Strike::kKill, Strike::kStop}) {
    for (const Traffic traffic : {Traffic::kIdle, Traffic::kLarge}) {
      for (const Way way : {Way::kSharedMemory, Way::kTcp}) cells.push_back({strike, traffic, way});
    }
  }
  return cells;
}

INSTANTIATE_TEST_SUITE_P(All, UcxDeath, testing::ValuesIn(AllCells()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace ringzero
