// The tests' main: GoogleTest's, and --files=a_test.cc,b_test.cc, which runs the cases in these
// sources only.
//
//   build/test/bin/zero_test --files=engine_test.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <sstream>
#include <string>

namespace {

std::set<std::string> FilesOf(const std::string& list) {
  std::set<std::string> files;
  std::istringstream in(list);
  for (std::string file; std::getline(in, file, ',');) files.insert(file);
  return files;
}

// A filter of GoogleTest's that names every case whose source is one of these.
std::string FilterOf(const std::set<std::string>& files) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string filter;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      const std::string path = test.file();
      if (!files.contains(path.substr(path.rfind('/') + 1))) continue;
      filter += std::string(filter.empty() ? "" : ":") + suite.name() + "." + test.name();
    }
  }
  return filter;
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__)
// In place of AddressSanitizer's, which looks at `local` after the call. UCX 1.22 asks whether it may
// read a peer's memory by reading the place of `local` itself there, into `local`. If the peer is a
// fork of this process the call succeeds, and `local` is rubbish.
extern "C" ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long local_count,
                                    const iovec* remote, unsigned long remote_count,
                                    unsigned long flags) {
  return syscall(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, flags);
}
#endif

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const std::string option = "--files=";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind(option, 0) != 0) {
      std::fprintf(stderr, "unknown argument %s; there is --files=a_test.cc,b_test.cc\n", argv[i]);
      return 2;
    }
    if (testing::GTEST_FLAG(filter) != "*")
      continue;  // that of a caller, or of a death test's child
    const std::string filter = FilterOf(FilesOf(argument.substr(option.size())));
    if (filter.empty()) {
      std::fprintf(stderr, "no case is in %s\n", argv[i] + option.size());
      return 2;
    }
    testing::GTEST_FLAG(filter) = filter;
  }
  return RUN_ALL_TESTS();
}
