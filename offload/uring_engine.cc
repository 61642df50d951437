// io_uring, by liburing. As many system calls as `depth` are in the ring, so completions never
// overflow it; the others wait in IoPieces.
#if defined(RINGZERO_HAVE_URING)
#include <liburing.h>
#endif

#include <cerrno>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/status.h"
#include "offload/io_engine.h"
#include "offload/io_pieces.h"

namespace ringzero {

#if defined(RINGZERO_HAVE_URING)
namespace {

using Clock = std::chrono::steady_clock;

class UringEngine : public IoEngine {
 public:
  explicit UringEngine(const IoEngineOptions& options)
      : depth_(static_cast<size_t>(options.depth)), pieces_(options.block_bytes) {}
  ~UringEngine() override {
    if (!open_) return;
    absl::Status status;
    while (pieces_.under_way() > 0 && (status.ok() || absl::IsDeadlineExceeded(status))) {
      status = Wait(Clock::now() + std::chrono::hours(1)).status();
    }
    io_uring_queue_exit(&ring_);
  }

  // 0, or an error's negative number.
  int Open() {
    const int error = io_uring_queue_init(static_cast<unsigned>(depth_), &ring_, 0);
    open_ = error == 0;
    return error;
  }

  using IoEngine::Submit;
  absl::Status Submit(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) pieces_.Add(request);
    Fill();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<IoResult>> Wait(Deadline deadline) override {
    while (true) {
      Harvest();
      Fill();
      if (pieces_.has_results() || pieces_.under_way() == 0) return pieces_.TakeResults();
      const auto left = deadline - Clock::now();
      if (left <= Clock::duration::zero()) return pieces_.TooLate();
      const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
      __kernel_timespec timeout = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
      io_uring_cqe* first = nullptr;
      const int error = io_uring_submit_and_wait_timeout(&ring_, &first, 1, &timeout, nullptr);
      if (error == -EAGAIN || error == -EBUSY) std::this_thread::sleep_for(kPauseOfRefused);
      const bool soon = error == -ETIME || error == -EINTR || error == -EAGAIN || error == -EBUSY;
      if (error < 0 && !soon) return absl::ErrnoToStatus(-error, "io_uring_enter");
    }
  }
  size_t under_way() const override { return pieces_.under_way(); }

 private:
  // As many calls as the ring has room for. Those for which the kernel has no room now are
  // submitted by the next Fill, or by Wait.
  void Fill() {
    while (pieces_.begun() < depth_) {
      IoPiece* const piece = pieces_.Begin();
      if (piece == nullptr) break;
      io_uring_sqe* const entry = io_uring_get_sqe(&ring_);  // as many as depth_
      const auto bytes = static_cast<unsigned>(piece->bytes);
      const auto offset = static_cast<uint64_t>(piece->offset);
      switch (piece->kind) {
        case IoRequest::Kind::kRead:
          io_uring_prep_read(entry, piece->file, piece->memory, bytes, offset);
          break;
        case IoRequest::Kind::kWrite:
          io_uring_prep_write(entry, piece->file, piece->memory, bytes, offset);
          break;
        case IoRequest::Kind::kSync:
          io_uring_prep_fsync(entry, piece->file, IORING_FSYNC_DATASYNC);
          break;
      }
      io_uring_sqe_set_data(entry, piece);
    }
    if (io_uring_sq_ready(&ring_) > 0) io_uring_submit(&ring_);
  }

  void Harvest() {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) {
      const int64_t result = entry->res;
      auto* const piece = static_cast<IoPiece*>(io_uring_cqe_get_data(entry));
      io_uring_cqe_seen(&ring_, entry);
      if (result == -EAGAIN) std::this_thread::sleep_for(kPauseOfRefused);
      pieces_.End(piece, result);
    }
  }

  const size_t depth_;
  IoPieces pieces_;
  io_uring ring_ = {};
  bool open_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<IoEngine>> MakeUringEngine(const IoEngineOptions& options) {
  auto engine = std::make_unique<UringEngine>(options);
  const int error = engine->Open();
  if (error == 0) return engine;
  const absl::Status why = absl::ErrnoToStatus(-error, "io_uring is not there");
  if (error != -EPERM && error != -ENOSYS) return Unavailable(why.message());
  // Containers forbid it by seccomp, administrators by this sysctl.
  const std::string value = ReadWholeFile("/proc/sys/kernel/io_uring_disabled").value_or("");
  return Unavailable(
      why.message(), " (the sysctl kernel.io_uring_disabled ",
      value.empty() ? "does not exist" : absl::StrCat("is ", absl::StripSuffix(value, "\n")), ")");
}
#else
absl::StatusOr<std::unique_ptr<IoEngine>> MakeUringEngine(const IoEngineOptions&) {
  return absl::UnavailableError("built without liburing");
}
#endif

}  // namespace ringzero
