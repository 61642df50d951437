// Reads /proc and /sys, copies memory, and passes a word between two cores.
#include "bench/ring/host.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "bench/ring/statistics.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kUnknownCache = size_t{32} << 20;

// Bytes of the largest cache of the first core, read from text such as "32768K".
size_t LastCacheBytes() {
  size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index", index, "/size"));
    std::string text;
    uint64_t kib = 0;
    if (file >> text && absl::SimpleAtoi(text.substr(0, text.size() - 1), &kib)) {
      largest = std::max<size_t>(largest, text.back() == 'M' ? kib << 20 : kib << 10);
    }
  }
  return largest == 0 ? kUnknownCache : largest;
}

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

// Median of a few copies between blocks twice as large as the last cache.
double MemcpySpeed(const HostFacts& facts) {
  const size_t bytes = 2 * facts.last_cache_bytes;
  const auto from = std::make_unique<char[]>(bytes);
  const auto to = std::make_unique<char[]>(bytes);
  std::memset(from.get(), 1, bytes);
  std::memset(to.get(), 2, bytes);
  std::vector<double> speeds;
  for (int i = 0; i < 3; ++i) {
    const Clock::time_point begin = Clock::now();
    std::memcpy(to.get(), from.get(), bytes);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the copy is not optimized away
    speeds.push_back(static_cast<double>(bytes) / 1e9 / Seconds(begin));
  }
  return StatisticsOf(speeds).median;
}

enum class Arrive { kSpinning, kAsleep };

class Word {
 public:
  void Set(uint32_t value, Arrive arrive) {
    word_.store(value, std::memory_order_release);
    if (arrive == Arrive::kAsleep) Futex(FUTEX_WAKE_PRIVATE, 1);
  }
  void Await(uint32_t value, Arrive arrive) {
    while (true) {
      const uint32_t now = word_.load(std::memory_order_acquire);
      if (now == value) return;
      if (arrive == Arrive::kAsleep) Futex(FUTEX_WAIT_PRIVATE, now);
    }
  }

 private:
  void Futex(int operation, uint32_t value) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), operation, value, nullptr, nullptr, 0);
  }
  alignas(64) std::atomic<uint32_t> word_{0};
  char rest_of_the_line_[60] = {};
};

// Microseconds one way between two threads of this process on two cores; `turns` round trips.
double CoreToCoreMicroseconds(const HostFacts& facts, Arrive arrive, int turns) {
  Word there;
  Word back;
  // The median of ten parts: a part in which something else ran on a core does not count.
  constexpr int kParts = 10;
  const int part = turns / kParts;
  const uint32_t all = static_cast<uint32_t>(part) * kParts;
  std::thread echo([&] {
    // A pin that is refused shows in the numbers only; the caller's own pin reports it.
    PinToCore(facts.cores[1 % facts.cores.size()]).IgnoreError();
    for (uint32_t i = 1; i <= all; ++i) {
      there.Await(i, arrive);
      back.Set(i, arrive);
    }
  });
  std::vector<double> times;
  std::thread caller([&] {
    PinToCore(facts.cores[0]).IgnoreError();
    for (uint32_t i = 1; i <= all;) {
      const Clock::time_point begin = Clock::now();
      for (int turn = 0; turn < part; ++turn, ++i) {
        there.Set(i, arrive);
        back.Await(i, arrive);
      }
      times.push_back(Seconds(begin) * 1e6 / (2.0 * part));
    }
  });
  caller.join();
  echo.join();
  return StatisticsOf(times).median;
}

}  // namespace

HostFacts ReadHostFacts() {
  HostFacts facts;
  char name[256] = "unknown";
  gethostname(name, sizeof(name) - 1);
  facts.name = name;
  facts.cpu_model = FieldOfFile("/proc/cpuinfo", "model name");
  if (facts.cpu_model.empty()) facts.cpu_model = "unknown";
  facts.last_cache_bytes = LastCacheBytes();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) facts.cores.push_back(core);
    }
  }
  if (facts.cores.empty()) facts.cores.push_back(0);
  return facts;
}

HostSpeed MeasureHost(const HostFacts& facts) {
  HostSpeed speed;
  speed.memcpy_gb_per_s = MemcpySpeed(facts);
  if (facts.cores.size() > 1) {
    speed.core_to_core_us = CoreToCoreMicroseconds(facts, Arrive::kSpinning, 20000);
    speed.futex_wake_us = CoreToCoreMicroseconds(facts, Arrive::kAsleep, 2000);
  }
  return speed;
}

absl::Status PinToCore(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    return Internal("cannot pin a thread to core ", core, ": ", std::strerror(errno));
  }
  return absl::OkStatus();
}

void EvictCaches(const HostFacts& facts) {
  const size_t words = 2 * facts.last_cache_bytes / sizeof(uint64_t);
  const auto memory = std::make_unique<uint64_t[]>(words);
  uint64_t sum = 0;
  for (size_t i = 0; i < words; i += 8) memory[i] = i;
  for (size_t i = 0; i < words; i += 8) sum += memory[i];
  volatile uint64_t kept = sum;
  (void)kept;
}

}  // namespace ringzero
