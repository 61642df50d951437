// RZ_CHECK: for our own bugs only. Prints the condition, the place and a message, then aborts.
// The world's faults (files, peers, users) are absl::Status, never a check.
#ifndef RINGZERO_BASE_CHECK_H_
#define RINGZERO_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <string>

namespace ringzero {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition,
                                     const std::string& message) {
  std::fprintf(stderr, "ringzero: internal error at %s:%d: (%s) does not hold: %s\n", file, line,
               condition, message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace ringzero

// RZ_CHECK(condition, message): message is evaluated only on failure (a std::string).
#define RZ_CHECK(condition, message)                                      \
  do {                                                                    \
    if (!(condition)) [[unlikely]]                                        \
      ::ringzero::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)

#endif  // RINGZERO_BASE_CHECK_H_
