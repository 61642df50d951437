// Processes that are stopped (SIGSTOP) and go on, or not: workers, the launching process, and all.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/heartbeat.h"
#include "p2p/job/launcher.h"
#include "p2p/shm/shm_transport.h"
#include "tests/p2p/cluster.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;
using Result = absl::StatusOr<std::string>;
using Results = absl::StatusOr<std::vector<std::string>>;

constexpr std::chrono::milliseconds kTimeout(600);
constexpr std::chrono::milliseconds kAllowance(1000);  // after the timeout

Results Launch(int workers, const WorkerBody& body) {
  return LaunchProcesses({.workers = workers, .peer_timeout = kTimeout}, body);
}

absl::StatusOr<std::unique_ptr<Transport>> Connect(WorkerContext& context) {
  TransportOptions options = SmallOptions();
  options.peer_timeout = kTimeout;
  return CreateShmTransport(context.EndpointTaker()(), options);
}

// Waits for a message that never comes, from the worker before.
absl::Status WaitForNeighbour(WorkerContext& context, Transport& transport) {
  const WorkerId before((context.self().value + context.workers() - 1) % context.workers());
  Buffer block = Empty(transport);
  Ends ends;
  RZ_RETURN_IF_ERROR(transport.Post(before, {0, 0}, block.as<std::byte>(), ends.Next()));
  return ends.Take();
}

// When the culprit was stopped, as all processes see it: seconds are counted from the fault.
class Stopwatch {
 public:
  Stopwatch() : board_(*PulseBoard::Create(1)) {}
  void StopMe() {
    board_->Beat(WorkerId(0), Clock::now());
    raise(SIGSTOP);
  }
  Clock::duration Elapsed() const { return Clock::now() - *board_->LastBeat(WorkerId(0)); }

 private:
  std::shared_ptr<PulseBoard> board_;
};

constexpr char kStopped[] =
    "worker 2 was stopped by signal 19 (Stopped (signal)); peer_timeout is 0.6 s";

TEST(LauncherStopTest, AStoppedWorkerIsLostWhateverItWasDoing) {
  for (const bool connected : {false, true}) {
    Stopwatch watch;
    const Results results = Launch(4, [&](WorkerContext& context) -> Result {
      std::unique_ptr<Transport> transport;
      if (context.self().value == 2 && !connected) watch.StopMe();
      RZ_ASSIGN_OR_RETURN(transport, Connect(context));
      if (context.self().value == 2) watch.StopMe();
      return WaitForNeighbour(context, *transport);
    });
    EXPECT_EQ(results.status(), absl::UnavailableError(kStopped)) << connected;
    EXPECT_GE(watch.Elapsed(), kTimeout * 4 / 5);
    EXPECT_LT(watch.Elapsed(), kTimeout + kAllowance);
  }
}

TEST(LauncherStopTest, AWorkerThatHasNothingMoreToSayIsWatchedToo) {
  Stopwatch watch;
  const Results results = LaunchProcesses(
      {.workers = 3, .peer_timeout = kTimeout}, [&](WorkerContext& context) -> Result {
        RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, Connect(context));
        RZ_RETURN_IF_ERROR(transport->Close());
        transport.reset();
        if (context.self().value == 2) watch.StopMe();
        return "done";
      });
  EXPECT_EQ(results.status(), absl::UnavailableError(kStopped));
  EXPECT_LT(watch.Elapsed(), kTimeout + kAllowance);
}

// A process of its own that does something to this one after a while.
void Later(std::chrono::milliseconds time, const std::function<void(pid_t)>& what) {
  const pid_t me = getpid();
  if (fork() != 0) return;
  std::this_thread::sleep_for(time);
  what(me);
  _exit(0);
}

TEST(LauncherStopTest, AWorkerThatGoesOnInTimeIsNotLost) {
  const Results results = LaunchProcesses(
      {.workers = 3, .peer_timeout = kTimeout}, [](WorkerContext& context) -> Result {
        // Stopped as often as it takes to be longer than the timeout in all.
        if (context.self().value == 2) {
          for (int i = 0; i < 5; ++i) {
            Later(kTimeout / 4, [](pid_t me) { kill(me, SIGCONT); });
            raise(SIGSTOP);
            wait(nullptr);
          }
        }
        RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, Connect(context));
        if (context.self().value == 2) {
          Later(kTimeout / 4, [](pid_t me) { kill(me, SIGCONT); });
          raise(SIGSTOP);
          wait(nullptr);
        }
        RZ_RETURN_IF_ERROR(transport->Close());
        return "done";
      });
  EXPECT_TRUE(results.ok()) << results.status();
}

// Bytes between the test and workers several processes away.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void Put(int bytes) {
    for (int i = 0; i < bytes; ++i) EXPECT_EQ(write(ends_[1], "x", 1), 1);
  }
  // False when they have not come within a minute.
  bool Take(int bytes) {
    for (int i = 0; i < bytes; ++i) {
      pollfd ready = {ends_[0], POLLIN, 0};
      char byte = 0;
      // Worker 0 handles SIGCONT, and a handled signal ends a poll.
      if (TEMP_FAILURE_RETRY(poll(&ready, 1, 60000)) != 1) return false;
      if (read(ends_[0], &byte, 1) != 1) return false;
    }
    return true;
  }

 private:
  int ends_[2] = {-1, -1};
};

// Three workers, launched by a process that is the first of its own group.
class LaunchInAGroup {
 public:
  static constexpr int kWorkers = 3;

  explicit LaunchInAGroup(const WorkerBody& body) {
    launcher_ = fork();
    if (launcher_ != 0) return;
    setpgid(0, 0);
    const Results results = Launch(kWorkers, body);
    if (!results.ok()) std::fprintf(stderr, "%s\n", results.status().ToString().c_str());
    _exit(results.ok() ? 0 : 1);
  }
  ~LaunchInAGroup() {
    if (!ended_) kill(-launcher_, SIGKILL);
  }
  void Signal(int number) { EXPECT_EQ(kill(launcher_, number), 0); }
  void SignalAll(int number) { EXPECT_EQ(kill(-launcher_, number), 0); }
  bool Succeeds() {
    int status = 0;
    EXPECT_EQ(waitpid(launcher_, &status, 0), launcher_);
    ended_ = true;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t launcher_ = -1;
  bool ended_ = false;
};

TEST(LauncherStopTest, AStoppedLauncherHoldsNobodyUp) {
  Pipe to_test;
  Pipe to_workers;
  LaunchInAGroup launch([&](WorkerContext& context) -> Result {
    RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, Connect(context));
    to_test.Put(1);
    if (!to_workers.Take(1)) return absl::InternalError("the launching process was not stopped");
    // Far more than the socket takes, and then more than is kept.
    const std::string line(1000, 'x');
    absl::Status reported;
    for (int i = 0; i < 4000; ++i) reported = context.Report("note", line);
    if (reported.code() != absl::StatusCode::kResourceExhausted) {
      return absl::InternalError("the launching process goes on");
    }
    std::this_thread::sleep_for(3 * kTimeout);
    RZ_RETURN_IF_ERROR(transport->Close());
    transport.reset();
    to_test.Put(1);
    return "done";
  });
  ASSERT_TRUE(to_test.Take(3));
  launch.Signal(SIGSTOP);
  to_workers.Put(3);
  EXPECT_TRUE(to_test.Take(3));
  launch.Signal(SIGCONT);
  EXPECT_TRUE(launch.Succeeds());
}

TEST(LauncherStopTest, AllStoppedTogetherGoOnTogether) {
  Pipe to_test;
  Pipe to_workers;
  LaunchInAGroup launch([&](WorkerContext& context) -> Result {
    RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, Connect(context));
    to_test.Put(1);
    if (!to_workers.Take(1)) return absl::InternalError("nothing came from the test");
    std::this_thread::sleep_for(kTimeout / 2);
    RZ_RETURN_IF_ERROR(transport->status());
    RZ_RETURN_IF_ERROR(transport->Close());
    return "done";
  });
  ASSERT_TRUE(to_test.Take(3));
  launch.SignalAll(SIGSTOP);
  std::this_thread::sleep_for(3 * kTimeout);
  launch.SignalAll(SIGCONT);
  to_workers.Put(3);
  EXPECT_TRUE(launch.Succeeds());
}

}  // namespace
}  // namespace ringzero
