// Which engine, and why; the slow one.
#include "offload/io_engine.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

class Throttled : public IoEngine {
 public:
  Throttled(std::unique_ptr<IoEngine> engine, double bytes_per_second)
      : engine_(std::move(engine)), bytes_per_second_(bytes_per_second) {}

  using IoEngine::Submit;
  absl::Status Submit(std::span<const IoRequest> requests) override {
    RZ_RETURN_IF_ERROR(engine_->Submit(requests));
    for (const IoRequest& request : requests) {
      const std::chrono::duration<double> takes(static_cast<double>(request.memory.size()) /
                                                bytes_per_second_);
      free_ = std::max(free_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
      due_[request.tag] = free_;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<IoResult>> Wait(Deadline deadline) override {
    while (under_way() > 0) {
      if (early_.empty()) RZ_RETURN_IF_ERROR(Fetch(deadline));
      const Deadline first = early_.begin()->first;
      std::this_thread::sleep_until(std::min(first, deadline));
      if (engine_->under_way() > 0) Fetch(Clock::now()).IgnoreError();  // late ones are still there
      std::vector<IoResult> results;
      while (!early_.empty() && early_.begin()->first <= Clock::now()) {
        results.push_back(std::move(early_.begin()->second));
        early_.erase(early_.begin());
      }
      if (!results.empty()) return results;
      if (Clock::now() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("a throttled disk: ", under_way(), " requests are not done yet"));
      }
    }
    return std::vector<IoResult>();
  }
  size_t under_way() const override { return engine_->under_way() + early_.size(); }

 private:
  absl::Status Fetch(Deadline deadline) {
    RZ_ASSIGN_OR_RETURN(std::vector<IoResult> results, engine_->Wait(deadline));
    for (IoResult& result : results) {
      const Deadline due = due_.extract(result.tag).mapped();
      early_.emplace(due, std::move(result));
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<IoEngine> engine_;
  const double bytes_per_second_;
  Deadline free_ = {};                       // when the disk has done all that it was asked for
  std::map<uint64_t, Deadline> due_;         // by tag
  std::multimap<Deadline, IoResult> early_;  // done, but not due
};

}  // namespace

absl::StatusOr<ChosenIoEngine> MakeIoEngine(const IoEngineOptions& options) {
  if (options.depth < 1 || options.depth > 4096 || options.threads < 1 || options.block_bytes < 1 ||
      options.block_bytes > 1 << 30) {
    return InvalidArgument(
        "wanted a depth from 1 to 4096, at least 1 thread and blocks of 1 byte to 1 "
        "GiB, found ",
        options.depth, ", ", options.threads, " and ", options.block_bytes);
  }
  std::string why = "threads (asked for)";
  if (options.kind != IoEngineOptions::Kind::kThreads) {
    absl::StatusOr<std::unique_ptr<IoEngine>> uring = MakeUringEngine(options);
    if (uring.ok()) return ChosenIoEngine{*std::move(uring), "io_uring"};
    if (options.kind == IoEngineOptions::Kind::kUring) return uring.status();
    why = absl::StrCat("threads with pread and pwrite: ", uring.status().message());
  }
  return ChosenIoEngine{MakeThreadEngine(options), std::move(why)};
}

std::unique_ptr<IoEngine> MakeThrottled(std::unique_ptr<IoEngine> engine, double bytes_per_second) {
  return std::make_unique<Throttled>(std::move(engine), bytes_per_second);
}

void Abandon(std::unique_ptr<IoEngine> engine, std::vector<SharedBuffer> memory) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::pair<std::vector<SharedBuffer>, IoEngine*>>();
  const std::lock_guard lock(mutex);
  kept->emplace_back(std::move(memory), engine.release());
}

}  // namespace ringzero
