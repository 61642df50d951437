// Describes the engine, and measures the distance of two clocks.
#include "zero/engine/flight.h"

#include <chrono>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "zero/blame.h"

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

std::string EngineFlight::AnswerClock() { return absl::StrCat(SteadyNanoseconds()); }

void EngineFlight::MeasureClock() {
  const bool others = executor_.transport() != nullptr && executor_.options().self.value != 0;
  if (others) AskClock(kClockQuestions);
}

void EngineFlight::AskClock(int times) {
  const int64_t asked = SteadyNanoseconds();
  const absl::Status sent = executor_.transport()->Ask(
      WorkerId(0), kClockQuestion, [this, asked, times](absl::StatusOr<std::string> text) {
        const int64_t way = SteadyNanoseconds() - asked;
        int64_t theirs = 0;
        // An end of the run, or of worker 0, which others tell of.
        if (!text.ok() || !absl::SimpleAtoi(*text, &theirs)) return;
        const Executor::Lock lock = executor_.Hold();
        if (!clock_offset_.has_value() || way / 2 < clock_offset_->within_ns) {
          clock_offset_ = {.offset_ns = theirs - (asked + way / 2), .within_ns = way / 2};
        }
        // At the end, which is told under the lock, the transport goes, while its thread is here.
        const bool goes_on = !executor_.finished() && executor_.error().ok();
        if (times > 1 && goes_on) AskClock(times - 1);
      });
  sent.IgnoreError();  // likewise
}

std::optional<ClockOffset> EngineFlight::clock_offset() const {
  const Executor::Lock lock = executor_.Hold();
  return clock_offset_;
}

void EngineFlight::DescribeWaits(FlightRecord& record) const {
  const ProgramState& program = executor_.state();
  const ComputingSide& computing = executor_.computing();
  record.has_waits = true;
  record.error = executor_.error();
  record.appended =
      executor_.next_part().value_or(ProgramPart{Iteration(executor_.plan().iterations + 1)});
  record.offset = clock_offset_;
  record.now = waits_.WhatItDoes();
  if (record.now.next.has_value() && absl::StartsWith(record.now.says, "waits ")) {
    const auto waited = std::chrono::steady_clock::now() - computing.since;
    record.now.says = absl::StrCat("has waited ", SecondsText(waited), " ",
                                   record.now.says.substr(sizeof("waits ") - 1));
  }
  const int64_t first = program.FirstUndone();
  const bool is_done = first == kNoOp && !computing.worker.has_value();
  record.since_ns = is_done ? SteadyNanoseconds() : Nanoseconds(computing.since);
  for (int64_t op = first; op != kNoOp && op < program.end(); ++op) {
    if (program.IsDone(op) || program.at(op).linked.op.kind != OpKind::kSend) continue;
    record.open.push_back({program.at(op).linked.op, waits_.WhyNotDone(op)});
  }
  if (executor_.transport() != nullptr) record.undelivered = executor_.transport()->undelivered();
}

FlightRecord EngineFlight::Record(const std::string& why) const {
  FlightRecord record{
      .worker = executor_.options().self, .workers = executor_.plan().workers, .why = why};
  record.clock = SteadyClockName();
  Executor::Lock lock = executor_.TryToHold();
  for (int i = 0; i < kLockTries && !lock.owns_lock(); ++i) {
    std::this_thread::sleep_for(kLockPause);
    lock.try_lock();
  }
  if (lock.owns_lock()) {
    DescribeWaits(record);
    lock.unlock();
  }
  record.events = executor_.recorder().Last();
  record.time_ns = SteadyNanoseconds();
  return record;
}

}  // namespace ringzero
