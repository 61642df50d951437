// Files are what the tensors are, whatever their strides and sizes; every failure of the disk is an error that names the file.
#include "integrations/checkpoint/tensor_file_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tests/offload/io_decorators.h"
#include "tests/p2p/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

constexpr int64_t kHalf = TensorFileWriter::kStagingBytes / 2;

std::vector<float> Numbers(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

TensorSource SourceOf(const std::string& name, const std::vector<float>& values,
                      std::vector<int64_t> shape, std::vector<int64_t> strides = {}) {
  return {.spec = {.name = name, .shape = std::move(shape)},
          .values = reinterpret_cast<const std::byte*>(values.data()),
          .strides = std::move(strides)};
}

struct TensorFileWriterTest : public ::testing::Test {
  TemporaryFolder folder;
  std::string path = folder.path() + "/a.safetensors";
  std::vector<std::string> misuses, lines;
  TensorFileOptions options{.decorate = [this](std::unique_ptr<IoEngine> engine) {
    return MakeTracedIo(MakeCheckedIo(std::move(engine), misuses), lines);
  }};

  TensorFiles Written(const std::vector<TensorSource>& tensors) {
    auto writer = TensorFileWriter::Create(options);
    EXPECT_TRUE(writer.ok()) << writer.status();
    const auto checksum = (*writer)->Write(path, tensors);
    EXPECT_TRUE(checksum.ok()) << checksum.status();
    const auto files = TensorFiles::Open(path);
    EXPECT_TRUE(files.ok()) << files.status();
    const auto& file = files->tensors().begin()->second.file;
    EXPECT_EQ(ChecksumOfHead(file->head()), *checksum);
    EXPECT_EQ(file->metadata().at("checksum"), ChecksumOfValues(file->values()));
    EXPECT_EQ(file->head().size() % 4096, 0u) << "values begin where direct I/O can begin";
    return *files;
  }
  void TearDown() override { EXPECT_TRUE(misuses.empty()) << misuses.front(); }
};

TEST_F(TensorFileWriterTest, EveryLengthAroundThePieces) {
  for (const int64_t count :
       {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{1024}, int64_t{1025}, kHalf / 4 - 1,
        kHalf / 4, kHalf / 4 + 1, kHalf / 2, 3 * kHalf / 4 + 5}) {
    SCOPED_TRACE(count);
    const std::vector<float> values = Numbers(count);
    const auto files = Written({SourceOf("w", values, {count})});
    std::vector<float> read(values.size());
    ASSERT_TRUE(files.Read("w", {count}, std::span(read)).ok());
    EXPECT_EQ(read, values);
  }
}

TEST_F(TensorFileWriterTest, RowsOfAnyStrides) {
  // 2 x 3 x 4 x 5, laid out as channels_last: strides of NHWC.
  const std::vector<int64_t> shape = {2, 3, 4, 5}, strides = {60, 1, 15, 3};
  const std::vector<float> values = Numbers(120);
  const auto files = Written({SourceOf("w", values, shape, strides)});
  std::vector<float> rows(120);
  ASSERT_TRUE(files.Read("w", shape, std::span(rows)).ok());
  size_t at = 0;
  for (int n = 0; n < 2; ++n)
    for (int c = 0; c < 3; ++c)
      for (int h = 0; h < 4; ++h)
        for (int w = 0; w < 5; ++w) EXPECT_EQ(rows[at++], values[60 * n + c + 15 * h + 3 * w]);
  std::vector<float> back(120);
  PutRowMajor(std::as_bytes(std::span(rows)), 4, shape, strides,
              reinterpret_cast<std::byte*>(back.data()));
  EXPECT_EQ(back, values);
}

TEST_F(TensorFileWriterTest, WideValuesComeFirstSoThatNoneIsCutInTwo) {
  const std::vector<float> odd = Numbers(kHalf / 4 - 1);
  const int64_t step = int64_t{1} << 40;
  const TensorSource count{.spec = {.name = "w.step", .type = TensorType::kI64},
                           .values = reinterpret_cast<const std::byte*>(&step)};
  const auto files =
      Written({SourceOf("w", odd, {kHalf / 4 - 1}), count, SourceOf("v", odd, {kHalf / 4 - 1})});
  int64_t read = 0;
  ASSERT_TRUE(files.Read("w.step", {}, std::span(&read, 1)).ok());
  EXPECT_EQ(read, step);
  for (const char* name : {"w", "v"}) {
    std::vector<float> values(odd.size());
    ASSERT_TRUE(files.Read(name, {kHalf / 4 - 1}, std::span(values)).ok());
    EXPECT_EQ(values, odd) << name;
  }
}

TEST_F(TensorFileWriterTest, TheHeadComesLastAndThenTheSync) {
  const std::vector<float> values = Numbers(kHalf / 4 + 1);
  Written({SourceOf("w", values, {kHalf / 4 + 1})});
  const std::vector<std::string> wanted = {absl::StrCat("write 4096+", kHalf),
                                           absl::StrCat("write ", 4096 + kHalf, "+4096"),
                                           "write 0+4096", "sync"};
  EXPECT_EQ(lines, wanted);
}

TEST_F(TensorFileWriterTest, EachRequestMayFail) {
  const std::vector<float> values = Numbers(kHalf);
  for (int failing = 0; failing < 6; ++failing) {
    int asked = 0;
    options.decorate = [&](std::unique_ptr<IoEngine> engine) {
      return MakeFaultyIo(MakeCheckedIo(std::move(engine), misuses), [&](const IoRequest&) {
        return asked++ == failing
                   ? absl::ResourceExhaustedError("write at 4096: No space left on device")
                   : absl::OkStatus();
      });
    };
    RZ_ASSIGN(const auto writer, TensorFileWriter::Create(options));
    EXPECT_THAT(writer->Write(path, {SourceOf("w", values, {kHalf})}),
                Says(path + ": write at 4096: No space left"));
    // The disk has room again.
    EXPECT_TRUE(writer->Write(path, {SourceOf("w", values, {kHalf})}).ok());
  }
}

TEST_F(TensorFileWriterTest, ADiskThatDoesNotAnswerIsNotAskedAgain) {
  options.decorate = [](std::unique_ptr<IoEngine> engine) {
    return MakeThrottled(std::move(engine), 1e4);
  };
  options.wait_timeout = std::chrono::milliseconds(20);
  RZ_ASSIGN(const auto writer, TensorFileWriter::Create(options));
  const std::vector<float> values = Numbers(5000);
  EXPECT_THAT(writer->Write(path, {SourceOf("w", values, {5000})}),
              Fails(absl::StatusCode::kDeadlineExceeded, path));
  EXPECT_THAT(writer->Write(path, {}), Fails(absl::StatusCode::kDeadlineExceeded, ""));
}

TEST_F(TensorFileWriterTest, StopsAndSaysWhereItCannotBegin) {
  RZ_ASSIGN(const auto writer, TensorFileWriter::Create(options));
  const std::atomic<bool> stop = true;
  const std::vector<float> values = Numbers(8);
  EXPECT_THAT(writer->Write(path, {SourceOf("w", values, {8})}, &stop),
              Fails(absl::StatusCode::kCancelled, path));
  EXPECT_THAT(writer->Write(folder.path() + "/none/a", {}),
              Says("/none/a: cannot be made: No such file"));
}

}  // namespace
}  // namespace ringzero
