// Host: what this machine is and what it can do at this moment: the measure for every other number.
//
//   const HostFacts facts = ReadHostFacts();          // CPU model, caches, cores
//   const HostSpeed speed = MeasureHost(facts);       // memcpy, core to core; about 0.2 s
//
// Blocking; from any thread. Only PinToCore changes the calling thread's affinity.
#ifndef RINGZERO_BENCH_RING_HOST_H_
#define RINGZERO_BENCH_RING_HOST_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ringzero {

struct HostFacts {
  std::string name;             // of the host
  std::string cpu_model;        // "unknown" where /proc/cpuinfo does not say
  std::vector<int> cores;       // that this process may use, ascending
  size_t last_cache_bytes = 0;  // 32 MiB where the system does not say
};
HostFacts ReadHostFacts();

struct HostSpeed {
  double memcpy_gb_per_s = 0;   // of one core, out of memory; each copied byte counts once
  double core_to_core_us = -1;  // one way, both spinning, the first two cores; -1: only one core
  double futex_wake_us = -1;    // one way, the receiver asleep
};
HostSpeed MeasureHost(const HostFacts& facts);

// The calling thread, and those it makes later, stay on the core. Internal if the system refuses.
absl::Status PinToCore(int core);

// Reads through memory until nothing that was there before is in the last-level cache.
void EvictCaches(const HostFacts& facts);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_HOST_H_
