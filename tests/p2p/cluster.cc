// Builds clusters of every transport for tests.
#include "tests/p2p/cluster.h"

#include <numeric>
#include <thread>

#include "p2p/faulty_transport.h"
#include "p2p/local_transport.h"
#include "p2p/shm_transport.h"

// Debian's Abseil is built without ThreadSanitizer, which therefore cannot see that absl::Status
// counts its references atomically, and calls the last one's delete a race with an earlier read.
// (A true use after free is AddressSanitizer's to find.)
#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race_top:operator delete\n"; }
#endif

namespace ringzero {

bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TransportOptions SmallOptions() {
  return {.slots = {2}, .parameter_bytes = 1 << 20, .sum_bytes = 1 << 20, .on_failure = nullptr};
}

Cluster MakeLocal(const std::vector<TransportOptions>& options) {
  auto transports = CreateLocalTransports(options);
  EXPECT_TRUE(transports.ok()) << transports.status();
  return Cluster(*std::move(transports));
}

Cluster MakeShm(const std::vector<TransportOptions>& options) {
  auto endpoints = MakeShmEndpoints(static_cast<int>(options.size()));
  EXPECT_TRUE(endpoints.ok()) << endpoints.status();
  std::vector<std::unique_ptr<Transport>> transports;
  for (size_t w = 0; w < options.size(); ++w) {
    auto transport = CreateShmTransport(std::move((*endpoints)[w]), options[w]);
    EXPECT_TRUE(transport.ok()) << transport.status();
    transports.push_back(*std::move(transport));
  }
  return Cluster(std::move(transports));
}

Cluster MakeDelayedLocal(const std::vector<TransportOptions>& options) {
  auto transports = CreateLocalTransports(options);
  EXPECT_TRUE(transports.ok()) << transports.status();
  for (std::unique_ptr<Transport>& each : *transports) {
    each = MakeFaulty(std::move(each), {.seed = 1, .max_delay = std::chrono::milliseconds(2)});
  }
  return Cluster(*std::move(transports));
}

Buffer Filled(Transport& transport, MemoryUse use, int values, float first) {
  absl::StatusOr<Buffer> buffer = transport.Allocate(values * sizeof(float), use);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  if (!buffer.ok()) return Buffer();
  std::iota(buffer->as<float>().begin(), buffer->as<float>().end(), first);
  return *std::move(buffer);
}

}  // namespace ringzero
