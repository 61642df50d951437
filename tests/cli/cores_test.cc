// How many cores there are, as a made-up kernel tells it, and what is said where they are too few.
#include "integrations/cli/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CoresTest : public testing::Test {
 protected:
  CoresTest() : root_(absl::StrCat(testing::TempDir(), "/cores-", getpid(), "/")) {
    std::filesystem::remove_all(root_);
  }
  ~CoresTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full(root_ + path);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  const std::string root_;
};

TEST_F(CoresTest, TheMaskWhereNoGroupLimits) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_EQ(UsableCores(root_), CPU_COUNT(&mask));
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(UsableCores(root_), CPU_COUNT(&mask));
  Write("sys/fs/cgroup/cpu.max", "100000000 100000\n");
  EXPECT_EQ(UsableCores(root_), CPU_COUNT(&mask)) << "a quota gives no cores";
}

TEST_F(CoresTest, TheLeastQuotaAboveThisProcess) {
  Write("proc/self/cgroup", "0::/jobs/mine\n");
  Write("sys/fs/cgroup/jobs/mine/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/jobs/cpu.max", "50000 100000\n");
  EXPECT_EQ(UsableCores(root_), 0.5);
  Write("sys/fs/cgroup/jobs/mine/cpu.max", "25000 100000\n");
  EXPECT_EQ(UsableCores(root_), 0.25);
}

TEST_F(CoresTest, QuotasOfTheFirstVersion) {
  Write("proc/self/cgroup", "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableCores(root_), 0.5);
  Write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableCores(root_), 0.5) << "-1: no limit of its own";
}

TEST(Cores, ALineOnlyWhereSpinningHurts) {
  EXPECT_THAT(DescribeCrowd({.workers = 4, .threads = 2}, 2),
              AllOf(HasSubstr("4 workers with 2 threads each"), HasSubstr("share 2 cores"),
                    HasSubstr("OMP_WAIT_POLICY=passive")));
  EXPECT_THAT(DescribeCrowd({.workers = 1, .threads = 2}, 0.5), HasSubstr("share 0.5 cores"));
  EXPECT_EQ(DescribeCrowd({.workers = 4, .threads = 2}, 8), "");
  EXPECT_EQ(DescribeCrowd({.workers = 4, .threads = 1}, 2), "") << "one thread waits for none";
}

}  // namespace
}  // namespace ringzero
