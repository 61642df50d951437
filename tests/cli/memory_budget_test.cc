// What a host can give, as a made-up kernel tells it.
#include "integrations/cli/memory_budget.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

class MemoryBudgetTest : public testing::Test {
 protected:
  MemoryBudgetTest() : root_(absl::StrCat(testing::TempDir(), "/budget-", getpid(), "/")) {
    std::filesystem::remove_all(root_);
  }
  ~MemoryBudgetTest() override { std::filesystem::remove_all(root_); }

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

TEST_F(MemoryBudgetTest, NobodyTells) { EXPECT_FALSE(FindHostMemory(root_).bytes.has_value()); }

TEST_F(MemoryBudgetTest, WhatIsAvailable) {
  WriteFree(4096);
  const FitBudget found = FindHostMemory(root_);
  EXPECT_EQ(found.bytes, 4096 * 1024);
  EXPECT_EQ(found.source, "MemAvailable of /proc/meminfo");
}

TEST_F(MemoryBudgetTest, TheTightestGroupAboveThisOne) {
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

TEST_F(MemoryBudgetTest, GroupsOfTheFirstVersion) {
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
