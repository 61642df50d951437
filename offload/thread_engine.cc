// pread, pwrite and fdatasync in threads of its own: where io_uring is forbidden or was not there
// to build with.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "base/system_names.h"
#include "offload/io_engine.h"
#include "offload/io_pieces.h"

namespace ringzero {
namespace {

int64_t Call(const IoPiece& piece) {
  ssize_t result = 0;
  switch (piece.kind) {
    case IoRequest::Kind::kRead:
      result = pread(piece.file, piece.memory, piece.bytes, piece.offset);
      break;
    case IoRequest::Kind::kWrite:
      result = pwrite(piece.file, piece.memory, piece.bytes, piece.offset);
      break;
    case IoRequest::Kind::kSync: result = fdatasync(piece.file); break;
  }
  return result < 0 ? -errno : result;
}

class ThreadEngine : public IoEngine {
 public:
  explicit ThreadEngine(const IoEngineOptions& options) : pieces_(options.block_bytes) {
    for (int i = 0; i < std::max(1, options.threads); ++i) {
      threads_.push_back(NamedThread("rz-disk", [this] { Work(); }));
    }
  }
  ~ThreadEngine() override {
    {
      const MutexLock lock(mutex_);
      ending_ = true;
    }
    more_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  using IoEngine::Submit;
  absl::Status Submit(std::span<const IoRequest> requests) override {
    {
      const MutexLock lock(mutex_);
      for (const IoRequest& request : requests) pieces_.Add(request);
    }
    more_.notify_all();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<IoResult>> Wait(Deadline deadline) override {
    const MutexLock lock(mutex_);
    const auto there = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return pieces_.has_results() || pieces_.under_way() == 0;
    };
    if (!done_.wait_until(mutex_, deadline, there)) return pieces_.TooLate();
    return pieces_.TakeResults();
  }
  size_t under_way() const override {
    const MutexLock lock(mutex_);
    return pieces_.under_way();
  }

 private:
  // Ends when there is nothing left to do.
  void Work() {
    const MutexLock lock(mutex_);
    while (true) {
      IoPiece* const piece = pieces_.Begin();
      if (piece == nullptr) {
        if (ending_) return;
        more_.wait(mutex_);
        continue;
      }
      mutex_.unlock();
      const int64_t result = Call(*piece);
      if (result == -EAGAIN) std::this_thread::sleep_for(kPauseOfRefused);
      mutex_.lock();
      pieces_.End(piece, result);
      if (pieces_.has_results()) done_.notify_one();
    }
  }

  mutable Mutex mutex_;
  std::condition_variable_any more_, done_;
  IoPieces pieces_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoEngine> MakeThreadEngine(const IoEngineOptions& options) {
  return std::make_unique<ThreadEngine>(options);
}

}  // namespace ringzero
