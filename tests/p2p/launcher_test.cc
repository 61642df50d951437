// Processes started, heard, ended: reports, root causes, signals, and nothing left behind.
#include "p2p/job/launcher.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/shm/shm_transport.h"
#include "tests/p2p/cluster.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using Result = absl::StatusOr<std::string>;
using Results = absl::StatusOr<std::vector<std::string>>;

int CountOpenFiles() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Gone, or a zombie that only waits for its new parent.
bool IsGone(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return true;
  const size_t name_end = line.rfind(')');
  return name_end == std::string::npos || line[name_end + 2] == 'Z';
}

class LauncherTest : public testing::Test {
 protected:
  void SetUp() override { open_files_ = CountOpenFiles(); }
  void TearDown() override {
    EXPECT_EQ(CountOpenFiles(), open_files_);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
  }

 private:
  int open_files_ = 0;
};

Results Launch(int workers, const WorkerBody& body) {
  return LaunchProcesses({.workers = workers}, body);
}

[[noreturn]] void SleepForever() {
  while (true) pause();
}

absl::StatusOr<std::unique_ptr<Transport>> Connect(WorkerContext& context) {
  return CreateShmTransport(context.EndpointTaker()(), SmallOptions());
}

// Waits for a message that never comes.
Result WaitForNeighbour(WorkerContext& context) {
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, Connect(context));
  RZ_RETURN_IF_ERROR(context.Report("pid", absl::StrCat(getpid())));
  const WorkerId before((context.self().value + context.workers() - 1) % context.workers());
  Buffer block = Empty(*transport);
  Ends ends;
  RZ_RETURN_IF_ERROR(transport->Post(before, {0, 0}, block.as<std::byte>(), ends.Next()));
  return Annotate(ends.Take(), "iteration 7");
}

TEST_F(LauncherTest, HandsSignalsOn) {
  sigset_t mask, before;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR1);
  sigprocmask(SIG_BLOCK, &mask, &before);
  int ready = 0;
  const LaunchOptions options{.workers = 2,
                              .on_report =
                                  [&](WorkerId, const std::string&, const std::string&) {
                                    if (++ready == 2) kill(getpid(), SIGUSR1);
                                  },
                              .pass_on = {SIGUSR1}};
  const Results results = LaunchProcesses(options, [&](WorkerContext& context) -> Result {
    RZ_RETURN_IF_ERROR(context.Report("note", "ready"));
    int got = 0;
    sigwait(&mask, &got);
    return absl::StrCat(got);
  });
  sigprocmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(*results, (std::vector<std::string>{"10", "10"}));
}

TEST_F(LauncherTest, GathersResultsAndReportsOfAnySize) {
  std::map<int, std::vector<std::string>> reports;
  const auto on_report = [&](WorkerId worker, const std::string& kind, const std::string& text) {
    EXPECT_EQ(kind, "progress");
    reports[worker.value].push_back(text);
  };
  const Results results =
      LaunchProcesses({.workers = 3, .on_report = on_report}, [](WorkerContext& context) -> Result {
        for (int i = 0; i < 100; ++i) {
          RZ_RETURN_IF_ERROR(context.Report("progress", absl::StrCat(i)));
        }
        return std::string(size_t{1} << (20 * context.self().value / 2), 'a');
      });
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 3u);
  for (int w = 0; w < 3; ++w) {
    EXPECT_EQ((*results)[w].size(), size_t{1} << (10 * w));
    ASSERT_EQ(reports[w].size(), 100u);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(reports[w][i], absl::StrCat(i));
  }
}

// A small and a large sum go around, and a word about the first worker's memory; returns what the
// worker saw there and in the sums.
Result RunRing(WorkerContext& context) {
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, Connect(context));
  const int self = context.self().value;
  const WorkerId next((self + 1) % context.workers());
  const WorkerId before((self + context.workers() - 1) % context.workers());
  std::vector<Buffer> sums, back;
  Ends sent, arrived, word;
  const auto send = [&]() -> absl::Status {
    for (uint8_t kind = 0; kind < 2; ++kind) {
      for (float& value : sums[kind].as<float>()) value += 5;
      RZ_RETURN_IF_ERROR(transport->Send(next, {kind, 0}, sums[kind].as<std::byte>(), sent.Next()));
    }
    return transport->SendWord(next, {2, 0});
  };
  RZ_RETURN_IF_ERROR(transport->ExpectWord(before, {2, 0}, word.Next()));
  for (const int values : {16, 20'000}) {
    sums.push_back(Filled(*transport, MemoryUse::kSums, values, 0));
    back.push_back(Empty(*transport, values));
    const auto kind = static_cast<uint8_t>(back.size() - 1);
    Buffer& into = self == 0 ? back[kind] : sums[kind];
    RZ_RETURN_IF_ERROR(transport->Post(before, {kind, 0}, into.as<std::byte>(), arrived.Next()));
  }
  if (self == 0) RZ_RETURN_IF_ERROR(send());
  for (int i = 0; i < 2; ++i) RZ_RETURN_IF_ERROR(arrived.Take());
  RZ_RETURN_IF_ERROR(word.Take());
  if (self != 0) RZ_RETURN_IF_ERROR(send());
  for (int i = 0; i < 2; ++i) RZ_RETURN_IF_ERROR(sent.Take());
  const MappedMemory seen = transport->MemoryOf(before, MemoryUse::kSums);
  std::vector<Buffer>& last = self == 0 ? back : sums;
  RZ_RETURN_IF_ERROR(transport->Close());
  return absl::StrCat(last[0].as<float>()[0], " ", last[1].as<float>()[1] - 1, " ",
                      *reinterpret_cast<const float*>(seen.bytes.data()));
}

TEST_F(LauncherTest, WorkersShareMemory) {
  RZ_ASSIGN(const auto results, Launch(4, RunRing));
  EXPECT_EQ(results, (std::vector<std::string>{"20 20 20", "10 10 5", "15 15 10", "20 20 15"}));
}

TEST_F(LauncherTest, OneWorkerIsARing) {
  RZ_ASSIGN(const auto results, Launch(1, RunRing));
  EXPECT_EQ(results, (std::vector<std::string>{"5 5 5"}));
}

TEST_F(LauncherTest, TheRootCauseWinsNotItsEchoes) {
  const Results results = Launch(4, [](WorkerContext& context) -> Result {
    if (context.self().value != 2) return WaitForNeighbour(context);
    RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, Connect(context));
    transport->Abort(absl::DataLossError("bad file"));
    // Comes to tell after the echoes.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return transport->status();
  });
  EXPECT_EQ(results.status(), absl::DataLossError("worker 2: bad file"));
}

TEST_F(LauncherTest, AnEchoNamesACauseThatNeverReports) {
  const Results results = Launch(3, [](WorkerContext& context) -> Result {
    if (context.self().value != 2) return WaitForNeighbour(context);
    RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, Connect(context));
    transport->Abort(absl::DataLossError("bad file"));
    SleepForever();
  });
  EXPECT_EQ(results.status(), absl::DataLossError("worker 2: bad file"));
}

TEST_F(LauncherTest, AKilledWorkerIsNamedAndEndsAll) {
  const auto start = std::chrono::steady_clock::now();
  const Results results = Launch(4, [](WorkerContext& context) -> Result {
    if (context.self().value == 2) {
      const absl::StatusOr<std::unique_ptr<Transport>> transport = Connect(context);
      kill(getpid(), SIGKILL);
    }
    return WaitForNeighbour(context);
  });
  EXPECT_EQ(results.status(), absl::UnavailableError("worker 2 was killed by signal 9 (Killed)"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, kDeadline);
}

TEST_F(LauncherTest, AllWhoAreKilledAreNamed) {
  const Results results =
      LaunchProcesses({.workers = 4, .grace = kDeadline}, [](WorkerContext& context) -> Result {
        if (context.self().value % 2 == 0) return WaitForNeighbour(context);
        const absl::StatusOr<std::unique_ptr<Transport>> transport = Connect(context);
        kill(getpid(), SIGKILL);
        return "";
      });
  for (const char* const worker : {"worker 1", "worker 3"}) {
    EXPECT_THAT(results, Fails(absl::StatusCode::kUnavailable,
                               absl::StrCat(worker, " was killed by signal 9 (Killed)")));
  }
}

std::string ContentsOf(const std::string& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  return word;
}

TEST_F(LauncherTest, TheKernelEndsAWorkerBeforeItsLauncherForLackOfMemory) {
  constexpr char kScore[] = "/proc/self/oom_score_adj";
  const int mine = std::atoi(ContentsOf(kScore).c_str());
  if (mine == -1000 || mine == 1000) GTEST_SKIP() << kScore << " is " << mine;
  const Results results =
      LaunchProcesses({.workers = 1}, [&](WorkerContext&) -> Result { return ContentsOf(kScore); });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_GT(std::atoi((*results)[0].c_str()), mine);
}

// A control group of either version with so much memory and no swap; empty where we may make none.
std::string MakeMemoryGroup(int64_t bytes) {
  for (const auto& [root, limits] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"/sys/fs/cgroup/memory", {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}},
           {"/sys/fs/cgroup", {"memory.max", "memory.swap.max"}}}) {
    const std::string group = absl::StrCat(root, "/ringzero-test-", getpid());
    if (mkdir(group.c_str(), 0700) != 0) continue;
    if (std::ofstream(absl::StrCat(group, "/", limits[0])) << bytes << std::flush) {
      std::ofstream(absl::StrCat(group, "/", limits[1]))
          << (limits[1] == "memory.swap.max" ? 0 : bytes);
      return group;
    }
    rmdir(group.c_str());
  }
  return "";
}

TEST_F(LauncherTest, LackOfMemoryIsNamed) {
  constexpr int64_t kBytes = 128 << 20;
  const std::string group = MakeMemoryGroup(kBytes);
  if (group.empty()) GTEST_SKIP() << "no control group for memory can be made here";
  const pid_t launcher = fork();
  if (launcher == 0) {
    std::ofstream(group + "/cgroup.procs") << getpid() << std::flush;
    const Results results = Launch(2, [](WorkerContext& context) -> Result {
      if (context.self().value == 0) return WaitForNeighbour(context);
      void* const memory =
          mmap(nullptr, 4 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      std::memset(memory, 1, 4 * kBytes);
      return "there was enough";
    });
    const std::string wanted = absl::StrCat(
        "worker 1 was killed by signal 9 (Killed): out of memory, says the kernel (oom_kill in ",
        group, "/");
    std::fprintf(stderr, "%s\n", results.status().ToString().c_str());
    _exit(absl::StartsWith(results.status().message(), wanted) ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(Eventually([&] { return rmdir(group.c_str()) == 0; }));
}

TEST_F(LauncherTest, AThreadThatCannotBeMadeIsNamed) {
  const Results results = Launch(1, [](WorkerContext&) -> Result {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  EXPECT_THAT(results,
              Fails(absl::StatusCode::kResourceExhausted, "worker 0: cannot make a thread ("));
}

TEST_F(LauncherTest, AnExitWithoutAResultIsAFailure) {
  for (const int code : {0, 3}) {
    const Results results = Launch(2, [&](WorkerContext& context) -> Result {
      if (context.self().value == 1) _exit(code);
      return WaitForNeighbour(context);
    });
    EXPECT_EQ(results.status(), absl::UnavailableError(absl::StrCat(
                                    "worker 1 exited with code ", code, " and without a result")));
  }
}

TEST_F(LauncherTest, AStrayWriteIntoParametersKillsItsWriterOnly) {
  const Results results = Launch(2, [](WorkerContext& context) -> Result {
    signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit instead
    RZ_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, Connect(context));
    if (context.self().value == 0) {
      RZ_RETURN_IF_ERROR(transport->SendWord(WorkerId(1), {0, 0}));
      Eventually([&] { return !transport->status().ok(); });
      return transport->status();
    }
    Ends word;
    RZ_RETURN_IF_ERROR(transport->ExpectWord(WorkerId(0), {0, 0}, word.Next()));
    RZ_RETURN_IF_ERROR(word.Take());
    transport->MemoryOf(WorkerId(0), MemoryUse::kParameters).bytes[0] = std::byte{1};
    return "written";
  });
  EXPECT_EQ(results.status(),
            absl::UnavailableError("worker 1 was killed by signal 11 (Segmentation fault)"));
}

TEST_F(LauncherTest, AWorkerThatIgnoresEverythingIsKilled) {
  const Results results = Launch(2, [](WorkerContext& context) -> Result {
    if (context.self().value == 0) return absl::InternalError("no");
    signal(SIGTERM, SIG_IGN);
    SleepForever();
  });
  EXPECT_EQ(results.status(), absl::InternalError("worker 0: no"));
}

TEST_F(LauncherTest, RefusesThreadsAndBadNumbers) {
  const auto body = [](WorkerContext&) -> Result { return ""; };
  EXPECT_EQ(Launch(0, body).status().code(), absl::StatusCode::kInvalidArgument);
#if !defined(__SANITIZE_THREAD__)
  Waiter<std::string> end;
  std::thread other([&] { end.Take(); });
  EXPECT_EQ(Launch(1, body).status().code(), absl::StatusCode::kFailedPrecondition);
  end.Callback()("");
  other.join();
#endif
}

// Runs a launch in a process of its own, waits until all workers are up, then sends that process a
// signal. Returns how it ended; every worker must be gone.
int SignalALaunch(int signal_number, WorkerBody body) {
  int channel[2];
  EXPECT_EQ(pipe(channel), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    close(channel[0]);
    signal(SIGHUP, SIG_DFL);  // these tests may run under nohup
    const Results results =
        LaunchProcesses({.workers = 3,
                         .on_report =
                             [&](WorkerId, const std::string&, const std::string& text) {
                               const pid_t pid = std::atoi(text.c_str());
                               if (write(channel[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(2);
                             }},
                        body);
    const std::string words =
        absl::StrCat("interrupted by signal ", signal_number, " (", strsignal(signal_number), ")");
    _exit(results.status() == absl::CancelledError(words) ? 0 : 1);
  }
  close(channel[1]);
  std::vector<pid_t> pids(3);
  for (pid_t& pid : pids) EXPECT_EQ(read(channel[0], &pid, sizeof(pid)), ssize_t{sizeof(pid)});
  EXPECT_EQ(kill(launcher, signal_number), 0);
  int status = 0;
  EXPECT_EQ(waitpid(launcher, &status, 0), launcher);
  for (const pid_t pid : pids) EXPECT_TRUE(Eventually([&] { return IsGone(pid); })) << pid;
  close(channel[0]);
  return status;
}

TEST_F(LauncherTest, SignalsToTheLauncherEndAll) {
  for (const int signal_number : {SIGTERM, SIGINT, SIGHUP}) {
    const int status = SignalALaunch(signal_number, WaitForNeighbour);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

TEST_F(LauncherTest, SignalsEndWorkersThatIgnoreThem) {
  const int status = SignalALaunch(SIGTERM, [](WorkerContext& context) -> Result {
    signal(SIGTERM, SIG_IGN);
    return WaitForNeighbour(context);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// They are told, return what they have, and are not ended; who does not return is, and there are no
// results. A second signal does not wait for that.
TEST_F(LauncherTest, InterruptedWorkersReturnWhatTheyHave) {
  sigset_t mask, before;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR1);
  sigprocmask(SIG_BLOCK, &mask, &before);
  enum class Case { kAnswers, kSilent, kAgain };
  for (const Case each : {Case::kAnswers, Case::kSilent, Case::kAgain}) {
    int ready = 0, by = 0;
    const auto patience = each == Case::kSilent ? std::chrono::milliseconds(50)
                                                : std::chrono::milliseconds(std::chrono::hours(1));
    const LaunchOptions options{.workers = 2,
                                .on_report =
                                    [&](WorkerId, const std::string& kind, const std::string&) {
                                      if (kind == "ready" && ++ready == 2) kill(getpid(), SIGINT);
                                      if (kind == "told" && each == Case::kAgain)
                                        kill(getpid(), SIGINT);
                                    },
                                .interrupt = {.signal = SIGUSR1, .patience = patience, .by = &by}};
    const Results results = LaunchProcesses(options, [&](WorkerContext& context) -> Result {
      RZ_RETURN_IF_ERROR(context.Report("ready", ""));
      int got = 0;
      sigwait(&mask, &got);
      while (each != Case::kAnswers && context.self().value == 1) {
        RZ_RETURN_IF_ERROR(context.Report("told", ""));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      return absl::StrCat("done by ", got);
    });
    EXPECT_EQ(by, SIGINT);
    if (each == Case::kAnswers) {
      ASSERT_TRUE(results.ok()) << results.status();
      EXPECT_EQ(*results, (std::vector<std::string>{"done by 10", "done by 10"}));
    } else {
      EXPECT_EQ(results.status(), InterruptedBy(SIGINT));
    }
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(LauncherTest, WorkersDieWithTheirLauncher) {
  const int status = SignalALaunch(SIGKILL, WaitForNeighbour);
  EXPECT_TRUE(WIFSIGNALED(status));
}

// What each of two workers in a seat ends with, here threads.
std::vector<Results> RunInSeats(const WorkerBody& body) {
  const std::shared_ptr<Rendezvous> meeting = MakeLocalRendezvous();
  std::vector<Results> ends(2, absl::UnknownError("not run"));
  const auto run = [&](int w) {
    ends[w] =
        RunJob({.seat = JobSeat{.self = WorkerId(w), .workers = 2, .rendezvous = meeting}}, body);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  return ends;
}

TEST(RunJobTest, WorkersInSeatsAgreeAndWorker0HasAllResults) {
  using Statement = absl::StatusOr<std::vector<AgreementSection>>;
  const Statement same = std::vector<AgreementSection>{{"data", "samples = 7\n"}};
  const absl::Status failure = absl::DataLossError("bad file");
  std::vector<Results> ends = RunInSeats([&](WorkerContext& context) -> Result {
    EXPECT_FALSE(context.launched());
    RZ_RETURN_IF_ERROR(context.Agree(same));
    return absl::StrCat("of ", context.self().value);
  });
  ASSERT_TRUE(ends[0].ok() && ends[1].ok()) << ends[0].status() << ends[1].status();
  EXPECT_EQ(*ends[0], (std::vector<std::string>{"of 0", "of 1"}));
  EXPECT_EQ(*ends[1], std::vector<std::string>{"of 1"});
  for (const bool before : {true, false}) {  // it has agreed
    ends = RunInSeats([&](WorkerContext& context) -> Result {
      const bool fails = context.self().value == 1;
      RZ_RETURN_IF_ERROR(context.Agree(fails && before ? Statement(failure) : same));
      return fails ? Result(failure) : "fine";
    });
    EXPECT_EQ(ends[0].status(), absl::DataLossError("worker 1: bad file"));
    EXPECT_EQ(ends[1].status(), failure);
  }
}

}  // namespace
}  // namespace ringzero
