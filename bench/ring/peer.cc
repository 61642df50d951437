// Chooses the peer that does what the run does. Peers in shared memory, without our transports:
// plain copies from the neighbour, and a bare wake.
#include "bench/ring/peer.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/buffer.h"
#include "base/status.h"
#include "bench/ring/statistics.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;

size_t Round(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

bool WithMemcpy(const RingOptions& options) {
  return options.mode == RingMode::kShift && options.copy;
}
bool WithWake(const RingOptions& options) {
  return options.mode == RingMode::kPingpong && !options.copy;
}

bool OverUcx(const RingOptions& options) {
  return options.transport == "ucx" && !options.copy && options.workers == 2 &&
         (options.mode == RingMode::kPingpong || options.mode == RingMode::kShift ||
          options.mode == RingMode::kStream);
}

double Microseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

// Every worker copies from its left neighbour's part into memory of its own, all at the same time,
// and none waits for another.
class MemcpyRing final : public Peer {
 public:
  explicit MemcpyRing(const PeerSetup& setup) : setup_(setup) {}

  std::string name() const override {
    return absl::StrCat("memcpy between shared mappings, a ring of ", setup_.options.workers);
  }

  absl::Status Prepare(const TrafficSetup& traffic) override {
    copies_.clear();
    for (int i = 0; i < traffic.buffers; ++i) copies_.push_back(MakeHeapBuffer(traffic.bytes));
    const std::span<std::byte> mine = setup_.area.BytesOf(self());
    const size_t needed = PeerBytes(traffic.bytes, traffic.buffers);
    if (needed > mine.size()) return absl::InternalError("the shared area is too small");
    FillData({self(), 0}, mine.first(needed));
    return absl::OkStatus();
  }

  absl::StatusOr<double> Measure(const TrafficSetup& traffic, int iterations) override {
    Transport& transport = setup_.waiting->transport();
    const int workers = transport.workers();
    const std::byte* from =
        setup_.area.BytesOf(WorkerId((self().value + workers - 1) % workers)).data();
    const size_t stride = PeerBytes(traffic.bytes, 1);
    std::vector<double> times;
    // One more before them that is not timed, as in ours.
    for (int i = -1; i < iterations; ++i) {
      const Clock::time_point begin = Clock::now();
      for (int a = 0; a < traffic.aggregate; ++a) {
        const int slot = ((i + 1) * traffic.aggregate + a) % traffic.buffers;
        std::memcpy(copies_[slot].data(), from + slot * stride, traffic.bytes);
      }
      if (i >= 0) times.push_back(Microseconds(begin) / traffic.aggregate);
      transport.Poll();  // a worker that polls is alive
    }
    return StatisticsOf(std::move(times)).median;
  }

 private:
  WorkerId self() const { return setup_.waiting->transport().self(); }
  const PeerSetup setup_;
  std::vector<Buffer> copies_;
};

// Two workers pass a word to and fro: asleep, or spinning if ours poll.
class Wake final : public Peer {
 public:
  explicit Wake(const PeerSetup& setup) : setup_(setup) {}

  std::string name() const override {
    return spins() ? "a word in shared memory, both spinning"
                   : "a bare futex wake, receiver asleep";
  }
  absl::Status Prepare(const TrafficSetup&) override { return absl::OkStatus(); }

  absl::StatusOr<double> Measure(const TrafficSetup&, int iterations) override {
    std::vector<double> times;
    times.reserve(static_cast<size_t>(iterations) + 1);
    Clock::time_point last = Clock::now();
    for (int i = -1; i < iterations; ++i) {
      ++turn_;
      if (self().value == 0) Set(WorkerId(1));
      RZ_RETURN_IF_ERROR(Await());
      if (self().value == 1) Set(WorkerId(0));
      const Clock::time_point now = Clock::now();
      const std::chrono::duration<double, std::micro> time = now - last;
      if (i >= 0) times.push_back(time.count() / 2);
      last = now;
    }
    return StatisticsOf(std::move(times)).median;
  }

 private:
  WorkerId self() const { return setup_.waiting->transport().self(); }
  bool spins() const { return setup_.options.progress == ProgressMode::kCaller; }

  void Set(WorkerId worker) {
    std::atomic<uint32_t>& word = setup_.area.WordOf(worker);
    word.store(turn_, std::memory_order_release);
    if (!spins()) Futex(word, FUTEX_WAKE, 1);
  }

  absl::Status Await() {
    std::atomic<uint32_t>& word = setup_.area.WordOf(self());
    const Clock::time_point begin = Clock::now();
    for (uint64_t turn = 1;; ++turn) {
      const uint32_t now = word.load(std::memory_order_acquire);
      if (now == turn_) return absl::OkStatus();
      if (!spins()) Futex(word, FUTEX_WAIT, now);
      if (spins() && turn % 1000000 != 0) continue;
      RZ_RETURN_IF_ERROR(setup_.waiting->transport().status());
      if (Clock::now() - begin > std::chrono::seconds(60)) {
        return absl::DeadlineExceededError("waited 60 s for a bare wake");
      }
    }
  }

  // Waits at most a second.
  static void Futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
    const timespec second{.tv_sec = 1, .tv_nsec = 0};
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value,
            operation == FUTEX_WAIT ? &second : nullptr, nullptr, 0);
  }

  const PeerSetup setup_;
  uint32_t turn_ = 0;
};

}  // namespace

absl::StatusOr<SharedArea> SharedArea::Create(int workers, size_t bytes_each) {
  const size_t words = Round(static_cast<size_t>(workers) * kLine);
  const size_t bytes = words + static_cast<size_t>(workers) * Round(bytes_each);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mmap of ", bytes, " bytes: ", std::strerror(errno)));
  }
  const auto unmap = [bytes](std::byte* begin) { munmap(begin, bytes); };
  return SharedArea{.memory = std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), unmap),
                    .words_bytes = words,
                    .bytes_each = bytes_each};
}

std::span<std::byte> SharedArea::BytesOf(WorkerId worker) const {
  const size_t before = words_bytes + static_cast<size_t>(worker.value) * Round(bytes_each);
  return {memory.get() + before, bytes_each};
}

std::atomic<uint32_t>& SharedArea::WordOf(WorkerId worker) const {
  std::byte* line = memory.get() + static_cast<size_t>(worker.value) * kLine;
  return *reinterpret_cast<std::atomic<uint32_t>*>(line);
}

absl::Status CheckComparable(const RingOptions& options) {
  if (!options.compare) return absl::OkStatus();
  if (options.shares_memory() && (WithMemcpy(options) || WithWake(options))) {
    return absl::OkStatus();
  }
  if (OverUcx(options)) return CheckUcxPerftest();
  return InvalidArgument(
      "--compare: nothing does what --transport ", options.transport, " --mode ",
      ToString(options.mode),
      " does; there are: shm and local with --mode shift --copy (copies between shared mappings) "
      "and with --mode pingpong (a bare wake); ucx with --mode pingpong, --mode stream and "
      "--mode shift --workers 2 (ucx_perftest)");
}

absl::StatusOr<std::unique_ptr<Peer>> MakePeer(const PeerSetup& setup) {
  RZ_RETURN_IF_ERROR(CheckComparable(setup.options));
  if (OverUcx(setup.options)) return MakeUcxPerftest(setup);
  if (setup.area.memory == nullptr) {
    return absl::InternalError("the workers have no shared area to compare in");
  }
  if (WithMemcpy(setup.options)) return std::make_unique<MemcpyRing>(setup);
  return std::make_unique<Wake>(setup);
}

size_t PeerBytes(size_t bytes, int buffers) {
  return AlignPayload(bytes) * static_cast<size_t>(buffers);
}

}  // namespace ringzero
