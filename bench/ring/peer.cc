// Which peer does what the run does, and one anonymous shared mapping: words first, then every worker's
// part.
#include "bench/ring/peer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;

size_t Round(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

bool OverSharedMemory(const RingOptions& options) {
  return options.transport == "shm" || options.transport == "local";
}
bool WithMemcpy(const RingOptions& options) {
  return options.mode == RingMode::kShift && options.receiving == Receiving::kCopy;
}
bool WithWake(const RingOptions& options) {
  return options.mode == RingMode::kPingpong && options.receiving == Receiving::kLeave;
}

bool OverUcx(const RingOptions& options) {
  return options.transport == "ucx" && options.receiving == Receiving::kLeave &&
         options.workers == 2 &&
         (options.mode == RingMode::kPingpong || options.mode == RingMode::kShift ||
          options.mode == RingMode::kStream);
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedArea>> SharedArea::Create(const SharedAreaOptions& options) {
  const size_t workers = static_cast<size_t>(options.workers);
  const size_t bytes = Round(workers * kLine) + workers * Round(options.bytes_each);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mmap of ", bytes, " bytes: ", std::strerror(errno)));
  }
  return std::shared_ptr<SharedArea>(
      new SharedArea(options, static_cast<std::byte*>(memory), bytes));
}

SharedArea::~SharedArea() { munmap(memory_, bytes_); }

std::span<std::byte> SharedArea::BytesOf(WorkerId worker) const {
  const size_t words = Round(static_cast<size_t>(options_.workers) * kLine);
  return {memory_ + words + static_cast<size_t>(worker.value) * Round(options_.bytes_each),
          options_.bytes_each};
}

std::atomic<uint32_t>& SharedArea::WordOf(WorkerId worker) const {
  return *reinterpret_cast<std::atomic<uint32_t>*>(memory_ +
                                                   static_cast<size_t>(worker.value) * kLine);
}

absl::Status CheckComparable(const RingOptions& options) {
  if (options.comparing == Comparing::kNothing) return absl::OkStatus();
  if (OverSharedMemory(options) && (WithMemcpy(options) || WithWake(options))) {
    return absl::OkStatus();
  }
  if (OverUcx(options)) return CheckUcxPerftest();
  return absl::InvalidArgumentError(absl::StrCat(
      "--compare: nothing does what --transport ", options.transport, " --mode ",
      ToString(options.mode),
      " does; there are: shm and local with --mode shift --copy (copies between shared mappings) "
      "and with --mode pingpong (a bare wake); ucx with --mode pingpong, --mode stream and "
      "--mode shift --workers 2 (ucx_perftest)"));
}

bool NeedsSharedArea(const RingOptions& options) { return OverSharedMemory(options); }

absl::StatusOr<std::unique_ptr<Peer>> MakePeer(const PeerSetup& setup) {
  RZ_RETURN_IF_ERROR(CheckComparable(setup.options));
  if (OverUcx(setup.options)) return MakeUcxPerftest(setup);
  if (setup.area == nullptr) {
    return absl::InternalError("the workers have no shared area to compare in");
  }
  return WithMemcpy(setup.options) ? MakeMemcpyRing(setup) : MakeWake(setup);
}

size_t PeerBytes(size_t bytes, int buffers) {
  return AlignPayload(bytes) * static_cast<size_t>(buffers);
}

}  // namespace ringzero
