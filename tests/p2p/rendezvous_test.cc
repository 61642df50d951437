// The contract over local, file and the launcher's; gathering; what a folder must not be; what the
// workers must have alike, and how a difference is said; whose failure worker 0 names.
#include "p2p/job/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/failure.h"
#include "p2p/job/hosts.h"
#include "p2p/job/join_job.h"
#include "p2p/job/launcher.h"
#include "p2p/job/store_rendezvous.h"
#include "tests/p2p/cluster.h"
#include "tests/p2p/losing_rendezvous.h"
#include "tests/p2p/rendezvous_contract.h"
#include "tests/p2p/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using std::chrono::milliseconds;
using Results = absl::StatusOr<std::vector<std::string>>;
using Joined = absl::StatusOr<std::shared_ptr<Rendezvous>>;

Results RunLocal(int workers, const RendezvousBody& body) {
  const std::shared_ptr<Rendezvous> shared = MakeLocalRendezvous();
  return RunInThreads(
      workers, [&](WorkerId) -> Joined { return shared; }, body);
}

Joined JoinFolder(const std::string& folder, const Gathering& gathering) {
  RZ_ASSIGN_OR_RETURN(std::unique_ptr<RendezvousStore> store, OpenFileStore(folder, "a job/1"));
  return GatherAt(std::move(store), gathering);
}

Results RunFile(int workers, const RendezvousBody& body) {
  const TemporaryFolder folder;
  const std::string path = folder.path("meeting");
  Results results = RunInThreads(
      workers, [&](WorkerId self) { return JoinFolder(path, {.self = self, .workers = workers}); },
      body);
  // Nothing but the folder itself is left.
  EXPECT_EQ(folder.List("meeting"), std::vector<std::string>());
  return results;
}

Results RunLaunched(int workers, const RendezvousBody& body) {
  return LaunchProcesses({.workers = workers},
                         [&](WorkerContext& context) -> absl::StatusOr<std::string> {
                           const JobSeat seat = context.Seat();
                           return body(seat.self, *seat.rendezvous);
                         });
}

INSTANTIATE_TEST_SUITE_P(All, RendezvousContract,
                         testing::Values(RendezvousImplementation{"local", RunLocal},
                                         RendezvousImplementation{"file", RunFile},
                                         RendezvousImplementation{"launcher", RunLaunched}),
                         [](const auto& info) { return info.param.name; });

TEST(JobSeatTest, ALaunchedJobHasOneSecretAndItsNextAnother) {
  const auto run = [] {
    return LaunchProcesses({.workers = 3},
                           [](WorkerContext& context) -> absl::StatusOr<std::string> {
                             const JobSeat seat = context.Seat();
                             EXPECT_EQ(seat.workers, 3);
                             EXPECT_EQ(seat.self, context.self());
                             return seat.secret;
                           });
  };
  const Results first = run();
  const Results second = run();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ((*first)[0].size(), 32u);
  EXPECT_EQ((*first)[0], (*first)[1]);
  EXPECT_EQ((*first)[0], (*first)[2]);
  EXPECT_NE((*first)[0], (*second)[0]);
}

TEST(LaunchRendezvousTest, AWaitEndsWithTheWorkerThatFails) {
  const Results results =
      LaunchProcesses({.workers = 2}, [](WorkerContext& context) -> absl::StatusOr<std::string> {
        const JobSeat seat = context.Seat();
        if (seat.self.value == 1) return absl::InvalidArgumentError("bad file");
        return seat.rendezvous->Get("never", std::chrono::minutes(1));
      });
  EXPECT_EQ(results.status(), absl::InvalidArgumentError("worker 1: bad file"));
}

class FileRendezvousTest : public testing::Test {
 protected:
  Joined Join(const Gathering& gathering) { return JoinFolder(folder_.path("meeting"), gathering); }
  absl::Status Open(const std::string& name) {
    return OpenFileStore(folder_.path(name), "7").status();
  }
  const TemporaryFolder folder_;
};

TEST_F(FileRendezvousTest, AFolderThatOthersRemoveIsMadeAgain) {
  const std::string folder = folder_.path("meeting");
  std::atomic<bool> done = false;
  std::thread remover([&] {
    // Again and again, but never so often in a row that nobody could have opened it.
    constexpr int kInARow = 20;
    for (int i = 1; !done; ++i) {
      const auto store = OpenFileStore(folder, "7");
      EXPECT_TRUE(store.ok()) << store.status();
      if (store.ok()) (*store)->Clear("");
      if (i % kInARow == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const auto store = OpenFileStore(folder, "7");
    EXPECT_TRUE(store.ok()) << store.status();
    if (!store.ok()) break;
    const absl::Status written = (*store)->Write("key", "value");
    EXPECT_TRUE(written.ok()) << written;
    if (!written.ok()) break;
  }
  done = true;
  remover.join();
}

// A worker that is there renames its drafts: one that was listed may be gone when it is copied.
void CopyOfLiveFolder(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::create_directories(to);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(from)) {
    const std::filesystem::path copy = to / std::filesystem::relative(entry.path(), from);
    std::error_code error;
    if (entry.is_directory()) {
      std::filesystem::create_directory(copy);
    } else if (!std::filesystem::copy_file(entry.path(), copy, error)) {
      EXPECT_EQ(error, std::errc::no_such_file_or_directory) << entry.path();
    }
  }
}

TEST_F(FileRendezvousTest, WhatAnEarlierStartLeftIsNotOurs) {
  // Copies of an earlier start's files lie there before anybody comes.
  {
    RZ_ASSIGN(const auto one, Join({.self = WorkerId(0), .workers = 1}));
    ASSERT_TRUE(one->Put("plan", "old").ok());
    CopyOfLiveFolder(folder_.path("meeting"), folder_.path("copy"));
  }
  std::filesystem::remove_all(folder_.path("meeting"));
  std::filesystem::rename(folder_.path("copy"), folder_.path("meeting"));
  ASSERT_EQ(chmod(folder_.path("meeting").c_str(), 0700), 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path("meeting"))) {
    ASSERT_EQ(chmod(entry.path().c_str(), 0700), 0);
  }
  const Results results = RunInThreads(
      2,
      [&](WorkerId self) -> Joined {
        // Worker 1 is there long before worker 0 clears up.
        if (self.value == 0) std::this_thread::sleep_for(milliseconds(150));
        return Join({.self = self, .workers = 2});
      },
      [](WorkerId self, Rendezvous& at) -> absl::StatusOr<std::string> {
        const absl::Status none = at.Get("plan", milliseconds(50)).status();
        EXPECT_TRUE(absl::IsDeadlineExceeded(none)) << none;
        RZ_RETURN_IF_ERROR(at.Put(absl::StrCat("mine/", self.value), "new"));
        return at.Get(absl::StrCat("mine/", 1 - self.value), std::chrono::seconds(20));
      });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(*results, std::vector<std::string>(2, "new"));
  EXPECT_EQ(folder_.List("meeting"), std::vector<std::string>());
}

TEST_F(FileRendezvousTest, MissingWorkersAreNamed) {
  const Results results = RunInThreads(
      2,
      [&](WorkerId self) {
        return Join({.self = WorkerId(self.value * 2), .workers = 4, .limit = milliseconds(300)});
      },
      [](WorkerId, Rendezvous&) { return std::string(); });
  EXPECT_THAT(results, Fails(absl::StatusCode::kDeadlineExceeded,
                             "workers 1, 3 of 4 did not come within 0.3 s"));
}

TEST_F(FileRendezvousTest, OneWorkerTwiceIsAnError) {
  std::atomic<int> refused = 0;
  RunInThreads(
      2,
      [&](WorkerId) -> Joined {
        Joined joined = Join({.self = WorkerId(1), .workers = 3, .limit = milliseconds(500)});
        if (absl::IsAlreadyExists(joined.status())) ++refused;
        return joined;
      },
      [](WorkerId, Rendezvous&) { return std::string(); })
      .IgnoreError();
  EXPECT_EQ(refused, 1);
}

TEST_F(FileRendezvousTest, WorkersThatCountDifferentlyFindOut) {
  const Results results = RunInThreads(
      2, [&](WorkerId self) { return Join({.self = self, .workers = self.value == 0 ? 2 : 3}); },
      [](WorkerId, Rendezvous&) { return std::string(); });
  // Worker 0's: it hears of it from worker 1.
  EXPECT_THAT(results, Fails(absl::StatusCode::kInvalidArgument,
                             "worker 1 was told of 3 workers, worker 0 of 2"));
}

// A worker may fail before another's first look, which cannot know of which start its words are.
TEST_F(FileRendezvousTest, WordsBeforeTheFirstLookAreKnownByTheirNumber) {
  RZ_ASSIGN(auto folder, OpenFileStore(folder_.path("meeting"), "7"));
  CheckedStore store(std::move(folder));
  ASSERT_TRUE(store.Write("alive.1", "4f failed 3 it was told of 3 workers").ok());
  Presence presence(store, {.self = WorkerId(0), .workers = 2}, "5a");
  const auto beats = [&] { return store.ReadOrEmpty("alive.0").value_or(""); };
  ASSERT_TRUE(Eventually([&] { return beats() > "5a 0"; }));  // so the first look is over
  EXPECT_EQ(presence.status(), absl::OkStatus());
  EXPECT_EQ(presence.LastWords(WorkerId(1), "77"), absl::OkStatus());
  EXPECT_THAT(presence.LastWords(WorkerId(1), "4f"),
              Fails(absl::StatusCode::kInvalidArgument, "worker 1: it was told of 3 workers"));
}

// Workers 0 and 1 wait for worker 3, who never comes; worker 2 comes and is killed.
TEST_F(FileRendezvousTest, AWorkerThatDiesWhileOthersGatherIsNamed) {
  constexpr std::chrono::seconds kPeerTimeout(2);
  std::array<absl::Status, 2> ends;
  std::thread waiting([&] {
    InThreads(2, [&](WorkerId self) {
      ends[self.value] = Join({.self = self, .workers = 4, .peer_timeout = kPeerTimeout}).status();
    });
  });
  // Worker 0 empties the folder before its first sign.
  const std::string first_sign = folder_.path("meeting/ringzero-job-a%20job%2F1/rz.alive.0");
  EXPECT_TRUE(Eventually([&] { return access(first_sign.c_str(), F_OK) == 0; }));
  RZ_ASSIGN(auto opened, OpenFileStore(folder_.path("meeting"), "a job/1"));
  CheckedStore store(std::move(opened));
  const auto sign = [&](int w) {
    return store.ReadOrEmpty(absl::StrCat(kAliveKeys, w)).value_or("");
  };
  // Between two signs of a worker it looks at all others.
  const auto expect_looks = [&] {
    for (int w = 0; w < 2; ++w) {
      for (int i = 0; i < 2; ++i) {
        const std::string before = sign(w);
        EXPECT_TRUE(Eventually([&] { return sign(w) != before; }));
      }
    }
  };
  expect_looks();
  {
    const Presence killed(store, {.self = WorkerId(2), .workers = 4}, "a number");
    EXPECT_TRUE(Eventually([&] { return !sign(2).empty(); }));
    expect_looks();
  }
  waiting.join();
  for (const absl::Status& end : ends) {
    EXPECT_THAT(end, Fails(absl::StatusCode::kUnavailable,
                           testing::StartsWith("worker 2 gave no sign of life for 2.")));
  }
}

// The worker of now never gives a sign: it is missed from the moment on at which all have come.
TEST_F(FileRendezvousTest, WhatAnEarlierStartSaidLastIsNoSignOfLife) {
  RZ_ASSIGN(auto opened, OpenFileStore(folder_.path("meeting"), "a job"));
  CheckedStore store(std::move(opened));
  const std::string self = absl::StrCat(kAliveKeys, 0), other = absl::StrCat(kAliveKeys, 1);
  for (const std::string left : {"earlier failed 13 its words", "now 7"}) {
    ASSERT_TRUE(store.Write(self, "").ok() && store.Write(other, left).ok());
    Presence presence(store, {.self = WorkerId(0), .workers = 2, .peer_timeout = milliseconds(500)},
                      "mine");
    EXPECT_TRUE(Eventually([&] {  // a second sign, which comes after the first look
      const std::string sign = store.ReadOrEmpty(self).value_or("");
      return !sign.empty() && sign != "mine 0";
    }));
    EXPECT_EQ(presence.status(), absl::OkStatus()) << left;
    presence.Know({"mine", "now"});
    EXPECT_TRUE(Eventually([&] { return !presence.status().ok(); }));
    EXPECT_THAT(presence.status(), Says("worker 1 gave no sign of life for"));
  }
}

// They have met, and one ends where the other waits for it.
TEST_F(FileRendezvousTest, WhoEndsBeforeItIsConnectedEndsTheOthers) {
  struct Case {
    std::function<void(Rendezvous&)> end;
    absl::Status other;
  };
  const std::vector<Case> cases = {
      {[](Rendezvous& at) { at.Leave(absl::NotFoundError("no such folder")); },
       absl::NotFoundError("worker 1: no such folder")},
      {[](Rendezvous&) {}, absl::UnavailableError("worker 1: it ended before it was connected")}};
  for (const Case& each : cases) {
    RunInThreads(
        2, [&](WorkerId self) { return Join({.self = self, .workers = 2}); },
        [&](WorkerId self, Rendezvous& at) -> absl::StatusOr<std::string> {
          if (self.value == 0) {
            EXPECT_EQ(at.Get("never", std::chrono::minutes(1)).status(), each.other);
          } else {
            each.end(at);
          }
          return std::string();
        },
        /*leaves=*/false)
        .IgnoreError();
  }
  // Who is connected misses nobody, and is not missed.
  const Results connected = RunInThreads(
      2,
      [&](WorkerId self) {
        return Join({.self = self, .workers = 2, .peer_timeout = milliseconds(100)});
      },
      [&](WorkerId self, Rendezvous& at) -> absl::StatusOr<std::string> {
        RZ_RETURN_IF_ERROR(at.Put(absl::StrCat("here/", self.value), ""));
        RZ_RETURN_IF_ERROR(at.Get(absl::StrCat("here/", 1 - self.value), kDeadline).status());
        at.Leave(absl::OkStatus());
        EXPECT_TRUE(absl::IsDeadlineExceeded(at.Get("never", milliseconds(300)).status()));
        return std::string();
      });
  EXPECT_TRUE(connected.ok()) << connected.status();
}

using Seats = std::vector<absl::StatusOr<JobSeat>>;

Seats JoinJobs(const std::string& folder, const std::vector<std::string>& secrets) {
  Seats seats(secrets.size(), absl::UnknownError("not run"));
  const auto workers = static_cast<int>(secrets.size());
  InThreads(workers, [&](WorkerId self) {
    seats[self.value] =
        JoinJob({.self = self, .workers = workers, .rendezvous = "file://" + folder},
                {.secret = secrets[self.value]});
  });
  return seats;
}

TEST_F(FileRendezvousTest, OneSecretIsAnotherInEachStart) {
  for (const std::string secret : {"given", ""}) {
    std::set<std::string> starts, marks;
    for (int start = 0; start < 2; ++start) {
      const Seats seats = JoinJobs(folder_.path("meeting"), {secret, secret, secret});
      for (const auto& seat : seats) {
        ASSERT_TRUE(seat.ok()) << seat.status();
        EXPECT_EQ(seat->secret, seats[0]->secret);
        EXPECT_NE(seat->secret, secret);
        EXPECT_EQ(seat->hosts, std::vector<std::string>(3, *ThisHost()));
      }
      starts.insert(seats[0]->secret);
      // What worker 0 shows of it to the others.
      marks.insert(seats[0]->rendezvous->Get("secret/0", kDeadline).value_or("none"));
      for (const auto& seat : seats) seat->rendezvous->Leave(absl::OkStatus());
    }
    EXPECT_EQ(starts.size(), 2u) << secret;
    EXPECT_EQ(marks.size(), secret.empty() ? 1u : 2u);
    EXPECT_FALSE(marks.contains("none") || marks.contains("given"));
  }
}

TEST_F(FileRendezvousTest, AWrongSecretIsBlamedOnItsWorker) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"right", "right", "wrong"}, "worker 2 has another than worker 0"},
      {{"wrong", "right", "right"}, "worker 0 has another than worker 1"},
      {{"right", "wrong"}, "worker 1 has another than worker 0"},
      {{"right", "", "right"}, "worker 1 has none, worker 0 has one"},
      {{"", "", "odd"}, "worker 2 has one, worker 0 has none"}};
  for (const auto& [secrets, words] : cases) {
    for (const auto& seat : JoinJobs(folder_.path("meeting"), secrets)) {
      EXPECT_EQ(seat.status(), absl::InvalidArgumentError("RINGZERO_JOB_SECRET: " + words));
    }
  }
}

TEST_F(FileRendezvousTest, AFolderForOthersIsRefused) {
  ASSERT_EQ(mkdir(folder_.path("open").c_str(), 0755), 0);
  EXPECT_THAT(Open("open"), Fails(absl::StatusCode::kPermissionDenied, "(mode 755); wanted 700"));

  folder_.Write("file", "x");
  EXPECT_EQ(Open("file").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Open("not/there").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenFileStore("relative", "7").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Open("new").ok());
  struct stat about = {};
  ASSERT_EQ(stat(folder_.path("new").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
}

TEST_F(FileRendezvousTest, AnotherUsersFolderIsRefused) {
  ASSERT_EQ(mkdir(folder_.path("theirs").c_str(), 0700), 0);
  if (chown(folder_.path("theirs").c_str(), geteuid() + 1, static_cast<gid_t>(-1)) != 0) {
    GTEST_SKIP() << "only root can give a folder away";
  }
  EXPECT_THAT(Open("theirs"), Fails(absl::StatusCode::kPermissionDenied, "belongs to user"));
}

// Whatever lies under a key's name: an error or as good as nothing, and quickly.
TEST_F(FileRendezvousTest, StrangersGarbageIsRefused) {
  RZ_ASSIGN(const auto joined, Join({.self = WorkerId(0), .workers = 1}));
  Rendezvous& at = *joined;
  ASSERT_TRUE(at.Put("good", "value").ok());
  std::string file;
  for (const std::string& name : folder_.List("meeting")) {
    if (absl::EndsWith(name, "good")) file = name;
  }
  ASSERT_FALSE(file.empty());
  const auto refused = [&](const std::string& what) {
    EXPECT_THAT(at.Get("good", milliseconds(50)),
                Fails(absl::StatusCode::kInvalidArgument, "'good'"))
        << what;
  };
  const std::string name = absl::StrCat("meeting/", file);
  std::ifstream in(folder_.path(name), std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  unsigned random = 12345;
  for (int i = 0; i < 300; ++i) {
    random = random * 1664525u + 1013904223u;
    std::string bad = good;
    if (i < 100) {
      bad.resize(random % good.size());  // cut
    } else if (i < 200) {
      bad[random % bad.size()] ^= static_cast<char>(1 + i % 255);  // a wrong byte
    } else {
      bad.assign(random % 5000, static_cast<char>(random >> 20));
    }
    if (bad == good) continue;
    folder_.Write(name, bad);
    refused(absl::StrCat("garbage ", i));
  }
  folder_.Write(name, std::string(10 << 20, 'x'));
  refused("ten MiB");
  std::filesystem::remove(folder_.path(name));
  std::filesystem::create_directory(folder_.path(name));
  refused("a folder");
  std::filesystem::remove(folder_.path(name));
  ASSERT_EQ(mkfifo(folder_.path(name).c_str(), 0600), 0);
  refused("a pipe that nobody writes");
  std::filesystem::remove(folder_.path(name));
  std::filesystem::create_symlink("/etc/passwd", folder_.path(name));
  refused("a link");
  // Of another key: taken from its place, it is garbage.
  ASSERT_TRUE(at.Put("other", "theirs").ok());
  std::filesystem::remove(folder_.path(name));
  std::string other = name;
  other.replace(other.rfind("good"), 4, "other");
  std::filesystem::copy_file(folder_.path(other), folder_.path(name));
  refused("another key's value");
}

TEST_F(FileRendezvousTest, GarbageWhereTheyGatherHoldsNobodyUp) {
  const std::string job = "meeting/ringzero-job-a%20job%2F1/";
  std::filesystem::create_directories(folder_.path(job));
  ASSERT_EQ(chmod(folder_.path("meeting").c_str(), 0700), 0);
  ASSERT_EQ(chmod(folder_.path(job).c_str(), 0700), 0);
  for (const char* name : {"rz.start", "rz.join.0", "rz.join.1", "rz.accepted.1"}) {
    folder_.Write(job + name, "garbage\n\0\xff garbage");
  }
  const Results results = RunInThreads(
      2, [&](WorkerId self) { return Join({.self = self, .workers = 2}); },
      [](WorkerId, Rendezvous&) { return std::string("met"); });
  ASSERT_TRUE(results.ok()) << results.status();
}

using Sections = std::vector<AgreementSection>;

// What each worker ends with. `odd` is what the last one has instead.
std::vector<absl::Status> AgreeAll(int workers, const Sections& sections, const Sections& odd) {
  const std::shared_ptr<Rendezvous> rendezvous = MakeLocalRendezvous();
  std::vector<absl::Status> ends(workers);
  InThreads(workers, [&](WorkerId self) {
    const JobSeat seat = {.self = self, .workers = workers, .rendezvous = rendezvous};
    ends[self.value] = Agree(seat, self.value == workers - 1 ? odd : sections);
  });
  return ends;
}

void ExpectAll(const std::vector<absl::Status>& ends, const std::string& words) {
  for (const absl::Status& end : ends) {
    EXPECT_EQ(end, absl::InvalidArgumentError(words));
  }
}

const Sections kOurs = {{"versions", "ringzero = 0.5\ntorch = 2.11.0\n"},
                        {"configuration", "cyclic.rule = \"dp\"\ncyclic.slack = 1\n"},
                        {"plan", "stage 0: 1 layer\nstage 1: 2 layers\n"}};

Sections Ours(int section, const std::string& text) {
  Sections sections = kOurs;
  sections[section].text = text;
  return sections;
}

TEST(AgreementTest, EqualWorkersAgree) {
  for (const absl::Status& end : AgreeAll(4, kOurs, kOurs)) EXPECT_TRUE(end.ok()) << end;
  EXPECT_TRUE(Agree({.self = WorkerId(0), .workers = 1}, kOurs).ok());
}

// Who is not that far does not have to guess why this worker ended.
TEST(AgreementTest, WhoDoesNotAgreeLeavesItsCause) {
  const auto rendezvous = std::make_shared<LosingRendezvous>();
  ASSERT_TRUE(rendezvous->Put("agreement/1", "not a statement").ok());
  const JobSeat seat = {.self = WorkerId(0), .workers = 2, .rendezvous = rendezvous};
  const absl::Status end = Agree(seat, kOurs);
  EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rendezvous->last_words(), end);
}

// Not as what the others have not told.
TEST(AgreementTest, ALostWorkerIsNamedInEveryWait) {
  const absl::Status lost = absl::UnavailableError("worker 2 gave no sign of life for 1.0 s");
  const auto rendezvous = std::make_shared<LosingRendezvous>();
  rendezvous->Lose(lost);
  const JobSeat seat = {.self = WorkerId(0), .workers = 3, .rendezvous = rendezvous};
  EXPECT_EQ(HostsOfWorkers(seat).status(), lost);
  EXPECT_EQ(InterfacesToOtherHosts(seat, {"a", "b", "c"}).status(), lost);
  EXPECT_EQ(Agree(seat, kOurs), lost);
}

TEST(AgreementTest, EverybodySaysWhatDiffersAndWhere) {
  ExpectAll(AgreeAll(3, kOurs, Ours(1, "cyclic.rule = \"dp\"\ncyclic.slack = 0\n")),
            "worker 2 has cyclic.slack = 0, worker 0 has 1 (configuration)");
  ExpectAll(AgreeAll(2, kOurs, Ours(0, "ringzero = 0.5\ntorch = 2.12.0\n")),
            "worker 1 has torch = 2.12.0, worker 0 has 2.11.0 (versions)");
  ExpectAll(AgreeAll(2, kOurs, Ours(1, "cyclic.rule = \"dp\"\ncyclic.slack = 1\nseed = 3\n")),
            "worker 1 has seed = 3, worker 0 has no such value (configuration)");
  ExpectAll(AgreeAll(2, kOurs, Ours(1, "cyclic.rule = \"dp\"\n")),
            "worker 1 has no cyclic.slack, worker 0 has cyclic.slack = 1 (configuration)");
  ExpectAll(AgreeAll(2, kOurs, Ours(2, "stage 0: 1 layer\nstage 1: 3 layers\n")),
            "worker 1 has line 2 = stage 1: 3 layers, worker 0 has stage 1: 2 layers (plan)");
  ExpectAll(AgreeAll(2, kOurs, {kOurs[0], kOurs[1]}),
            "worker 1 compares other things than worker 0: another version of ringzero?");
}

TEST(AgreementTest, WhatIsTooLongToShowIsCompared) {
  const std::string text(100'000, 'p');
  std::string other = text;
  other.back() = 'q';
  for (const absl::Status& end : AgreeAll(2, Ours(2, text), Ours(2, text))) EXPECT_TRUE(end.ok());
  ExpectAll(AgreeAll(2, Ours(2, text), Ours(2, other)),
            "worker 1's differs from worker 0's (plan)");
}

TEST(AgreementTest, WhoCannotComeSaysWhy) {
  const std::shared_ptr<Rendezvous> rendezvous = MakeLocalRendezvous();
  Disagree({.self = WorkerId(1), .workers = 2, .rendezvous = rendezvous},
           absl::NotFoundError("/data: no such folder"));
  EXPECT_EQ(Agree({.self = WorkerId(0), .workers = 2, .rendezvous = rendezvous}, kOurs),
            absl::NotFoundError("worker 1: /data: no such folder"));
}

TEST(AgreementTest, GarbageIsRefused) {
  using Garbage = std::pair<std::string, std::string>;  // a head, and a first part
  for (const auto& [head, part] :
       {Garbage("", ""), Garbage("x", ""), Garbage("0", ""), Garbage("0 x", ""),
        Garbage("0 1 2", ""), Garbage("17 0", ""), Garbage("-1 0", ""), Garbage("0 1", "x"),
        Garbage("0 1", "5:plan"), Garbage("0 1", "4:plan"),
        Garbage("0 1", "99999999999999999999:x")}) {
    const std::shared_ptr<Rendezvous> rendezvous = MakeLocalRendezvous();
    ASSERT_TRUE(rendezvous->Put("agreement/1", head).ok());
    ASSERT_TRUE(rendezvous->Put("agreement/1/0", part).ok());
    const absl::Status end =
        Agree({.self = WorkerId(0), .workers = 2, .rendezvous = rendezvous}, kOurs);
    EXPECT_THAT(end, Fails(absl::StatusCode::kInvalidArgument, "worker 1's statement"))
        << head << ", " << part;
  }
}

TEST(AgreementTest, AMissingWorkerIsADeadline) {
  const JobSeat seat = {.self = WorkerId(0),
                        .workers = 2,
                        .rendezvous = MakeLocalRendezvous(),
                        .join_limit = std::chrono::milliseconds(50)};
  const absl::Status missing = Agree(seat, kOurs);
  EXPECT_THAT(missing, Fails(absl::StatusCode::kDeadlineExceeded,
                             testing::StartsWith("worker 1 has stated nothing: ")));
}

using Result = absl::StatusOr<std::string>;

// What worker 0 ends with.
Results ShareAll(const std::vector<Result>& each) {
  const std::shared_ptr<Rendezvous> rendezvous = MakeLocalRendezvous();
  const auto workers = static_cast<int>(each.size());
  Results all;
  InThreads(workers, [&](WorkerId self) {
    const Result& mine = each[self.value];
    const JobSeat seat = {.self = self, .workers = workers, .rendezvous = rendezvous};
    Results ends = ShareResults(seat, mine, std::chrono::seconds(60));
    if (self.value == 0) {
      all = std::move(ends);
      return;
    }
    EXPECT_EQ(ends.status(), mine.status());
    if (!ends.ok()) return;
    EXPECT_EQ(*ends, std::vector<std::string>{*mine});
  });
  return all;
}

TEST(ShareResultsTest, AllComeOfAnySize) {
  const std::string large(200'000, 'x');
  RZ_ASSIGN(const auto all, ShareAll({"a", large, ""}));
  EXPECT_EQ(all, (std::vector<std::string>{"a", large, ""}));
}

TEST(ShareResultsTest, WhoFailedIsNamed) {
  EXPECT_EQ(ShareAll({"a", "b", absl::DataLossError("bad file")}).status(),
            absl::DataLossError("worker 2: bad file"));
  EXPECT_EQ(ShareAll({absl::DataLossError("mine"), "b", absl::DataLossError("bad file")}).status(),
            absl::DataLossError("mine"));
}

TEST(ShareResultsTest, WhoIsMissingSaysItself) {
  const absl::Status cause = absl::ResourceExhaustedError("no memory for 3 GiB of sums");
  const absl::Status told = absl::ResourceExhaustedError("worker 2: no memory for 3 GiB of sums");
  const auto late = absl::DeadlineExceededError("worker 2 did not connect within 100 ms");
  EXPECT_EQ(ShareAll({late, late, cause}).status(), told);
  EXPECT_EQ(ShareAll({"a", late, cause}).status(), told);
  EXPECT_EQ(ShareAll({WorkerDied(WorkerId(2)), WorkerDied(WorkerId(2)), cause}).status(), told);
  EXPECT_EQ(ShareAll({AbortedBy(WorkerId(1), late), AbortedBy(WorkerId(1), late), cause}).status(),
            told);
  // Nobody knows more.
  EXPECT_EQ(ShareAll({late, late, "c"}).status(), late);
}

TEST(ShareResultsTest, WhoLeavesNothingIsNamedInTime) {
  const JobSeat seat = {.workers = 3, .rendezvous = MakeLocalRendezvous()};
  EXPECT_EQ(ShareResults(seat, std::string("a"), std::chrono::milliseconds(50)).status(),
            absl::UnavailableError("worker 1 has left no result within 0.05 s"));
}

}  // namespace
}  // namespace ringzero
