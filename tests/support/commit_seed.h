// The number by which a commit draws the points of a test (docs/testing.md).
#ifndef RINGZERO_TESTS_SUPPORT_COMMIT_SEED_H_
#define RINGZERO_TESTS_SUPPORT_COMMIT_SEED_H_

#include <cstdint>
#include <cstdlib>

namespace ringzero {

// RINGZERO_TEST_SEED; 0 without it.
inline uint64_t CommitSeed() {
  const char* const seed = std::getenv("RINGZERO_TEST_SEED");
  return seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10);
}

}  // namespace ringzero

#endif  // RINGZERO_TESTS_SUPPORT_COMMIT_SEED_H_
