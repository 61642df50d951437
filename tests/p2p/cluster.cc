// Builds clusters of every transport for tests.
#include "tests/p2p/cluster.h"

#include <numeric>
#include <thread>

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
  return {.slots = {2},
          .parameter_bytes = 1 << 20,
          .sum_bytes = 1 << 20,
          .received_parameter_bytes = 1 << 20,
          .received_sum_bytes = 1 << 20,
          .on_failure = nullptr};
}

Cluster MakeCluster(const MakeTransports& make, const std::vector<TransportOptions>& options) {
  auto transports = make(options);
  EXPECT_TRUE(transports.ok()) << transports.status();
  return Cluster(*std::move(transports));
}

Buffer Filled(Transport& transport, MemoryUse use, int values, float first) {
  absl::StatusOr<Buffer> buffer = transport.Allocate(values * sizeof(float), use);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  if (!buffer.ok()) return Buffer();
  std::iota(buffer->as<float>().begin(), buffer->as<float>().end(), first);
  return *std::move(buffer);
}

void Give(Transport& from, int to, MessageKey key, float first, int values) {
  EXPECT_EQ(from.Give(WorkerId(to), key, Filled(from, MemoryUse::kSums, values, first)),
            absl::OkStatus());
}

void ExpectOwned(Transport& at, int from, MessageKey key, Waiter<Buffer>& waiter, size_t bytes) {
  EXPECT_EQ(at.ExpectOwned(WorkerId(from), key, bytes, waiter.Callback()), absl::OkStatus());
}

void ExpectShared(Transport& at, int from, MessageKey key, Waiter<SharedBuffer>& waiter,
                  size_t bytes) {
  EXPECT_EQ(at.ExpectShared(WorkerId(from), key, bytes, waiter.Callback()), absl::OkStatus());
}

void PassOne(Transport& from, Transport& to, MessageKey key, int values) {
  Waiter<Buffer> waiter;
  ExpectOwned(to, from.self().value, key, waiter, values * sizeof(float));
  Give(from, to.self().value, key, 3.5F, values);
  const Buffer got = waiter.Take();
  ASSERT_TRUE(got);
  for (int i = 0; i < values; ++i) EXPECT_EQ(got.as<float>()[i], 3.5F + static_cast<float>(i));
}

}  // namespace ringzero
