// What a path names decides how it is written, and a file is there whole or not at all.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "base/files.h"
#include "tests/data/files.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::HasSubstr;
using testing::ToBytes;
using ::testing::UnorderedElementsAre;

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

void Put(const std::string& path, const std::string& text) {
  testing::WriteFile(path, ToBytes(text));
}

std::string Get(const std::string& path) { return ReadWholeFile(path).value_or("not there"); }

TEST(OutputFile, TheOldFileStaysUntilTheNewOneIsWhole) {
  const TemporaryFolder folder;
  const std::string path = folder / "out";
  Put(path, "old");
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  {
    RZ_ASSIGN(const auto given_up, OutputFile::Open(path, OutputFile::As::kWhole));
    ASSERT_EQ(given_up->Write("half"), absl::OkStatus());
    EXPECT_EQ(Get(path), "old");
  }
  EXPECT_THAT(NamesIn(folder.path()), UnorderedElementsAre("out"));
  EXPECT_EQ(Get(path), "old");
  ASSERT_EQ(WriteWholeFile(path, "new"), absl::OkStatus());
  EXPECT_THAT(NamesIn(folder.path()), UnorderedElementsAre("out"));
  EXPECT_EQ(Get(path), "new");
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

// Names that somebody else could have guessed, and linked to a file of ours.
TEST(OutputFile, ItsTemporaryNameCannotBeTaken) {
  const TemporaryFolder folder;
  const std::string path = folder / "out";
  Put(folder / "victim", "mine");
  for (const std::string& guess : {path + ".tmp", path + "." + std::to_string(getpid()) + ".tmp"}) {
    std::filesystem::create_symlink("victim", guess);
  }
  ASSERT_EQ(WriteWholeFile(path, "new"), absl::OkStatus());
  EXPECT_EQ(Get(folder / "victim"), "mine");
  EXPECT_EQ(Get(path), "new");
  RZ_ASSIGN(const auto first, OutputFile::Open(path, OutputFile::As::kWhole));
  RZ_ASSIGN(const auto second, OutputFile::Open(path, OutputFile::As::kWhole));
  EXPECT_EQ(NamesIn(folder.path()).size(), 6u);  // two names of its own
}

TEST(OutputFile, FollowsSymlinks) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "far");
  std::filesystem::create_symlink("far/out", folder / "link");
  std::filesystem::create_symlink(folder / "link", folder / "second");
  for (const std::string text : {"first", "replaced"}) {  // its target is not there at first
    ASSERT_EQ(WriteWholeFile(folder / "second", text), absl::OkStatus());
    EXPECT_EQ(Get(folder / "far/out"), text);
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "second"));
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  }
  EXPECT_THAT(NamesIn(folder / "far"), UnorderedElementsAre("out"));
  std::filesystem::create_symlink("round", folder / "round");
  EXPECT_EQ(WriteWholeFile(folder / "round", "x").code(), absl::StatusCode::kPermissionDenied);
}

TEST(OutputFile, WritesToAFifoWhoseReaderComesLater) {
  const TemporaryFolder folder;
  const std::string path = folder / "fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ASSERT_EQ(CheckWritable(path), absl::OkStatus());
  std::string got;
  std::thread reader([&] {
    const int fd = open(path.c_str(), O_RDONLY);
    char buffer[64];
    while (const ssize_t count = read(fd, buffer, sizeof(buffer))) {
      if (count < 0) break;
      got.append(buffer, static_cast<size_t>(count));
    }
    close(fd);
  });
  const absl::Status written = WriteWholeFile(path, "all of it");
  if (std::filesystem::is_fifo(path)) {
    reader.join();
  } else {
    reader.detach();  // it waits for a FIFO that nobody can reach any more
  }
  ASSERT_EQ(written, absl::OkStatus());
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_EQ(got, "all of it");
}

TEST(OutputFile, WhatCannotBeWrittenIsSaidBefore) {
  const TemporaryFolder folder;
  Put(folder / "file", "kept");
  EXPECT_EQ(CheckWritable(folder / "file"), absl::OkStatus());
  EXPECT_EQ(CheckWritable(folder / "new"), absl::OkStatus());
  EXPECT_EQ(CheckWritable("/dev/null"), absl::OkStatus());
  for (const std::string& bad :
       {folder / "none/new", folder / "file/new", folder.path(), std::string("/dev/full")}) {
    const absl::Status status = CheckWritable(bad);
    EXPECT_THAT(status, Fails(absl::StatusCode::kPermissionDenied, bad + ": cannot write it: "));
  }
  EXPECT_THAT(NamesIn(folder.path()), UnorderedElementsAre("file"));
  EXPECT_EQ(Get(folder / "file"), "kept");
}

TEST(OutputFile, RoomIsLookedAtBefore) {
  const TemporaryFolder folder;
  EXPECT_EQ(CheckWritable(folder / "new", 1 << 20), absl::OkStatus());
  EXPECT_EQ(CheckWritable("/dev/null", uint64_t{1} << 50), absl::OkStatus());
  const absl::Status status = CheckWritable(folder / "new", uint64_t{1} << 50);  // a pebibyte
  EXPECT_THAT(status, Fails(absl::StatusCode::kPermissionDenied, "new: cannot write it: "));
  EXPECT_TRUE(NamesIn(folder.path()).empty());
}

TEST(OutputFile, AGrowingFileThatWasDeletedTakesNoMore) {
  const TemporaryFolder folder;
  for (const auto as : {OutputFile::As::kGrowing, OutputFile::As::kAppended}) {
    RZ_ASSIGN(const auto file, OutputFile::Open(folder / "out", as));
    ASSERT_EQ(file->Write("one"), absl::OkStatus());
    std::filesystem::remove(folder / "out");
    EXPECT_THAT(file->Write("two"),
                Fails(absl::StatusCode::kPermissionDenied, "out: cannot write it: No such file"));
  }
}

TEST(OutputFile, WhoCannotFinishGoesOnElsewhere) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "gone");
  RZ_ASSIGN(const auto file, OutputFile::Open(folder / "gone/out", OutputFile::As::kWhole));
  const std::string text(3 << 20, 'a');  // more than is copied at a time
  ASSERT_EQ(file->Write(text + "torn"), absl::OkStatus());
  std::filesystem::remove_all(folder / "gone");
  EXPECT_EQ(file->Finish().code(), absl::StatusCode::kPermissionDenied);
  RZ_ASSIGN(const auto copy, file->CopyTo(folder / "spare", text.size()));
  ASSERT_EQ(copy->Write("b"), absl::OkStatus());
  ASSERT_EQ(copy->Finish(), absl::OkStatus());
  EXPECT_EQ(Get(folder / "spare"), text + "b");
}

TEST(OutputFile, ASparePathIsInAFolderOfItsOwn) {
  RZ_ASSIGN(const auto first, MakeSparePath("/nowhere/model.safetensors"));
  RZ_ASSIGN(const auto second, MakeSparePath("/nowhere/model.safetensors"));
  EXPECT_NE(first, second);
  for (const std::string& path : {first, second}) {
    EXPECT_THAT(path, HasSubstr("/model.safetensors"));
    const std::filesystem::path at = std::filesystem::path(path).parent_path();
    EXPECT_EQ(std::filesystem::status(at).permissions(), std::filesystem::perms::owner_all);
    std::filesystem::remove(at);
  }
}

TEST(OutputFile, AGrowingFileBeginsAnewAndAnAppendedOneGoesOn) {
  const TemporaryFolder folder;
  for (int run = 0; run < 2; ++run) {
    for (const auto as : {OutputFile::As::kGrowing, OutputFile::As::kAppended}) {
      const std::string path = folder / (as == OutputFile::As::kGrowing ? "growing" : "appended");
      RZ_ASSIGN(const auto file, OutputFile::Open(path, as));
      ASSERT_EQ(file->Write("line\n"), absl::OkStatus());
      EXPECT_THAT(Get(path), HasSubstr("line\n"));  // at once
    }
  }
  EXPECT_EQ(Get(folder / "growing"), "line\n");
  EXPECT_EQ(Get(folder / "appended"), "line\nline\n");
}

std::string Said(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs = {}) {
  return std::string(CheckOutputFiles(outputs, inputs).message());
}

TEST(CheckOutputFiles, ComparesWhatIsNamed) {
  const TemporaryFolder folder;
  Put(folder / "file", "kept");
  std::filesystem::create_directory(folder / "sub");
  Put(folder / "sub/data", "kept");
  std::filesystem::create_symlink("new", folder / "link");
  std::filesystem::create_hard_link(folder / "file", folder / "hard");
  const NamedPath fresh{"--a", folder / "new"}, old{"--a", folder / "file"};
  for (const std::string& same : {folder / "new", folder / "sub/../new", folder / "link"}) {
    EXPECT_EQ(Said({fresh, {"--b", same}}), "--b and --a name one file: " + same);
    EXPECT_EQ(Said({{"--b", same}}, {fresh}), "--b and --a name one file: " + same);
  }
  EXPECT_EQ(Said({old, {"--b", folder / "hard"}}),
            "--b and --a name one file: " + (folder / "hard"));
  EXPECT_EQ(Said({{"--b", "-"}, {"--a", "-"}}), "--a and --b name one file: -");
  EXPECT_THAT(Said({{"--b", folder / "sub/data"}}, {{"data.path", folder / "sub"}}),
              HasSubstr("would replace a file of data.path"));
  EXPECT_EQ(Said({{"--b", folder / "sub/other"}, fresh, old, {"--c", ""}, {"--d", ""}},
                 {{"data.path", folder / "sub"}, {"--e", ""}}),
            "");
  EXPECT_EQ(Said({{"--a", "/dev/null"}, {"--b", "/dev/null"}}), "");
  EXPECT_THAT(NamesIn(folder.path()), UnorderedElementsAre("file", "hard", "link", "sub"));
}

TEST(CheckFolder, AFileIsInTheWay) {
  const TemporaryFolder folder;
  Put(folder / "file", "");
  EXPECT_EQ(CheckFolder({"--a", folder / "new/and/more"}), absl::OkStatus());
  EXPECT_EQ(CheckFolder({"--a", "new/and/more"}), absl::OkStatus());
  EXPECT_EQ(CheckFolder({"--a", folder.path()}), absl::OkStatus());
  for (const std::string& bad : {folder / "file", folder / "file/records"}) {
    EXPECT_EQ(CheckFolder({"--a", bad}).message(),
              "--a: " + (folder / "file") + ": wanted a folder, found a file");
  }
}

TEST(ReadWholeFile, WaitsForNobody) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(ReadWholeFile(folder / "fifo").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadWholeFile(folder / "none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadWholeFile(folder.path()).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReadWholeFile("/dev/zero", 1 << 17)->size(), 1u << 17);
}

}  // namespace
}  // namespace ringzero
