// Golden files: what is printed must equal a file; RINGZERO_REWRITE_GOLDEN=1 writes it anew.
#ifndef RINGZERO_TESTS_ZERO_CONFIG_GOLDEN_H_
#define RINGZERO_TESTS_ZERO_CONFIG_GOLDEN_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace ringzero {

// `path` is counted from the project's root, where tests run.
inline void ExpectGolden(const std::string& path, const std::string& actual) {
  if (const char* rewrite = std::getenv("RINGZERO_REWRITE_GOLDEN");
      rewrite != nullptr && std::string(rewrite) == "1") {
    std::ofstream(path, std::ios::binary) << actual;
    return;
  }
  std::ifstream in(path, std::ios::binary);
  ASSERT_TRUE(in) << path << " is missing: RINGZERO_REWRITE_GOLDEN=1 writes it";
  std::ostringstream expected;
  expected << in.rdbuf();
  EXPECT_EQ(actual, expected.str()) << path << " differs; RINGZERO_REWRITE_GOLDEN=1 rewrites it";
}

}  // namespace ringzero

#endif  // RINGZERO_TESTS_ZERO_CONFIG_GOLDEN_H_
