// Builds clusters of every transport for tests.
#include "tests/p2p/cluster.h"

#include <numeric>
#include <span>
#include <thread>

#include "p2p/ucx/ucx_transport.h"

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
  TransportOptions options;
  options.parameter_bytes = options.sum_bytes = 1 << 20;
  return options;
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

Buffer Empty(Transport& transport, int values) {
  return Filled(transport, MemoryUse::kSums, values, -1e6);
}

bool Holds(const Buffer& block, float first) {
  const std::span<float> values = block.as<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != first + static_cast<float>(i)) return false;
  }
  return true;
}

BlockCall SendFilled(Transport& from, int to, MessageKey key, float first, int values) {
  BlockCall call = {Filled(from, MemoryUse::kSums, values, first), {}};
  EXPECT_EQ(from.Send(WorkerId(to), key, call.block.as<std::byte>(), call.ends.Next()),
            absl::OkStatus());
  return call;
}

BlockCall PostEmpty(Transport& at, int from, MessageKey key, int values) {
  BlockCall call = {Empty(at, values), {}};
  EXPECT_EQ(at.Post(WorkerId(from), key, call.block.as<std::byte>(), call.ends.Next()),
            absl::OkStatus());
  return call;
}

void ExpectArrival(BlockCall& posted, float first) {
  ASSERT_EQ(posted.Take(), absl::OkStatus());
  EXPECT_TRUE(Holds(posted.block, first)) << posted.block.as<float>()[0];
}

void PassOne(Transport& from, Transport& to, MessageKey key, int values) {
  BlockCall arrived = PostEmpty(to, from.self().value, key, values);
  BlockCall sent = SendFilled(from, to.self().value, key, 3.5F, values);
  ExpectArrival(arrived, 3.5F);
  EXPECT_EQ(sent.Take(), absl::OkStatus());
}

namespace {

std::string UcxMissing() { return UcxVersion().empty() ? "built without UCX" : ""; }

constexpr int kMostWorkers = 4;  // in any test of the suites

}  // namespace

std::vector<Implementation> AllImplementations() {
  return {
      {"local", LocalTransports()},
      {"shm", ShmTransports()},
      {"polled_local", Polled(LocalTransports())},
      {"polled_shm", Polled(ShmTransports())},
      {"delayed_local", Delayed(LocalTransports(), 1, std::chrono::milliseconds(2))},
      {"checksummed_local", Checksummed(LocalTransports()), 8},
      {"checksummed_shm", Checksummed(ShmTransports()), 8},
      {"lanes", LaneTransports()},
      {"lanes_shm", LaneTransports(ShmTransports())},
      {"ucx", UcxTransports(), 0, UcxMissing, "/memory"},
      {"ucx_tcp", UcxTcpTransports(), 0, UcxMissing, "ucx tcp/"},
      {"polled_ucx", Polled(UcxTransports()), 0, UcxMissing, "/memory"},
      {"checksummed_ucx", Checksummed(UcxTransports()), 8, UcxMissing, "/memory"},
      // With two hosts every message to a neighbour goes over UCX, and every second one stays here.
      {"mixed", MixedTransports(2), 0, UcxMissing},
      {"nccl", NcclTransports(), 0, [] { return NcclMissing(kMostWorkers); }},
  };
}

}  // namespace ringzero
