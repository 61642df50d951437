// Finds the end of a chain of waits.
#include "zero/engine/waits.h"

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "zero/message_key.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

// A living message thread answers in milliseconds; a busy machine gets more.
constexpr std::chrono::seconds kAnswerLimit(1);

std::string Quoted(const Op& op) { return absl::StrCat("\"", ToString(op), "\""); }

// A lock that is held for so long belongs to a thread that hangs: then the events alone must do.
constexpr int kLockTries = 200;
constexpr std::chrono::milliseconds kLockPause(5);

int64_t Nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
int64_t SteadyNanoseconds() { return Nanoseconds(Clock::now()); }

}  // namespace

std::string Waits::ComputingThread() const {
  const ComputingSide& computing = executor_.guarded().computing;
  const std::string time = SecondsText(Clock::now() - computing.since);
  const std::string op = Quoted(executor_.OpOf(computing.next.front()));
  if (computing.begun) return absl::StrCat("has been computing ", op, " for ", time);
  return absl::StrCat("has been outside of the engine for ", time, ", before ", op);
}

BlameAnswer Waits::WhyNotDone(int64_t op) const {
  const ProgramState& program = executor_.guarded().program;
  const ComputingSide& computing = executor_.guarded().computing;
  int64_t root = program.Root(op);
  if (IsCompute(executor_.OpOf(root).kind)) {
    // Ready, but the computing thread has not come to it: what it is at comes before.
    const int64_t front = computing.next.front();
    root = program.Root(front);
    const int64_t missing = computing.missing.value_or(kNoOp);
    if (root == front && missing != kNoOp && !program.IsDone(missing)) return WhyNotDone(missing);
    if (root == front) return {.says = ComputingThread()};
  }
  const OpState& state = program.at(root);
  const Op& cause = state.linked.op;
  if (cause.kind == OpKind::kSend && state.begun) {
    return {.says = absl::StrCat("has sent ", Quoted(cause), ", which waits for its block there"),
            .next = cause.peer};
  }
  if (cause.kind != OpKind::kReceive) {
    return {.says = absl::StrCat("has not finished ", Quoted(cause))};
  }
  return {.says = absl::StrCat("waits for ", Quoted(cause)),
          .next = cause.peer,
          .message = MessageKeyOf(cause)};
}

BlameAnswer Waits::WhatItDoes() const {
  const ComputingSide& computing = executor_.guarded().computing;
  if (computing.worker.has_value()) {
    return {.says = absl::StrCat("waits for ", computing.waiting_for), .next = *computing.worker};
  }
  if (!computing.next.empty()) return WhyNotDone(computing.next.front());
  const int64_t op = executor_.guarded().program.FirstUndone();
  if (op != kNoOp) return WhyNotDone(op);
  return {.says = "waits for nothing: its program is done"};
}

BlameAnswer Waits::WhyNotSent(WorkerId to, MessageKey message) const {
  const ProgramState& program = executor_.guarded().program;
  const int64_t send = program.FindSend(to, message);
  if (send != kNoOp && !program.IsDone(send)) return WhyNotDone(send);
  const std::optional<ProgramPart> next = executor_.next_part();  // to append
  const bool later = next.has_value() && IsFrom(*next, SendOf(message));
  if (send == kNoOp && later) return WhatItDoes();
  // It is sent: operations that are done are forgotten after a while.
  return {.says = "has sent that message, but it did not arrive"};
}

BlameAnswer Waits::AnswerTo(const BlameQuestion& question) const {
  const absl::Status& error = executor_.guarded().error;
  if (!error.ok()) return {.says = absl::StrCat("has failed: ", error.message())};
  if (!question.message.has_value()) return WhatItDoes();
  return WhyNotSent(question.waiter, *question.message);
}

BlameAnswer Waits::AskWorker(Executor::Lock& lock, const BlameStep& step) {
  if (step.worker == executor_.options().self) return AnswerTo(step.question);
  // Shared with the callback, which may come after we have given up.
  auto answer = std::make_shared<std::optional<absl::StatusOr<std::string>>>();
  const absl::Status asked = executor_.transport()->Ask(
      step.worker, WriteQuestion(step.question), [this, answer](absl::StatusOr<std::string> text) {
        const Executor::Lock lock = executor_.Hold();
        *answer = std::move(text);
        executor_.changed().notify_all();
      });
  if (!asked.ok()) return {.says = absl::StrCat("cannot be asked: ", asked.message())};
  const auto ended = [&] { return answer->has_value() || !executor_.guarded().error.ok(); };
  WaitUntil(lock, executor_.changed(), Deadline(kAnswerLimit), ended);
  if (!answer->has_value()) return {.says = "does not answer"};
  if (!(*answer)->ok()) {
    return {.says = absl::StrCat("does not answer: ", (*answer)->status().message())};
  }
  if ((**answer)->empty()) return {.says = "has no engine yet: it is starting"};
  const absl::StatusOr<BlameAnswer> read = ParseAnswer(***answer);
  return read.ok() ? *read : BlameAnswer{.says = "answers what cannot be read"};
}

absl::Status Waits::AwaitWorker(Executor::Lock& lock, WorkerId worker, const std::string& what,
                                const std::function<bool()>& done) {
  ComputingSide& computing = executor_.guarded().computing;
  computing.worker = worker;
  absl::Status waited = executor_.WaitFor(
      lock, what,
      [&] {
        computing.waiting_for = what;
        return done();
      },
      nullptr);
  computing.worker.reset();
  return waited;
}

absl::Status Waits::Blame(Executor::Lock& lock, const std::string& waited, BlameAnswer mine) {
  mine.says = mine.next.has_value() ? waited : absl::StrCat(waited, ": it ", mine.says);
  BlameChain chain;
  chain.Add(executor_.options().self, std::move(mine));
  while (executor_.transport() != nullptr && executor_.guarded().error.ok()) {
    const std::optional<BlameStep> step = chain.next();
    if (!step.has_value()) break;
    chain.Add(step->worker, AskWorker(lock, *step));
  }
  return absl::DeadlineExceededError(chain.Describe());
}

std::string EngineFlight::AnswerClock() { return absl::StrCat(SteadyNanoseconds()); }

void EngineFlight::MeasureClock(int times) {
  if (executor_.transport() == nullptr || executor_.options().self.value == 0) return;
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
        const bool goes_on = !executor_.guarded().finished && executor_.guarded().error.ok();
        if (times > 1 && goes_on) MeasureClock(times - 1);
      });
  sent.IgnoreError();  // likewise
}

std::optional<ClockOffset> EngineFlight::clock_offset() const {
  const Executor::Lock lock = executor_.Hold();
  return clock_offset_;
}

void EngineFlight::DescribeWaits(FlightRecord& record) const {
  const ProgramState& program = executor_.guarded().program;
  const ComputingSide& computing = executor_.guarded().computing;
  record.has_waits = true;
  record.error = executor_.guarded().error;
  record.appended =
      executor_.next_part().value_or(ProgramPart{Iteration(executor_.plan().iterations + 1)});
  record.offset = clock_offset_;
  record.now = waits_.WhatItDoes();
  if (record.now.next.has_value() && absl::StartsWith(record.now.says, "waits ")) {
    record.now.says = absl::StrCat("has waited ", SecondsText(Clock::now() - computing.since), " ",
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
