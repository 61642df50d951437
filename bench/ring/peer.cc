// Which peer does what the run does.
#include "bench/ring/peer.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

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
