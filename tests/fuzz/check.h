// What a fuzz target finds wrong: said, and then the end.
#ifndef RINGZERO_TESTS_FUZZ_CHECK_H_
#define RINGZERO_TESTS_FUZZ_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <string>

namespace ringzero {

inline void FuzzCheck(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

}  // namespace ringzero

#endif  // RINGZERO_TESTS_FUZZ_CHECK_H_
