// Pieces come through a ring and go back: in any order of releases, on every engine, with every fault. Runs go past it.
#include "offload/state_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/crypto.h"
#include "base/unique_fd.h"
#include "offload/tier_file.h"
#include "tests/offload/io_decorators.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

constexpr int64_t kPage = 4096;
constexpr auto kRead = IoRequest::Kind::kRead, kWrite = IoRequest::Kind::kWrite;

// `groups` of `pieces`, each of two extents of a page.
std::vector<StoreGroup> Groups(int groups, int pieces) {
  std::vector<StoreGroup> made;
  int64_t offset = 0;
  for (int g = 0; g < groups; ++g) {
    StoreGroup& group = made.emplace_back();
    group.name = absl::StrCat("stage ", g);
    for (int p = 0; p < pieces; ++p, offset += 2 * kPage) {
      group.pieces.push_back({{{offset, kPage}, {offset + kPage, kPage}}});
    }
  }
  return made;
}

// Waits for a call, at most 20 seconds.
class Call {
 public:
  StateStore::Done Done() {
    return [called = called_] { called->set_value(); };
  }
  bool Came() {
    return called_->get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  }

 private:
  std::shared_ptr<std::promise<void>> called_ = std::make_shared<std::promise<void>>();
};

// Memory of the caller's, which lives as long as somebody keeps it.
class Pages {
 public:
  Pages(int64_t pages, int value)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(kPage, pages * kPage)), std::free),
        bytes_(static_cast<size_t>(pages * kPage)) {
    std::ranges::fill(bytes(), static_cast<std::byte>(value));
  }
  std::span<std::byte> bytes() const { return {memory_.get(), bytes_}; }
  bool Hold(int value) const {
    return std::ranges::count(bytes(), static_cast<std::byte>(value)) == std::ssize(bytes());
  }
  std::weak_ptr<const void> watched() const { return memory_; }
  StateStore::Run Run(IoRequest::Kind kind, int file, int64_t offset) const {
    return {.kind = kind,
            .file = file,
            .offset = offset,
            .memory = bytes(),
            .keeper = Buffer(bytes(), memory_).Seal(),
            .name = "parameters of stage 7, version 4"};
  }

 private:
  std::shared_ptr<std::byte> memory_;
  size_t bytes_;
};

class StateStoreTest : public testing::TestWithParam<const char*> {
 protected:
  void Open(
      int groups, int pieces, int slots,
      const std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>)>& around = {}) {
    std::string path = absl::StrCat(testing::TempDir(), "/states-XXXXXX");
    file_ = mkstemp(path.data());
    ASSERT_GE(file_, 0);
    unlink(path.c_str());
    const int pages = slots > 0 ? 2 * slots + 1 : 0;
    ring_.assign(static_cast<size_t>(pages * kPage), std::byte{0xee});
    std::unique_ptr<IoEngine> engine = MakeMemoryEngine();
    const std::string name = GetParam();
    if (name == "threads") engine = MakeThreadEngine({.threads = 3});
    if (name == "uring") {
      auto made = MakeUringEngine({});
      if (!made.ok()) GTEST_SKIP() << made.status().message();
      engine = *std::move(made);
    }
    engine = MakeCheckedIo(std::move(engine), misuses_);
    if (around) engine = around(std::move(engine));
    RZ_ASSIGN(store_, StateStore::Create({.groups = Groups(groups, pieces),
                                          .ring = ring_,
                                          .file = file_,
                                          .file_name = "tier",
                                          .engine = std::move(engine),
                                          .wait_timeout = wait_timeout_,
                                          .failed = [this](const absl::Status& why) {
                                            failure_.set_value(why);
                                          }}));
  }
  void TearDown() override {
    store_.reset();
    if (file_ >= 0) close(file_);
    EXPECT_THAT(misuses_, testing::IsEmpty());
  }

  // The piece, once it is there.
  std::byte* Wait(int group, int piece) {
    Call there;
    std::byte* const memory = store_->Piece(group, piece, there.Done());
    if (memory != nullptr || !there.Came()) return memory;
    return store_->Piece(group, piece, nullptr);
  }
  // One turn of a group: each piece must hold `before`, and holds `after` then.
  void Turn(int group, int pieces, int before, int after) {
    Call fetched, stored;
    store_->Fetch(group, fetched.Done());
    store_->Store(group, stored.Done());
    for (int p = 0; p < pieces; ++p) {
      std::byte* const memory = Wait(group, p);
      ASSERT_NE(memory, nullptr) << group << ", " << p;
      const uint64_t found = DigestOf(memory);
      for (int64_t i = 0; i < 2 * kPage; ++i) {
        const int place = before == 0 ? 0 : group + p + static_cast<int>(i % 7);
        ASSERT_EQ(memory[i], static_cast<std::byte>(before + place)) << group << ", " << p;
        memory[i] = static_cast<std::byte>(after + group + p + i % 7);
      }
      store_->Release(group, p, {.changed = true, .found = found, .left = DigestOf(memory)});
    }
    EXPECT_TRUE(fetched.Came());
    EXPECT_TRUE(stored.Came());
  }
  static uint64_t DigestOf(const std::byte* piece) { return Checksum({piece, 2 * kPage}); }
  // As it has come.
  void ReleaseUnchanged(int group, int piece) {
    std::byte* const memory = Wait(group, piece);
    ASSERT_NE(memory, nullptr);
    store_->Release(group, piece, {.found = DigestOf(memory), .left = DigestOf(memory)});
  }
  // Moves, and waits for it.
  bool Moved(StateStore::Run run) {
    Call moved;
    store_->Move(std::move(run), AndOk(moved.Done()));
    return moved.Came();
  }
  static StateStore::RunDone AndOk(StateStore::Done done) {
    return [done = std::move(done)] {
      done();
      return absl::OkStatus();
    };
  }
  absl::Status Failure() {
    std::future<absl::Status> failure = failure_.get_future();
    const bool came = failure.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    return came ? failure.get() : absl::InternalError("nothing failed");
  }

  int file_ = -1;
  std::vector<std::byte> ring_;
  std::vector<std::string> misuses_;
  std::chrono::milliseconds wait_timeout_{std::chrono::seconds(20)};
  std::promise<absl::Status> failure_;
  std::unique_ptr<StateStore> store_;
};

TEST_P(StateStoreTest, WhatWasStoredComesBack) {
  for (const int slots : {1, 2, 3, 20}) {
    Open(2, 5, slots);
    if (IsSkipped()) return;
    Turn(0, 5, 0, 10);  // never stored: zeros
    Turn(1, 5, 0, 20);
    Turn(0, 5, 10, 30);
    Turn(1, 5, 20, 40);
    Turn(0, 5, 30, 50);
    store_.reset();
    close(std::exchange(file_, -1));
  }
}

TEST_P(StateStoreTest, APieceThatIsNotChangedIsNotWritten) {
  std::vector<std::string> lines;
  Open(1, 3, 3, [&](auto engine) { return MakeTracedIo(std::move(engine), lines); });
  if (IsSkipped()) return;
  Turn(0, 3, 0, 10);
  Call fetched, stored;
  store_->Fetch(0, fetched.Done());
  EXPECT_TRUE(fetched.Came());
  ReleaseUnchanged(0, 0);
  const uint64_t found = DigestOf(Wait(0, 1));
  store_->Release(0, 1, {.changed = true, .found = found, .left = found});
  ReleaseUnchanged(0, 2);
  store_->Store(0, stored.Done());
  EXPECT_TRUE(stored.Came());
  store_.reset();
  EXPECT_EQ(std::ranges::count(lines, "write 0+4096"), 1);
  EXPECT_EQ(std::ranges::count(lines, "write 8192+4096"), 2);
}

TEST_P(StateStoreTest, AGroupMovesToAnotherFileWithAllItsPieces) {
  Open(1, 3, 2);
  if (IsSkipped()) return;
  Turn(0, 3, 0, 10);
  std::string path = absl::StrCat(testing::TempDir(), "/states-XXXXXX");
  const UniqueFd other(mkstemp(path.data()));
  unlink(path.c_str());
  store_->MoveTo(0, other.get());
  Call stored;
  store_->Fetch(0, nullptr);
  store_->Store(0, stored.Done());
  for (int p = 0; p < 3; ++p) ReleaseUnchanged(0, p);
  EXPECT_TRUE(stored.Came());
  EXPECT_EQ(ftruncate(file_, 0), 0);
  Turn(0, 3, 10, 20);
  Turn(0, 3, 20, 30);
  store_.reset();
}

TEST_P(StateStoreTest, TheNextGroupComesWhileTheRingHasRoom) {
  Open(2, 2, 3);
  if (IsSkipped()) return;
  Call first, second;
  store_->Fetch(0, first.Done());
  store_->Fetch(1, second.Done());
  EXPECT_TRUE(first.Came());
  EXPECT_NE(Wait(1, 0), nullptr);
  Call later;
  EXPECT_EQ(store_->Piece(1, 1, later.Done()), nullptr) << "the ring is full";
  ReleaseUnchanged(0, 0);
  EXPECT_TRUE(later.Came());
  EXPECT_TRUE(second.Came());
}

// An update waits for what is fetched.
TEST_P(StateStoreTest, AFetchDoesNotWaitForAllThatIsToBeStored) {
  constexpr int kPieces = 8;
  std::vector<std::string> lines;
  Open(2, kPieces, kPieces, [&](auto engine) {
    return MakeTracedIo(MakeThrottled(std::move(engine), /*bytes/s*/ 4e6), lines);
  });
  if (IsSkipped()) return;
  Turn(0, kPieces, 0, 10);
  Turn(1, kPieces, 0, 20);
  Call second, stored;
  store_->Fetch(0, nullptr);
  store_->Fetch(1, second.Done());
  store_->Store(0, stored.Done());
  for (int p = 0; p < kPieces; ++p) {
    const uint64_t found = DigestOf(Wait(0, p));
    store_->Release(0, p, {.changed = true, .found = found, .left = found});
  }
  EXPECT_TRUE(second.Came());
  EXPECT_TRUE(stored.Came());
  store_.reset();
  const auto last_write = std::ranges::find(lines.rbegin(), lines.rend(), "write 61440+4096");
  EXPECT_NE(std::find(last_write, lines.rend(), "read 65536+4096"), lines.rend());
}

TEST_P(StateStoreTest, AnErrorNamesStageRecordAndOffset) {
  Open(2, 2, 4, [](auto engine) {
    return MakeFaultyIo(std::move(engine), [](const IoRequest& request) {
      const bool here = request.kind == IoRequest::Kind::kRead && request.offset == 7 * kPage;
      return here ? absl::ErrnoToStatus(EIO, "read of 4096 bytes") : absl::OkStatus();
    });
  });
  if (IsSkipped()) return;
  Turn(0, 2, 0, 10);
  Turn(1, 2, 0, 20);
  store_->Fetch(1, nullptr);
  const absl::Status failure = Failure();
  EXPECT_THAT(std::string(failure.message()),
              testing::StartsWith("tier: stage 1, record 1 at offset 28672: read of 4096 bytes"));
}

TEST_P(StateStoreTest, ADiskThatDoesNotAnswerIsNamedAndNotWaitedFor) {
  wait_timeout_ = std::chrono::milliseconds(20);
  Open(1, 1, 1, [](auto engine) { return MakeThrottled(std::move(engine), /*bytes/s*/ 100); });
  if (IsSkipped()) return;
  Call stored;
  store_->Fetch(0, nullptr);
  ASSERT_NE(Wait(0, 0), nullptr);
  store_->Release(0, 0, {.changed = true});
  store_->Store(0, stored.Done());
  const absl::Status failure = Failure();
  EXPECT_EQ(failure.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(failure.message()), testing::StartsWith("tier: "));
  store_.reset();
}

TEST_P(StateStoreTest, ABitThatHasFlippedIsFound) {
  Open(1, 2, 2);
  if (IsSkipped()) return;
  if (std::string(GetParam()) == "memory") GTEST_SKIP() << "has no file to damage";
  Turn(0, 2, 0, 10);
  char byte = 0;
  ASSERT_EQ(pread(file_, &byte, 1, 3 * kPage + 9), 1);
  byte ^= 4;
  ASSERT_EQ(pwrite(file_, &byte, 1, 3 * kPage + 9), 1);
  store_->Fetch(0, nullptr);
  ReleaseUnchanged(0, 0);
  ReleaseUnchanged(0, 1);
  EXPECT_EQ(Failure(),
            absl::DataLossError("tier: stage 0, record 1 at offset 8192: what was read is not what "
                                "was written there last"));
}

TEST_P(StateStoreTest, RunsGoToAFileAndComeBack) {
  Open(1, 2, 1);
  if (IsSkipped()) return;
  RZ_ASSIGN(const TierFile other, TierFile::Create(testing::TempDir(), 8 * kPage));
  const Pages first(3, 7), second(2, 9), part(4, 11);
  EXPECT_TRUE(Moved(first.Run(kWrite, other.descriptor(), 2 * kPage)));
  EXPECT_TRUE(Moved(second.Run(kWrite, other.descriptor(), 6 * kPage)));
  EXPECT_TRUE(Moved(part.Run(kWrite, file_, 4 * kPage)));  // behind the pieces
  Turn(0, 2, 0, 10);
  const Pages found(3, 0), found_second(2, 0), found_part(4, 0);
  EXPECT_TRUE(Moved(found.Run(kRead, other.descriptor(), 2 * kPage)));
  EXPECT_TRUE(Moved(found_second.Run(kRead, other.descriptor(), 6 * kPage)));
  EXPECT_TRUE(Moved(found_part.Run(kRead, file_, 4 * kPage)));
  EXPECT_TRUE(found.Hold(7));
  EXPECT_TRUE(found_second.Hold(9));
  EXPECT_TRUE(found_part.Hold(11));
  Turn(0, 2, 10, 20);
  store_.reset();
}

TEST_P(StateStoreTest, RunsNeedNeitherGroupsNorRing) {
  Open(0, 0, 0);
  if (IsSkipped()) return;
  std::weak_ptr<const void> memory;
  {
    const Pages pages(2, 5), found(2, 0);
    memory = pages.watched();
    EXPECT_TRUE(Moved(pages.Run(kWrite, file_, kPage)));
    EXPECT_TRUE(Moved(found.Run(kRead, file_, kPage)));
    EXPECT_TRUE(found.Hold(5));
  }
  EXPECT_TRUE(memory.expired()) << "nobody needs it";
  store_.reset();
}

TEST_P(StateStoreTest, RunsGoPastAFullRing) {
  Open(1, 3, 1);
  if (IsSkipped()) return;
  Turn(0, 3, 0, 10);
  Call fetched, later;
  store_->Fetch(0, fetched.Done());
  ASSERT_NE(Wait(0, 0), nullptr);
  EXPECT_EQ(store_->Piece(0, 1, later.Done()), nullptr) << "the ring is full";
  const Pages pages(2, 5), found(2, 0);
  EXPECT_TRUE(Moved(pages.Run(kWrite, file_, 6 * kPage)));
  EXPECT_TRUE(Moved(found.Run(kRead, file_, 6 * kPage)));
  EXPECT_TRUE(found.Hold(5));
  Call moved;
  store_->Move(found.Run(kRead, file_, 6 * kPage), AndOk(moved.Done()));
  ReleaseUnchanged(0, 0);
  EXPECT_TRUE(later.Came());
  for (int p = 1; p < 3; ++p) ReleaseUnchanged(0, p);
  EXPECT_TRUE(fetched.Came());
  EXPECT_TRUE(moved.Came());
  store_.reset();
}

TEST_P(StateStoreTest, RunsBeginBeforeStoresAndFetches) {
  std::vector<std::string> lines;
  Open(2, 1, 2, [&](auto engine) { return MakeTracedIo(std::move(engine), lines); });
  if (IsSkipped()) return;
  Turn(0, 1, 0, 10);
  Turn(1, 1, 0, 20);
  store_->Fetch(0, nullptr);
  std::byte* const memory = Wait(0, 0);
  ASSERT_NE(memory, nullptr);
  const Pages first(1, 5), second(1, 6);
  Call moved, stored;
  // In a call of the thread, so that all of it is of the next turn.
  store_->Move(first.Run(kWrite, file_, 4 * kPage), [&, digest = DigestOf(memory)] {
    store_->Fetch(1, nullptr);
    store_->Store(0, stored.Done());
    store_->Release(0, 0, {.changed = true, .found = digest, .left = digest});
    store_->Move(second.Run(kWrite, file_, 5 * kPage), AndOk(moved.Done()));
    return absl::OkStatus();
  });
  EXPECT_TRUE(moved.Came());
  EXPECT_TRUE(stored.Came());
  ReleaseUnchanged(1, 0);
  store_.reset();
  ASSERT_GE(lines.size(), 6u);
  EXPECT_THAT(std::span(lines).last(6),
              testing::ElementsAre("write 16384+4096", "write 20480+4096", "write 0+4096",
                                   "write 4096+4096", "read 8192+4096", "read 12288+4096"));
}

TEST_P(StateStoreTest, AnErrorNamesTheRunAndItsOffset) {
  Open(1, 1, 1, [](auto engine) {
    return MakeFaultyIo(std::move(engine), [](const IoRequest& request) {
      const bool here = request.kind == kWrite && request.offset == 3 * kPage;
      return here ? absl::ErrnoToStatus(EIO, "write of 8192 bytes") : absl::OkStatus();
    });
  });
  if (IsSkipped()) return;
  const Pages pages(2, 5);
  EXPECT_TRUE(Moved(pages.Run(kWrite, file_, 5 * kPage)));
  store_->Move(pages.Run(kWrite, file_, 3 * kPage), [] {
    ADD_FAILURE() << "it was not written";
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(Failure().message()),
              testing::StartsWith("tier: parameters of stage 7, version 4 at offset 12288: write "
                                  "of 8192 bytes"));
  store_.reset();
}

TEST_P(StateStoreTest, AFileThatEndsWithinARunIsNamed) {
  Open(1, 1, 1);
  if (IsSkipped()) return;
  RZ_ASSIGN(const TierFile other, TierFile::Create(testing::TempDir(), 4 * kPage));
  const Pages pages(4, 5);
  store_->Move(pages.Run(kRead, other.descriptor(), 2 * kPage), [] {
    ADD_FAILURE() << "it is not there";
    return absl::OkStatus();
  });
  const absl::Status failure = Failure();
  EXPECT_EQ(failure.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(
      std::string(failure.message()),
      testing::StartsWith("tier: parameters of stage 7, version 4 at offset 8192: read of "));
  store_.reset();
}

TEST_P(StateStoreTest, WhatTheCallerFindsWrongWithARunFails) {
  Open(0, 0, 0);
  if (IsSkipped()) return;
  const Pages pages(1, 5);
  store_->Move(pages.Run(kWrite, file_, kPage),
               [] { return absl::DataLossError("its checksum is 5"); });
  EXPECT_EQ(Failure(), absl::DataLossError("tier: parameters of stage 7, version 4 at offset 4096: "
                                           "its checksum is 5"));
  store_->Move(pages.Run(kWrite, file_, kPage), [] {
    ADD_FAILURE() << "nothing is moved any more";
    return absl::OkStatus();
  });
  store_.reset();
}

TEST_P(StateStoreTest, ARunThatADiskDoesNotAnswerIsNamedAndItsMemoryKept) {
  wait_timeout_ = std::chrono::milliseconds(20);
  Open(0, 0, 0, [](auto engine) { return MakeThrottled(std::move(engine), /*bytes/s*/ 100); });
  if (IsSkipped()) return;
  std::weak_ptr<const void> memory;
  {
    const Pages pages(1, 5);
    memory = pages.watched();
    store_->Move(pages.Run(kWrite, file_, 2 * kPage), nullptr);
  }
  const absl::Status failure = Failure();
  EXPECT_EQ(failure.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(failure.message()),
              testing::StartsWith("tier: parameters of stage 7, version 4 at offset 8192: "));
  store_.reset();
  EXPECT_FALSE(memory.expired()) << "the disk may still use it";
}

TEST_P(StateStoreTest, OfPiecesAndRunsTheOldestIsNamed) {
  for (const bool piece_first : {false, true}) {
    failure_ = {};
    wait_timeout_ = std::chrono::milliseconds(300);
    Open(1, 1, 1, [](auto engine) { return MakeThrottled(std::move(engine), /*bytes/s*/ 100); });
    if (IsSkipped()) return;
    store_->Fetch(0, nullptr);
    ASSERT_NE(Wait(0, 0), nullptr);
    const Pages pages(1, 5), none(0, 0);  // takes no time
    const auto stuck = [&] {
      store_->Move(pages.Run(kWrite, file_, 2 * kPage), nullptr);
      return absl::OkStatus();
    };
    store_->Move(none.Run(kRead, file_, 0), [&] {
      store_->Release(0, 0, {.changed = true});
      if (!piece_first) return stuck();
      store_->Move(none.Run(kRead, file_, 0), stuck);  // begins with the piece, ends before it
      return absl::OkStatus();
    });
    EXPECT_THAT(
        std::string(Failure().message()),
        testing::StartsWith(piece_first ? "tier: stage 0, record 0 at offset 0: "
                                        : "tier: parameters of stage 7, version 4 at offset 8192"));
    store_.reset();
    close(std::exchange(file_, -1));
  }
}

TEST_P(StateStoreTest, StopsWhileRunsAreUnderWay) {
  Open(0, 0, 0, [](auto engine) { return MakeThrottled(std::move(engine), 10 * kPage); });
  if (IsSkipped()) return;
  std::weak_ptr<const void> memory;
  {
    const Pages none(0, 0), shorter(1, 5), longer(10, 6);
    memory = longer.watched();
    Call moved;
    std::atomic<bool> ended = false;
    store_->Move(none.Run(kRead, file_, 0), [&] {  // both in one turn
      store_->Move(shorter.Run(kWrite, file_, 0), AndOk(moved.Done()));
      store_->Move(longer.Run(kWrite, file_, kPage), AndOk([&] { ended = true; }));
      return absl::OkStatus();
    });
    EXPECT_TRUE(moved.Came());
    store_->Stop();
    EXPECT_FALSE(ended) << "it takes a second";
  }
  store_.reset();
  EXPECT_TRUE(memory.expired()) << "the disk is done with it";
}

INSTANTIATE_TEST_SUITE_P(Engines, StateStoreTest, testing::Values("memory", "threads", "uring"),
                         [](const auto& test) { return test.param; });

TEST(StateStore, APieceMustFitIntoTheRing) {
  std::vector<std::byte> ring(kPage);
  EXPECT_EQ(StateStore::Create({.groups = Groups(1, 1), .ring = ring}).status(),
            absl::InvalidArgumentError(
                "states come through 4096 bytes of memory, but a piece has 8192 in whole "
                "pages"));
  EXPECT_THAT(std::string(StateStore::Create({.groups = Groups(1, 1)}).status().message()),
              testing::StartsWith("states come through 0 bytes of memory, but a piece has 8192"));
  RZ_ASSIGN(auto store, StateStore::Create({.groups = Groups(2, 0), .engine = MakeMemoryEngine()}));
  Call fetched;
  store->Fetch(1, fetched.Done());
  EXPECT_TRUE(fetched.Came()) << "nothing need come";
}

}  // namespace
}  // namespace ringzero
