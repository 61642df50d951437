// Finds the end of a chain of waits.
#include "zero/engine/waits.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "zero/received_needs.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

// A living message thread answers in milliseconds; a busy machine gets more.
constexpr std::chrono::seconds kAnswerLimit(1);

std::string Quoted(const Op& op) { return absl::StrCat("\"", ToString(op), "\""); }

}  // namespace

std::string Waits::ComputingThread() const {
  const ComputingSide& computing = executor_.computing();
  const std::string time = SecondsText(Clock::now() - computing.since);
  const std::string op = Quoted(executor_.OpOf(computing.next.front()));
  if (computing.begun) return absl::StrCat("has been computing ", op, " for ", time);
  return absl::StrCat("has been outside of the engine for ", time, ", before ", op);
}

BlameAnswer Waits::WhyNotDone(int64_t op) const {
  const ProgramState& program = executor_.state();
  const ComputingSide& computing = executor_.computing();
  int64_t root = program.Root(op);
  if (IsCompute(executor_.OpOf(root).kind)) {
    // Ready, but the computing thread has not come to it: what it is at comes before.
    const int64_t front = computing.next.front();
    root = program.Root(front);
    if (root == front && computing.update.has_value()) {
      const auto [stage, iteration] = *computing.update;
      const Op update{.kind = OpKind::kUpdate, .stage = stage, .iteration = iteration};
      const bool shared = executor_.plan().spreads_sums();
      const int64_t own = shared ? program.FindUpdate(stage, iteration) : kNoOp;
      if (own != kNoOp && !program.IsDone(own)) return WhyNotDone(own);
      return {.says = absl::StrCat("waits for ", computing.waiting_for),
              .next = sums_.LastToUpdate(stage),
              .message = MessageKey{kUpdateKind, MessageTag(update)}};
    }
    if (root == front) return {.says = ComputingThread()};
  }
  const OpState& state = program.at(root);
  const Op& cause = state.linked.op;
  if (state.arrived) return {.says = absl::StrCat("has not finished ", Quoted(cause))};
  return {.says = absl::StrCat("waits for ", Quoted(cause)),
          .next = cause.peer,
          .message = MessageKeyOf(cause)};
}

BlameAnswer Waits::WhatItDoes() const {
  const ComputingSide& computing = executor_.computing();
  if (computing.worker.has_value()) {
    return {.says = absl::StrCat("waits for ", computing.waiting_for), .next = *computing.worker};
  }
  if (!computing.next.empty()) return WhyNotDone(computing.next.front());
  const int64_t op = executor_.state().FirstUndone();
  if (op != kNoOp) return WhyNotDone(op);
  return {.says = "waits for nothing: its program is done"};
}

bool Waits::IsAppended(const Op& named) const {
  const std::optional<ProgramPart> next = executor_.next_part();
  return !next.has_value() || !IsFrom(*next, named);
}

BlameAnswer Waits::WhyNotSent(WorkerId to, MessageKey message) const {
  const ProgramState& program = executor_.state();
  const int64_t send = program.FindSend(to, message);
  if (send != kNoOp && !program.IsDone(send)) return WhyNotDone(send);
  const Op named = SendOf(message);
  if (send == kNoOp && !IsAppended(named)) return WhatItDoes();
  // It is sent: operations that are done are forgotten after a while.
  const Transport* const transport = executor_.transport();
  for (const Undelivered& each :
       transport == nullptr ? std::vector<Undelivered>() : transport->undelivered()) {
    if (each.to != to || each.key != message) continue;
    return {.says = "has sent that message, but it waits for a free slot there", .next = to};
  }
  return {.says = "has sent that message, but it did not arrive"};
}

BlameAnswer Waits::WhyNotUpdated(StageId stage, Iteration iteration) const {
  const ProgramState& program = executor_.state();
  const Plan& plan = executor_.plan();
  const int64_t update = program.FindUpdate(stage, iteration);
  if (update != kNoOp && !program.IsDone(update)) return WhyNotDone(update);
  const Op named{.kind = OpKind::kUpdate, .stage = stage, .iteration = iteration};
  if (update == kNoOp && !IsAppended(named)) return WhatItDoes();
  BlameAnswer answer{
      .says = absl::StrCat("has updated stage ", stage.value, " in iteration ", iteration.value)};
  // Where all update from one sum, on against its way, past worker 0, who asks, to its beginning.
  const int self = executor_.options().self.value, last = plan.workers - 1;
  if (plan.spreads_sums() && self != last) {
    answer.next = WorkerId(self > 1 ? self - 1 : last);
    answer.message = MessageKey{kUpdateKind, MessageTag(named)};
  }
  return answer;
}

BlameAnswer Waits::AnswerTo(const BlameQuestion& question) const {
  const absl::Status& error = executor_.error();
  if (!error.ok()) return {.says = absl::StrCat("has failed: ", error.message())};
  if (!question.message.has_value()) return WhatItDoes();
  if (question.message->kind == kUpdateKind) {
    const Op update = MessageOp(Channel::kNone, question.message->tag);
    return WhyNotUpdated(update.stage, update.iteration);
  }
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
  const auto ended = [&] { return answer->has_value() || !executor_.error().ok(); };
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
  ComputingSide& computing = executor_.computing();
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
  while (executor_.transport() != nullptr && executor_.error().ok()) {
    const std::optional<BlameStep> step = chain.next();
    if (!step.has_value()) break;
    chain.Add(step->worker, AskWorker(lock, *step));
  }
  return absl::DeadlineExceededError(chain.Describe());
}

}  // namespace ringzero
