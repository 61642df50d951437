// Cores and memory of a host, as a made-up kernel tells them; what is said of too few cores.
#include "integrations/cli/resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

using ::testing::HasSubstr;

class HostTest : public testing::Test {
 protected:
  HostTest() : root_(absl::StrCat(testing::TempDir(), "/host-", getpid(), "/")) {
    std::filesystem::remove_all(root_);
  }
  ~HostTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full(root_ + path);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void WriteFree(int64_t kib) {
    Write("proc/meminfo", absl::StrCat("MemTotal:   99999999 kB\nMemAvailable: ", kib, " kB\n"));
  }

  const std::string root_;
};

TEST_F(HostTest, TheMaskWhereNoGroupLimits) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_EQ(UsableCores(root_), CPU_COUNT(&mask));
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(UsableCores(root_), CPU_COUNT(&mask));
  Write("sys/fs/cgroup/cpu.max", "100000000 100000\n");
  EXPECT_EQ(UsableCores(root_), CPU_COUNT(&mask)) << "a quota gives no cores";
}

TEST_F(HostTest, TheLeastQuotaAboveThisProcess) {
  Write("proc/self/cgroup", "0::/jobs/mine\n");
  Write("sys/fs/cgroup/jobs/mine/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/jobs/cpu.max", "50000 100000\n");
  EXPECT_EQ(UsableCores(root_), 0.5);
  Write("sys/fs/cgroup/jobs/mine/cpu.max", "25000 100000\n");
  EXPECT_EQ(UsableCores(root_), 0.25);
}

TEST_F(HostTest, QuotasOfTheFirstVersion) {
  Write("proc/self/cgroup", "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableCores(root_), 0.5);
  Write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableCores(root_), 0.5) << "-1: no limit of its own";
}

TEST(Cores, ALineOnlyWhereSpinningHurts) {
  EXPECT_EQ(DescribeCrowd({.workers = 4, .threads = 2}, 2),
            "4 workers with 2 threads each share 2 cores");
  EXPECT_THAT(DescribeCrowd({.workers = 1, .threads = 2}, 0.5), HasSubstr("share 0.5 cores"));
  EXPECT_EQ(DescribeCrowd({.workers = 4, .threads = 2}, 8), "");
  EXPECT_EQ(DescribeCrowd({.workers = 4, .threads = 1}, 2), "") << "one thread waits for none";
}

TEST_F(HostTest, NothingTellsOfMemory) { EXPECT_FALSE(FindHostMemory(root_).bytes.has_value()); }

TEST_F(HostTest, WhatIsAvailable) {
  WriteFree(4096);
  const FitBudget found = FindHostMemory(root_);
  EXPECT_EQ(found.bytes, 4096 * 1024);
  EXPECT_EQ(found.source, "MemAvailable of /proc/meminfo");
}

TEST_F(HostTest, TheTightestGroupAboveThisOne) {
  WriteFree(4096);
  Write("proc/self/cgroup", "0::/jobs/mine\n");
  Write("sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  Write("sys/fs/cgroup/jobs/mine/memory.current", "100\n");
  EXPECT_EQ(FindHostMemory(root_).bytes, 4096 * 1024) << "no limit";
  Write("sys/fs/cgroup/jobs/memory.max", "3000000\n");
  Write("sys/fs/cgroup/jobs/memory.current", "1000000\n");
  EXPECT_EQ(FindHostMemory(root_).bytes, 2000000);
  // File pages are given up at once.
  Write("sys/fs/cgroup/jobs/memory.stat", "anon 5\ninactive_file 600000\n");
  EXPECT_EQ(FindHostMemory(root_).bytes, 2600000);
  EXPECT_EQ(FindHostMemory(root_).source, "what is left of the memory limit of cgroup /jobs");
  Write("sys/fs/cgroup/jobs/mine/memory.max", "50\n");
  EXPECT_EQ(FindHostMemory(root_).bytes, 0) << "nothing is left, not less than nothing";
}

TEST_F(HostTest, GroupsOfTheFirstVersion) {
  WriteFree(1 << 20);
  Write("proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n");
  // In a container the path is the host's, and its own group lies at the top.
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000000\n");
  Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "3000000\n");
  EXPECT_EQ(FindHostMemory(root_).bytes, 5000000);
  EXPECT_EQ(FindHostMemory(root_).source, "what is left of the memory limit of cgroup /");
}

}  // namespace
}  // namespace ringzero
