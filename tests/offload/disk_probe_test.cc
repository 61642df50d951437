// A probe finds the rate of a disk whose rate is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "offload/io_engine.h"
#include "offload/tier_file.h"
#include "tests/offload/io_decorators.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using std::chrono::milliseconds;

TEST(ProbeDisk, FindsTheRateOfASlowedDisk) {
  for (const double rate : {20e6, 80e6}) {
    RZ_ASSIGN(
        const DiskSpeed found,
        ProbeDisk(MakeThrottled(MakeMemoryEngine(), rate), /*file=*/1,
                  {.file_bytes = 4 << 20, .block_bytes = 1 << 16, .time = milliseconds(400)}));
    // What is under way at the end counts with the time that it takes. A busy machine makes the disk
    // slower, and never faster.
    EXPECT_LE(found.bytes_per_second, 1.01 * rate);
    EXPECT_GE(found.bytes_per_second, 0.5 * rate);
    EXPECT_GT(found.computing, 0);
    EXPECT_LT(found.computing, 1 / found.bytes_per_second) << "one thread, which mostly waits";
  }
}

TEST(ProbeDisk, ReadsAndWritesAFile) {
  RZ_ASSIGN(const auto file, TierFile::Create(testing::TempDir(), 4 << 20));
  RZ_ASSIGN(ChosenIoEngine io, MakeIoEngine({}));
  RZ_ASSIGN(const DiskSpeed speed, ProbeDisk(std::move(io.engine), file.descriptor(),
                                             {.file_bytes = 4 << 20, .time = milliseconds(50)}));
  EXPECT_GT(speed.bytes_per_second, 0);
  EXPECT_GT(speed.computing, 0);
}

TEST(ProbeDisk, ErrorsOfTheDiskAreErrors) {
  RZ_ASSIGN(ChosenIoEngine io, MakeIoEngine({}));
  const auto none = ProbeDisk(std::move(io.engine), /*file=*/-1, {.time = milliseconds(50)});
  EXPECT_FALSE(none.ok());
  const auto stuck = ProbeDisk(MakeThrottled(MakeMemoryEngine(), 1), /*file=*/1,
                               {.time = milliseconds(50), .wait_timeout = milliseconds(50)});
  EXPECT_EQ(stuck.status().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace ringzero
