// The driver: takes what was started, launches it, polls what runs.
#include "p2p/nccl/lane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "base/system_names.h"

namespace ringzero {
namespace {

constexpr std::chrono::microseconds kPollInterval(20);

}  // namespace

LaneDriver::LaneDriver(std::vector<std::unique_ptr<Lane>> lanes, LaneDriverOptions options)
    : options_(std::move(options)) {
  for (std::unique_ptr<Lane>& lane : lanes) lines_.push_back({std::move(lane), {}, 0});
  thread_ = NamedThread("rz-lanes", [this] { Run(); });
}

LaneDriver::~LaneDriver() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void LaneDriver::Start(Operation operation) {
  RZ_CHECK(operation.lane >= 0 && operation.lane < static_cast<int>(lines_.size()),
           absl::StrCat("lane ", operation.lane));
  Post([this, operation = std::move(operation)]() mutable { Launch(std::move(operation)); });
}

void LaneDriver::Post(std::function<void()> call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  posted_.push_back(std::move(call));
  changed_.notify_one();
}

void LaneDriver::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  abort_ = true;
  changed_.notify_one();
}

void LaneDriver::Run() {
  while (true) {
    std::vector<std::function<void()>> posted;
    bool abort = false, stopping = false;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      const auto news = [this] { return stopping_ || !posted_.empty() || abort_ != aborted_; };
      const auto is_idle = [](const Line& line) { return line.running.empty(); };
      if (std::ranges::all_of(lines_, is_idle)) {
        changed_.wait(lock, news);
      } else {
        changed_.wait_for(lock, kPollInterval, news);
      }
      posted.swap(posted_);
      abort = abort_;
      stopping = stopping_;
    }
    if (abort && !aborted_) AbortLanes();
    for (const std::function<void()>& call : posted) call();
    for (Line& line : lines_) Poll(line);
    if (stopping) break;
  }
  AbortLanes();
  lines_.clear();
}

void LaneDriver::Launch(Operation operation) {
  if (aborted_) return;
  Line& line = lines_[operation.lane];
  const LaneOp op = operation.op;
  // Kept first: a lane that has failed may have begun to touch it.
  line.running.push_back({std::move(operation), Deadline(options_.stall_limit)});
  const absl::Status launched = line.lane->Start(op);
  if (!launched.ok()) Break(Annotate(launched, absl::StrCat("lane ", line.lane->name())));
}

void LaneDriver::Poll(Line& line) {
  if (aborted_ || line.running.empty()) return;
  const absl::StatusOr<int64_t> completed = line.lane->Completed();
  if (!completed.ok()) {
    return Break(Annotate(completed.status(), absl::StrCat("lane ", line.lane->name())));
  }
  for (; line.completed < *completed && !line.running.empty(); ++line.completed) {
    Operation operation = std::move(line.running.front().operation);
    line.running.pop_front();
    // What is next begins now: it could not run before.
    if (!line.running.empty()) line.running.front().stalled = Deadline(options_.stall_limit);
    operation.done();
  }
  if (line.running.empty()) return;
  const LaneOp& first = line.running.front().operation.op;
  if (!line.running.front().stalled.over()) return;
  const char* const way = first.direction == LaneOp::Direction::kSend ? "to" : "from";
  Break(absl::DeadlineExceededError(absl::StrCat(
      "lane ", line.lane->name(), ": ", first.block.size(), " bytes ", way, " worker ",
      first.peer.value, " are under way for ", options_.stall_limit.count(), " ms (stall_limit)")));
}

void LaneDriver::Break(const absl::Status& why) {
  if (aborted_) return;
  AbortLanes();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (abort_) return;  // somebody has given up already, and knows why
    abort_ = true;
  }
  if (options_.on_failure != nullptr) options_.on_failure(why);
}

void LaneDriver::AbortLanes() {
  aborted_ = true;
  for (Line& line : lines_) {
    if (line.lane != nullptr) line.lane->Abort();
  }
  for (Line& line : lines_) line.running.clear();
}

}  // namespace ringzero
