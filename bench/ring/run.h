// RingMain: the whole of ring_perf, from its words to its exit code.
//
//   return RingMain({"-b", "8", "-e", "64M", "-f", "2", "--mode", "pingpong"});
//
// 0 done; 1 wrong data; 2 bad flags, or what they ask for is not there; 3 a worker was lost or a
// wait took too long; 5 anything else; 128+n ended by signal n. One line on stderr says why.
#ifndef RINGZERO_BENCH_RING_RUN_H_
#define RINGZERO_BENCH_RING_RUN_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ringzero {

inline constexpr int kRingWrongData = 1;

int RingExitCode(const absl::Status& status);
int RingMain(const std::vector<std::string>& words);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_RUN_H_
