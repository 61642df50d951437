// A tier file is there whole or not at all, and no folder lists it.
#include "offload/tier_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using testing::HasSubstr;

TEST(TierFile, AllOfItIsThereAndNobodySeesIt) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/tier");
  std::filesystem::create_directory(folder);
  RZ_ASSIGN(const auto file, TierFile::Create(folder, 1 << 20));
  struct stat found;
  ASSERT_EQ(fstat(file.descriptor(), &found), 0);
  EXPECT_EQ(found.st_size, 1 << 20);
  EXPECT_GE(found.st_blocks * 512, 1 << 20) << "its bytes are allocated";
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

TEST(TierFile, GetsANameWhenACheckpointTakesIt) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/taken");
  std::filesystem::create_directory(folder);
  const std::string path = absl::StrCat(folder, "/states");
  for (const char* written : {"first", "again"}) {  // in place of another
    RZ_ASSIGN(const auto file, TierFile::Create(testing::TempDir(), 8192));
    std::memcpy(file.mapped() + 4096, written, 5);
    ASSERT_TRUE(file.Link(path).ok());
    file.Forget({file.mapped(), 8192});
    RZ_ASSIGN(const std::string found, ReadWholeFile(path));
    EXPECT_EQ(found.size(), 8192u);
    EXPECT_EQ(found.substr(4096, 5), written);
  }
  RZ_ASSIGN(const auto file, TierFile::Create("/dev/shm", 4096));
  EXPECT_THAT(std::string(file.Link(path + "-elsewhere").message()), HasSubstr("-elsewhere: "));
  EXPECT_THAT(std::string(file.Link("/nowhere/at/all").message()), HasSubstr("/nowhere/at/all: "));
  std::filesystem::remove_all(folder);
}

// As another process of the same user opens it.
TEST(TierFile, IsOpenedByItsHandle) {
  RZ_ASSIGN(TierFile made, TierFile::Create(testing::TempDir(), 8192));
  std::optional<TierFile> file(std::move(made));
  std::memcpy(file->mapped() + 4096, "there", 5);
  TierFile::Handle handle = file->handle();
  const pid_t child = fork();
  if (child == 0) {
    const absl::StatusOr<TierFile> opened = TierFile::Open(handle);
    const bool same = opened.ok() && opened->bytes() == 8192 &&
                      std::memcmp(opened->mapped() + 4096, "there", 5) == 0;
    _exit(same ? 0 : 1);
  }
  int ended = -1;
  waitpid(child, &ended, 0);
  EXPECT_EQ(ended, 0);
  const std::string name = absl::StrCat("/proc/", handle.process, "/fd/", handle.descriptor);
  ++handle.inode;
  EXPECT_THAT(TierFile::Open(handle).status(), Says(absl::StrCat(name, ": is another file")));
  --handle.inode;
  file.reset();
  EXPECT_THAT(TierFile::Open(handle).status(), Says(name));
}

TEST(TierFile, ErrorsNameTheFolder) {
  const auto missing = TierFile::Create("/nowhere/at/all", 4096);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/nowhere/at/all"));
  EXPECT_FALSE(TierFile::Create("/proc/self", 4096).ok());
}

TEST(TierFile, ADiskThatIsTooSmallSaysHowMuchIsFree) {
  struct statvfs disk;
  ASSERT_EQ(statvfs(testing::TempDir().c_str(), &disk), 0);
  const int64_t free = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  const auto file = TierFile::Create(testing::TempDir(), 2 * free);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(file.status().message()),
              HasSubstr(absl::StrCat("wanted ", 2 * free, " bytes, found ")));
}

TEST(TierFile, TmpfsIsMemory) {
  RZ_ASSIGN(const auto file, TierFile::Create("/dev/shm", 4096));
  EXPECT_TRUE(file.is_memory());
}

}  // namespace
}  // namespace ringzero
