// One contract for every engine, on real files; and what their bookkeeping does with each result that a
// system call may have.
#include "offload/io_engine.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "offload/io_pieces.h"
#include "tests/offload/io_decorators.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using Kind = IoRequest::Kind;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr absl::string_view kNames[] = {"uring",  "one_thread", "threads",
                                        "memory", "throttled",  "throttled_uring"};

std::vector<std::byte> Random(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> made(bytes);
  for (std::byte& each : made) each = static_cast<std::byte>(random());
  return made;
}

steady_clock::time_point Soon() { return steady_clock::now() + std::chrono::seconds(30); }

// An engine by name, and a file for it.
class EngineTest : public testing::TestWithParam<absl::string_view> {
 protected:
  void SetUp() override {
    std::string path = absl::StrCat(testing::TempDir(), "/io-XXXXXX");
    file_ = mkstemp(path.data());
    ASSERT_GE(file_, 0);
    unlink(path.c_str());
    Make({.depth = 4, .block_bytes = 4096});
  }
  void TearDown() override {
    engine_.reset();
    close(file_);
  }
  void Make(IoEngineOptions options) {
    if (GetParam() == "memory") {
      engine_ = MakeMemoryEngine();
    } else if (GetParam() == "throttled") {
      engine_ = MakeThrottled(MakeThreadEngine(options), 1e9);
    } else if (absl::StrContains(GetParam(), "uring")) {
      auto made = MakeUringEngine(options);
      if (!made.ok()) GTEST_SKIP() << made.status().message();
      engine_ = *std::move(made);
      if (GetParam() != "uring") engine_ = MakeThrottled(std::move(engine_), 1e9);
    } else {
      if (GetParam() == "one_thread") options.threads = 1;
      engine_ = MakeThreadEngine(options);
    }
  }
  bool in_memory() const { return GetParam() == "memory"; }

  // All results, by tag.
  std::map<uint64_t, absl::Status> WaitForAll() {
    std::map<uint64_t, absl::Status> found;
    while (engine_->under_way() > 0) {
      absl::StatusOr<std::vector<IoResult>> results = engine_->Wait(Soon());
      EXPECT_TRUE(results.ok()) << results.status();
      if (!results.ok()) break;
      EXPECT_FALSE(results->empty());
      for (const IoResult& result : *results)
        EXPECT_TRUE(found.emplace(result.tag, result.status).second);
    }
    return found;
  }
  absl::Status Do(const IoRequest& request) {
    const absl::Status submitted = engine_->Submit({request});
    return submitted.ok() ? WaitForAll()[request.tag] : submitted;
  }

  int file_ = -1;
  std::unique_ptr<IoEngine> engine_;
};

TEST_P(EngineTest, WhatIsWrittenIsRead) {
  for (const size_t bytes : {1, 4095, 4096, 4097, 100'000}) {
    std::vector<std::byte> written = Random(bytes, bytes), read(bytes);
    EXPECT_TRUE(
        Do({.kind = Kind::kWrite, .file = file_, .offset = 77, .memory = written, .tag = 1}).ok());
    EXPECT_TRUE(Do({.kind = Kind::kSync, .file = file_, .tag = 2}).ok());
    EXPECT_TRUE(Do({.file = file_, .offset = 77, .memory = read, .tag = 3}).ok());
    EXPECT_EQ(read, written) << bytes;
  }
}

TEST_P(EngineTest, ManyAtOnceEachHaveTheirResult) {
  constexpr size_t kRequests = 60, kBytes = 9000;
  std::vector<std::byte> written = Random(kRequests * kBytes, 5), read(written.size());
  for (auto [kind, memory] : {std::pair(Kind::kWrite, &written), std::pair(Kind::kRead, &read)}) {
    std::vector<IoRequest> requests;
    for (size_t i = 0; i < kRequests; ++i) {
      requests.push_back({.kind = kind,
                          .file = file_,
                          .offset = static_cast<int64_t>(i * kBytes),
                          .memory = std::span(*memory).subspan(i * kBytes, kBytes),
                          .tag = 1000 + i});
    }
    ASSERT_TRUE(engine_->Submit(std::span(requests)).ok());
    const auto results = WaitForAll();
    EXPECT_EQ(results.size(), kRequests);
    for (const auto& [tag, status] : results) EXPECT_TRUE(status.ok()) << tag << status;
  }
  EXPECT_EQ(read, written);
}

// A deadline that has passed only looks, but what is under way goes on, also beyond the depth.
TEST_P(EngineTest, LookingIsEnoughToGoOn) {
  std::vector<std::byte> written = Random(50 * 4096, 3);
  ASSERT_TRUE(
      engine_->Submit({{.kind = Kind::kWrite, .file = file_, .memory = written, .tag = 1}}).ok());
  const auto end = Soon();
  absl::StatusOr<std::vector<IoResult>> results = absl::DeadlineExceededError("");
  while (absl::IsDeadlineExceeded(results.status()) && steady_clock::now() < end) {
    results = engine_->Wait(steady_clock::now());
  }
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 1u);
  EXPECT_TRUE(results->front().status.ok()) << results->front().status;
}

TEST_P(EngineTest, NothingUnderWayIsNoWait) {
  EXPECT_EQ(engine_->under_way(), 0u);
  const auto results = engine_->Wait(steady_clock::now() - std::chrono::seconds(1));
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_TRUE(results->empty());
}

TEST_P(EngineTest, ARequestOfNothingIsDone) {
  EXPECT_TRUE(Do({.kind = Kind::kWrite, .file = file_, .tag = 4}).ok());
}

TEST_P(EngineTest, BehindTheEndIsAnError) {
  std::vector<std::byte> written = Random(10'000, 1), read(10'000);
  ASSERT_TRUE(Do({.kind = Kind::kWrite, .file = file_, .memory = written, .tag = 1}).ok());
  const absl::Status status = Do({.file = file_, .offset = 5000, .memory = read, .tag = 2});
  EXPECT_THAT(status, Fails(absl::StatusCode::kOutOfRange, "the file ends"));
  EXPECT_THAT(status, Fails(absl::StatusCode::kOutOfRange, "read of"));
}

TEST_P(EngineTest, TheSystemsErrorIsTold) {
  if (in_memory()) GTEST_SKIP() << "memory has no system's errors";
  std::vector<std::byte> memory = Random(4096, 1);  // one system call, so one error
  const int full = open("/dev/full", O_RDWR);
  EXPECT_THAT(Do({.kind = Kind::kWrite, .file = full, .offset = 8192, .memory = memory, .tag = 1}),
              Fails(absl::StatusCode::kResourceExhausted,
                    "write of 4096 bytes at offset 8192: No space left on device"));
  close(full);
  EXPECT_THAT(Do({.file = full, .memory = memory, .tag = 2}).message(),
              HasSubstr("Bad file descriptor"));
  EXPECT_THAT(Do({.kind = Kind::kSync, .file = full, .tag = 3}).message(),
              HasSubstr("sync: Bad file"));
  EXPECT_EQ(engine_->under_way(), 0u) << "a request that failed is over";
}

// An engine that goes first waits for what is under way: its memory goes after it.
TEST_P(EngineTest, GoingWaitsForWhatIsUnderWay) {
  std::vector<std::byte> written = Random(300'000, 9);
  ASSERT_TRUE(
      engine_->Submit({{.kind = Kind::kWrite, .file = file_, .memory = written, .tag = 1}}).ok());
  engine_.reset();
  if (in_memory()) return;
  std::vector<std::byte> found(written.size());
  ASSERT_EQ(pread(file_, found.data(), found.size(), 0), static_cast<ssize_t>(found.size()));
  EXPECT_EQ(found, written);
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineTest, testing::ValuesIn(kNames),
                         [](const auto& info) { return std::string(info.param); });

// A pipe without a writer's bytes is a read that is stuck.
TEST(UringEngine, AStuckReadIsNamedAndStaysUnderWay) {
  auto made = MakeUringEngine({});
  if (!made.ok()) GTEST_SKIP() << made.status().message();
  IoEngine& engine = **made;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::vector<std::byte> memory(8);
  ASSERT_TRUE(engine.Submit({{.file = ends[0], .memory = memory, .tag = 6}}).ok());
  EXPECT_THAT(
      engine.Wait(steady_clock::now() + std::chrono::milliseconds(20)).status(),
      Fails(absl::StatusCode::kDeadlineExceeded, "read of 8 bytes at offset 0: not done after"));
  EXPECT_EQ(engine.under_way(), 1u);
  ASSERT_EQ(write(ends[1], "abcdefgh", 8), 8);
  const auto results = engine.Wait(Soon());
  ASSERT_TRUE(results.ok() && results->size() == 1) << results.status();
  EXPECT_TRUE(results->front().status.ok());
  for (const int end : ends) close(end);
}

TEST(ThrottledEngine, ResultsComeWhenSuchADiskWouldHaveThem) {
  auto engine = MakeThrottled(MakeMemoryEngine(), 1e6);
  std::vector<std::byte> memory = Random(20'000, 1);  // 20 ms
  const auto begin = steady_clock::now();
  for (const uint64_t tag : {1, 2}) {
    ASSERT_TRUE(
        engine->Submit({{.kind = Kind::kWrite, .file = 1, .memory = memory, .tag = tag}}).ok());
  }
  EXPECT_THAT(engine->Wait(begin).status(),
              Fails(absl::StatusCode::kDeadlineExceeded, "a throttled disk: 2 requests"));
  for (int wanted = 1; engine->under_way() > 0;) {
    const auto results = engine->Wait(Soon());
    ASSERT_TRUE(results.ok()) << results.status();
    for (const IoResult& result : *results) {
      EXPECT_EQ(result.tag, static_cast<uint64_t>(wanted));
      EXPECT_GE(steady_clock::now() - begin, wanted++ * std::chrono::milliseconds(20));
    }
  }
}

// --- the bookkeeping -----------------------------------------------------------------------------------

TEST(IoPieces, ARequestIsCutAtTheBlockSize) {
  std::vector<std::byte> memory(2500);
  IoPieces pieces(1000);
  pieces.Add({.kind = Kind::kWrite, .file = 3, .offset = 50, .memory = memory, .tag = 9});
  std::vector<IoPiece*> begun;
  while (IoPiece* piece = pieces.Begin()) begun.push_back(piece);
  ASSERT_EQ(begun.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(begun[i]->offset, 50 + static_cast<int64_t>(i) * 1000);
    EXPECT_EQ(begun[i]->memory, memory.data() + i * 1000);
    EXPECT_EQ(begun[i]->bytes, i < 2 ? 1000u : 500u);
  }
  for (IoPiece* piece : begun) {
    EXPECT_FALSE(pieces.has_results());
    pieces.End(piece, static_cast<int64_t>(piece->bytes));
  }
  const auto results = pieces.TakeResults();
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].tag, 9u);
  EXPECT_TRUE(results[0].status.ok());
  EXPECT_EQ(pieces.under_way(), 0u);
}

TEST(IoPieces, AShortResultGoesOnWhereItStopped) {
  std::vector<std::byte> memory(100);
  IoPieces pieces(1000);
  pieces.Add({.file = 3, .offset = 10, .memory = memory, .tag = 1});
  pieces.End(pieces.Begin(), 30);
  IoPiece* piece = pieces.Begin();
  ASSERT_NE(piece, nullptr);
  EXPECT_EQ(piece->offset, 40);
  EXPECT_EQ(piece->memory, memory.data() + 30);
  EXPECT_EQ(piece->bytes, 70u);
  pieces.End(piece, -EINTR);
  piece = pieces.Begin();
  pieces.End(piece, -EAGAIN);
  piece = pieces.Begin();
  ASSERT_NE(piece, nullptr);
  pieces.End(piece, 70);
  EXPECT_TRUE(pieces.TakeResults().at(0).status.ok());
}

TEST(IoPieces, ResultsThatEndARequest) {
  std::vector<std::byte> memory(3000);
  const auto ended = [&](Kind kind, int64_t result) {
    IoPieces pieces(1000);
    pieces.Add({.kind = kind, .file = 3, .offset = 7, .memory = memory, .tag = 1});
    pieces.End(pieces.Begin(), result);
    EXPECT_EQ(pieces.Begin(), nullptr) << "the rest of the request does not begin";
    const auto results = pieces.TakeResults();
    return results.size() == 1 ? results[0].status : absl::OkStatus();
  };
  EXPECT_THAT(ended(Kind::kRead, 0), Fails(absl::StatusCode::kOutOfRange,
                                           "read of 1000 bytes at offset 7: the file ends there"));
  EXPECT_THAT(ended(Kind::kWrite, 0), Fails(absl::StatusCode::kOutOfRange, "nothing was written"));
  EXPECT_THAT(ended(Kind::kWrite, -ENOSPC),
              Fails(absl::StatusCode::kResourceExhausted, "No space left"));
  EXPECT_THAT(ended(Kind::kRead, -EIO).message(),
              HasSubstr("read of 1000 bytes at offset 7: Input/output"));
}

TEST(IoPieces, TheFirstErrorIsTheResultOnceAllHaveEnded) {
  std::vector<std::byte> memory(3000);
  IoPieces pieces(1000);
  pieces.Add({.kind = Kind::kWrite, .memory = memory, .tag = 1});
  IoPiece* const first = pieces.Begin();
  IoPiece* const second = pieces.Begin();
  pieces.End(second, -EIO);
  EXPECT_FALSE(pieces.has_results()) << "the first piece still writes from the memory";
  pieces.End(first, -ENOSPC);
  EXPECT_THAT(pieces.TakeResults().at(0).status.message(), HasSubstr("Input/output"));
}

// What comes back after the error, and is not whole, does not begin again.
TEST(IoPieces, AFailedRequestGoesNoFurther) {
  std::vector<std::byte> memory(3000);
  for (const int64_t late : {int64_t{10}, int64_t{-EAGAIN}, int64_t{-EINTR}, int64_t{0}}) {
    IoPieces pieces(1000);
    pieces.Add({.kind = Kind::kWrite, .memory = memory, .tag = 1});
    IoPiece* const first = pieces.Begin();
    pieces.End(pieces.Begin(), -EIO);
    pieces.End(first, late);
    EXPECT_EQ(pieces.Begin(), nullptr);
    EXPECT_THAT(pieces.TakeResults().at(0).status.message(), HasSubstr("Input/output"));
  }
}

TEST(IoPieces, ADiskThatNeverHasRoomIsAnError) {
  std::vector<std::byte> memory(8);
  IoPieces pieces(1000);
  pieces.Add({.kind = Kind::kWrite, .memory = memory, .tag = 1});
  for (int i = 0; i < 2000 && !pieces.has_results(); ++i) pieces.End(pieces.Begin(), -EAGAIN);
  EXPECT_THAT(pieces.TakeResults().at(0).status.message(), HasSubstr("Resource temporarily"));
}

// --- where io_uring is forbidden ------------------------------------------------------------------------

// What a process whose io_uring_setup gives `error` says of itself.
std::string WhyWhenForbidden(int error) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // the call's number
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program = {.len = std::size(filter),
                                .filter = const_cast<sock_filter*>(filter)};
    const bool filtered = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                          prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
    std::string why = "no filter";
    if (filtered) {
      const auto chosen = MakeIoEngine({});
      why = chosen.ok() ? chosen->why : std::string(chosen.status().message());
      const auto asked = MakeIoEngine({.kind = IoEngineOptions::Kind::kUring});
      absl::StrAppend(&why, asked.ok() ? "" : " | refused");
    }
    (void)!write(ends[1], why.data(), why.size());
    _exit(0);
  }
  close(ends[1]);
  char text[1000];
  const ssize_t bytes = read(ends[0], text, sizeof(text));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return std::string(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
}

TEST(MakeIoEngine, WhereIoUringIsForbiddenThreadsReadAndWrite) {
  const absl::Status here = MakeUringEngine({}).status();
  if (here.message() == "built without liburing") GTEST_SKIP() << here.message();
  for (const auto& [error, reason] : {std::pair(EPERM, "Operation not permitted"),
                                      std::pair(ENOSYS, "Function not implemented")}) {
    const std::string why = WhyWhenForbidden(error);
    EXPECT_THAT(why, HasSubstr(absl::StrCat(
                         "threads with pread and pwrite: io_uring is not there: ", reason)));
    EXPECT_THAT(why, HasSubstr("sysctl kernel.io_uring_disabled"));
    EXPECT_THAT(why, HasSubstr("| refused"));
  }
}

TEST(MakeIoEngine, RefusesOptionsThatNoEngineHas) {
  for (const IoEngineOptions& options :
       {IoEngineOptions{.depth = 0}, IoEngineOptions{.block_bytes = 0},
        IoEngineOptions{.block_bytes = int64_t{1} << 32}, IoEngineOptions{.threads = 0}}) {
    EXPECT_THAT(MakeIoEngine(options).status(),
                Fails(absl::StatusCode::kInvalidArgument, "wanted a depth from 1 to 4096"));
  }
}

TEST(MakeIoEngine, SaysWhatItChose) {
  const auto threads = MakeIoEngine({.kind = IoEngineOptions::Kind::kThreads});
  ASSERT_TRUE(threads.ok());
  EXPECT_EQ(threads->why, "threads (asked for)");
  const auto chosen = MakeIoEngine({});
  ASSERT_TRUE(chosen.ok());
  EXPECT_NE(chosen->why, "");
}

}  // namespace
}  // namespace ringzero
