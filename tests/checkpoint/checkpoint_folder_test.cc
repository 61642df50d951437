// The names, the lock, state.json and the order of a commit.
#include "integrations/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "absl/strings/str_replace.h"
#include "base/files.h"
#include "tests/p2p/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::ElementsAre;

CheckpointState SomeState() {
  return {
      .version = Version(100),
      .rule = "cdp_v2",
      .predict = true,
      .optimizer = "AdamW",
      .precision = "bf16",
      .workers = 4,
      .stages = 8,
      .micro_batches = 12,
      .train_batch = 96,
      .seed = std::numeric_limits<uint64_t>::max(),
      .data = "training samples = 100\n",
      .made_by = "ringzero",
      .plan = "plan 2",
      .norm = std::numeric_limits<double>::infinity(),
      .loss_scale =
          LossScale::History{
              .noted = 100, .scale = 0.5, .scale_of_next = 0.25, .last_overflow = -1, .skipped = 7},
      .files = {{"model-00001-of-00008.safetensors", "0123456789abcdef"}}};
}

TEST(CheckpointStateTest, ReadsBack) {
  const CheckpointState state = SomeState();
  RZ_ASSIGN(const CheckpointState read, ParseCheckpointState(WriteCheckpointState(state)));
  EXPECT_EQ(WriteCheckpointState(read), WriteCheckpointState(state));
  EXPECT_EQ(read.seed, state.seed);
  EXPECT_EQ(read.norm, state.norm);
  EXPECT_EQ(read.loss_scale, state.loss_scale);
  EXPECT_EQ(read.files, state.files);
}

TEST(CheckpointStateTest, NamesTheMemberThatIsWrong) {
  const std::string text = WriteCheckpointState(SomeState());
  for (const auto& [from, to, says] :
       {std::tuple("checkpoint 3\"", "checkpoint 9\"", "format"),
        std::tuple("\"version\": 100", "\"version\": -3", "version"),
        std::tuple("\"workers\": 4,", "", "workers"),
        std::tuple("\"norm\": \"inf\"", "\"norm\": \"much\"", "norm"),
        std::tuple("\"scale\": 0.5", "\"scale\": []", "scale"),
        std::tuple("\"files\": {", "\"files\": {\"../a\": \"0\",", "../a"),
        std::tuple("\"files\"", "\"file\"", "files")}) {
    const std::string wrong = absl::StrReplaceAll(text, {{from, to}});
    ASSERT_NE(wrong, text) << from;
    const std::string sealed = SealCheckpointState(wrong.substr(0, wrong.find(",\n  \"sha256\"")));
    EXPECT_THAT(ParseCheckpointState(sealed), Fails(absl::StatusCode::kInvalidArgument, says));
  }
}

TEST(CheckpointStateTest, NoBitMayDifferAndNothingMayBeMissing) {
  const std::string text = WriteCheckpointState(SomeState());
  for (size_t at = 0; at < text.size(); ++at) {
    EXPECT_FALSE(ParseCheckpointState(text.substr(0, at)).ok()) << at;
    std::string damaged = text;
    damaged[at] ^= 1;
    EXPECT_FALSE(ParseCheckpointState(damaged).ok()) << at;
  }
  EXPECT_THAT(
      ParseCheckpointState(absl::StrReplaceAll(text, {{"\"version\": 100", "\"version\": 101"}})),
      Fails(absl::StatusCode::kInvalidArgument, "sha256"));
}

std::string Unfinished(const std::string& run, int version) {
  return UnfinishedFolder(run, Version(version));
}

void Make(const std::string& folder, const std::string& mark) {
  ASSERT_TRUE(MakeFolders(folder).ok());
  ASSERT_TRUE(WriteWholeFile(folder + "/mark", mark).ok());
}

TEST(CheckpointFolderTest, AnotherProcessIsRefusedByNameUntilTheHolderIsGone) {
  const TemporaryFolder folder;
  int gone[2];
  ASSERT_EQ(pipe(gone), 0);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const auto lock = LockCheckpoints(folder.path());
    char byte = lock.ok() ? 'y' : 'n';
    (void)!write(ready[1], &byte, 1);
    close(gone[1]);
    (void)!read(gone[0], &byte, 1);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  EXPECT_THAT(LockCheckpoints(folder.path()), Fails(absl::StatusCode::kAlreadyExists,
                                                    "process " + std::to_string(holder) + " on "));
  close(gone[1]);
  ASSERT_EQ(waitpid(holder, nullptr, 0), holder);
  EXPECT_TRUE(LockCheckpoints(folder.path()).ok());
}

TEST(CheckpointFolderTest, TheLockRemovesWhatAKilledJobHasLeftAndNothingElse) {
  const TemporaryFolder folder;
  const std::string run = folder.path();
  for (const char* name :
       {"/.iteration-000003.tmp", "/.iteration-000001.old", "/iteration-000002", "/mine.tmp"}) {
    Make(run + name, "");
  }
  ASSERT_TRUE(WriteWholeFile(run + "/latest.0123.tmp", "iter").ok());
  ASSERT_TRUE(LockCheckpoints(run).ok());
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(run))
    left.push_back(entry.path().filename());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("iteration-000002", "lock", "mine.tmp"));
}

TEST(CheckpointFolderTest, ACommitIsSeenWholeOrNotAtAll) {
  const TemporaryFolder folder;
  const std::string run = folder.path();
  for (int v = 1; v <= 4; ++v) {
    Make(Unfinished(run, v), std::to_string(v));
    ASSERT_TRUE(CommitCheckpoint(run, Version(v), /*keep=*/2, [&] {
                  for (const Version each : CheckpointsIn(run)) {
                    EXPECT_THAT(ReadWholeFile(run + "/" + CheckpointName(each) + "/mark").value(),
                                std::to_string(each.value));
                  }
                  const auto latest = LatestIn(run);
                  if (latest.has_value()) {
                    EXPECT_TRUE(std::filesystem::exists(run + "/" + CheckpointName(*latest)));
                  }
                }).ok());
    EXPECT_EQ(LatestIn(run), Version(v));
  }
  EXPECT_THAT(CheckpointsIn(run), ElementsAre(Version(3), Version(4)));
}

TEST(CheckpointFolderTest, TheSameVersionOnceMoreTakesThePlaceOfTheOld) {
  const TemporaryFolder folder;
  const std::string run = folder.path();
  for (const char* mark : {"old", "new"}) {
    Make(Unfinished(run, 7), mark);
    ASSERT_TRUE(CommitCheckpoint(run, Version(7), 0, [] {}).ok());
  }
  EXPECT_EQ(ReadWholeFile(run + "/iteration-000007/mark").value(), "new");
  EXPECT_FALSE(std::filesystem::exists(Unfinished(run, 7)));
}

TEST(CheckpointFolderTest, LaterVersionsOfARunThatWasGivenUpStay) {
  const TemporaryFolder folder;
  const std::string run = folder.path();
  for (const int v : {5, 9, 6}) {
    Make(Unfinished(run, v), "");
    ASSERT_TRUE(CommitCheckpoint(run, Version(v), 1, [] {}).ok());
  }
  EXPECT_THAT(CheckpointsIn(run), ElementsAre(Version(6), Version(9)));
  EXPECT_EQ(LatestIn(run), Version(6));
}

TEST(CheckpointFolderTest, AFolderThatVanishesIsNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT(CommitCheckpoint(folder.path() + "/none", Version(1), 0, [] {}),
              Says("/none/.iteration-000001.tmp"));
  EXPECT_THAT(LockCheckpoints("/proc/none"), Says("/proc/none"));
  EXPECT_TRUE(CheckpointsIn("/none").empty());
  EXPECT_EQ(LatestIn("/none"), std::nullopt);
}

}  // namespace
}  // namespace ringzero
