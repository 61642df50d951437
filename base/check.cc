// Aborts with the broken condition and its place.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace ringzero {

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "ringzero: internal error at %s:%d: (%s) does not hold: %s\n", file, line,
               condition, message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace ringzero
