// What the engine does now, with its last events, as a record for a file.
#include <chrono>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "zero/engine_impl.h"

namespace ringzero {
namespace {

// A lock that is held for so long belongs to a thread that hangs: then the events alone must do.
constexpr int kLockTries = 200;
constexpr std::chrono::milliseconds kLockPause(5);
constexpr int kClockQuestions = 8;

int64_t Nanoseconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
int64_t SteadyNanoseconds() { return Nanoseconds(std::chrono::steady_clock::now()); }

}  // namespace

std::string Engine::Impl::AnswerClock() { return absl::StrCat(SteadyNanoseconds()); }

void Engine::Impl::MeasureClock() {
  if (options_.transport != nullptr && options_.self.value != 0) AskClock(kClockQuestions);
}

void Engine::Impl::AskClock(int times) {
  const int64_t asked = SteadyNanoseconds();
  const absl::Status sent = options_.transport->Ask(
      WorkerId(0), kClockQuestion, [this, asked, times](absl::StatusOr<std::string> text) {
        const int64_t way = SteadyNanoseconds() - asked;
        int64_t theirs = 0;
        // An end of the run, or of worker 0, which others tell of.
        if (!text.ok() || !absl::SimpleAtoi(*text, &theirs)) return;
        Lock lock(mutex_);
        if (!clock_offset_.has_value() || way / 2 < clock_offset_->within_ns) {
          clock_offset_ = {.offset_ns = theirs - (asked + way / 2), .within_ns = way / 2};
        }
        // At the end, which is told under the lock, the transport goes, while its thread is here.
        if (times > 1 && !finished_ && error_.ok()) AskClock(times - 1);
      });
  sent.IgnoreError();  // likewise
}

std::optional<ClockOffset> Engine::Impl::clock_offset() const {
  Lock lock(mutex_);
  return clock_offset_;
}

uint32_t Engine::Impl::NextMessage(std::vector<uint32_t>& counts, const Op& op) {
  return counts[static_cast<size_t>(op.peer.value * kChannelCount) +
                static_cast<size_t>(op.channel)]++;
}

void Engine::Impl::DescribeWaits(FlightRecord& record) const {
  record.has_waits = true;
  record.error = error_;
  record.appended = next_part().value_or(ProgramPart{Iteration(plan_.iterations + 1)});
  record.offset = clock_offset_;
  record.now = WhatItDoes();
  if (record.now.next.has_value() && absl::StartsWith(record.now.says, "waits ")) {
    const auto waited = std::chrono::steady_clock::now() - computing_since_;
    record.now.says = absl::StrCat("has waited ", SecondsText(waited), " ",
                                   record.now.says.substr(sizeof("waits ") - 1));
  }
  const int64_t first = state_.FirstUndone();
  const bool is_done = first == kNoOp && !awaits_.has_value();
  record.since_ns = is_done ? SteadyNanoseconds() : Nanoseconds(computing_since_);
  for (int64_t op = first; op != kNoOp && op < state_.end(); ++op) {
    const OpKind kind = state_.at(op).linked.op.kind;
    if (state_.IsDone(op) || (kind != OpKind::kSend && kind != OpKind::kUpdate)) continue;
    record.open.push_back({state_.at(op).linked.op, WhyNotDone(op)});
  }
  if (options_.transport != nullptr) record.undelivered = options_.transport->undelivered();
}

FlightRecord Engine::Impl::Flight(const std::string& why) const {
  FlightRecord record{.worker = options_.self, .workers = plan_.workers, .why = why};
  record.clock = SteadyClockName();
  Lock lock(mutex_, std::try_to_lock);
  for (int i = 0; i < kLockTries && !lock.owns_lock(); ++i) {
    std::this_thread::sleep_for(kLockPause);
    lock.try_lock();
  }
  if (lock.owns_lock()) {
    DescribeWaits(record);
    lock.unlock();
  }
  record.events = recorder_.Last();
  record.time_ns = SteadyNanoseconds();
  return record;
}

}  // namespace ringzero
