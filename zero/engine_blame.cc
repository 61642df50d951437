// Too long a wait: the worker asks along the chain of waits, and answers the others' questions.
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "zero/blame.h"
#include "zero/engine_impl.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

// A living message thread answers in milliseconds; a busy machine gets more.
constexpr std::chrono::seconds kAnswerLimit(1);

std::string Quoted(const Op& op) { return absl::StrCat("\"", ToString(op), "\""); }

}  // namespace

std::string Engine::Impl::ComputingThread() const {
  const std::string time = SecondsText(Clock::now() - computing_since_);
  if (begun_) {
    return absl::StrCat("has been computing ", Quoted(state_.at(compute_.front()).linked.op),
                        " for ", time);
  }
  return absl::StrCat("has been outside of the engine for ", time, ", before ",
                      Quoted(state_.at(compute_.front()).linked.op));
}

BlameAnswer Engine::Impl::WhyNotDone(int64_t op) const {
  int64_t root = state_.Root(op);
  if (IsCompute(state_.at(root).linked.op.kind)) {
    // Ready, but the computing thread has not come to it: what it is at comes before.
    const int64_t front = compute_.front();
    root = state_.Root(front);
    if (root == front && waits_for_update_.has_value()) {
      const auto [stage, iteration] = *waits_for_update_;
      const Op update{.kind = OpKind::kUpdate, .stage = stage, .iteration = iteration};
      const int64_t own = plan_.spreads_sums() ? state_.FindUpdate(stage, iteration) : kNoOp;
      if (own != kNoOp && !state_.IsDone(own)) return WhyNotDone(own);
      return {.says = absl::StrCat("waits for ", waiting_for_),
              .next = LastToUpdate(stage),
              .message = MessageKey{kUpdateKind, MessageTag(update)}};
    }
    if (root == front) return {.says = ComputingThread()};
  }
  const OpState& state = state_.at(root);
  const Op& cause = state.linked.op;
  if (state.arrived) return {.says = absl::StrCat("has not finished ", Quoted(cause))};
  return {.says = absl::StrCat("waits for ", Quoted(cause)),
          .next = cause.peer,
          .message = MessageKey{static_cast<uint8_t>(cause.channel), MessageTag(cause)}};
}

BlameAnswer Engine::Impl::WhatItDoes() const {
  if (awaits_.has_value()) {
    return {.says = absl::StrCat("waits for ", waiting_for_), .next = *awaits_};
  }
  if (!compute_.empty()) return WhyNotDone(compute_.front());
  const int64_t op = state_.FirstUndone();
  if (op != kNoOp) return WhyNotDone(op);
  return {.says = "waits for nothing: its program is done"};
}

bool Engine::Impl::IsAppended(const Op& named) const {
  return !next_part().has_value() || !IsFrom(*next_part(), named);
}

BlameAnswer Engine::Impl::WhyNotSent(WorkerId to, MessageKey message) const {
  const int64_t send = state_.FindSend(to, message);
  if (send != kNoOp && !state_.IsDone(send)) return WhyNotDone(send);
  const Op named = MessageOp(static_cast<Channel>(message.kind), message.tag);
  if (send == kNoOp && !IsAppended(named)) return WhatItDoes();
  // It is sent: operations that are done are forgotten after a while.
  for (const Undelivered& each : options_.transport->undelivered()) {
    if (each.to != to || each.key != message) continue;
    return {.says = "has sent that message, but it waits for a free slot there", .next = to};
  }
  return {.says = "has sent that message, but it did not arrive"};
}

BlameAnswer Engine::Impl::WhyNotUpdated(StageId stage, Iteration iteration) const {
  const int64_t update = state_.FindUpdate(stage, iteration);
  if (update != kNoOp && !state_.IsDone(update)) return WhyNotDone(update);
  const Op named{.kind = OpKind::kUpdate, .stage = stage, .iteration = iteration};
  if (update == kNoOp && !IsAppended(named)) return WhatItDoes();
  BlameAnswer answer{
      .says = absl::StrCat("has updated stage ", stage.value, " in iteration ", iteration.value)};
  // Where all update from one sum, on against its way, past worker 0, who asks, to its beginning.
  const int self = options_.self.value, last = plan_.workers - 1;
  if (plan_.spreads_sums() && self != last) {
    answer.next = WorkerId(self > 1 ? self - 1 : last);
    answer.message = MessageKey{kUpdateKind, MessageTag(named)};
  }
  return answer;
}

WorkerId Engine::Impl::LastToUpdate(StageId stage) const {
  if (!plan_.spreads_sums()) return plan_.owner(stage);
  return WorkerId(plan_.workers > 2 ? plan_.workers - 2 : plan_.workers - 1);
}

BlameAnswer Engine::Impl::AnswerTo(const BlameQuestion& question) const {
  if (!error_.ok()) return {.says = absl::StrCat("has failed: ", error_.message())};
  if (!question.message.has_value()) return WhatItDoes();
  if (question.message->kind == kUpdateKind) {
    const Op update = MessageOp(Channel::kNone, question.message->tag);
    return WhyNotUpdated(update.stage, update.iteration);
  }
  return WhyNotSent(question.waiter, *question.message);
}

void Engine::Impl::AnswerQuestions() {
  computing_since_ = Clock::now();
  if (options_.transport == nullptr) return;
  options_.transport->AnswerWith(
      [this](WorkerId from, const std::string& text) { return AnswerQuestion(from, text); });
}

std::string Engine::Impl::AnswerQuestion(WorkerId from, const std::string& text) {
  if (text == kClockQuestion) return AnswerClock();
  absl::string_view squares = text;
  if (absl::ConsumePrefix(&squares, kSquaresQuestion)) return TakeSquares(from, squares);
  const absl::StatusOr<BlameQuestion> question = ParseQuestion(text);
  Lock lock(mutex_);
  return WriteAnswer(question.ok() ? AnswerTo(*question)
                                   : BlameAnswer{.says = "was asked what it cannot read"});
}

BlameAnswer Engine::Impl::AskWorker(Lock& lock, const BlameStep& step) {
  if (step.worker == options_.self) return AnswerTo(step.question);
  // Shared with the callback, which may come after we have given up.
  auto answer = std::make_shared<std::optional<absl::StatusOr<std::string>>>();
  const absl::Status asked = options_.transport->Ask(
      step.worker, WriteQuestion(step.question), [this, answer](absl::StatusOr<std::string> text) {
        Lock lock(mutex_);
        *answer = std::move(text);
        changed_.notify_all();
      });
  if (!asked.ok()) return {.says = absl::StrCat("cannot be asked: ", asked.message())};
  const auto ended = [&] { return answer->has_value() || !error_.ok(); };
  WaitUntil(lock, changed_, Deadline(kAnswerLimit), ended);
  if (!answer->has_value()) return {.says = "does not answer"};
  if (!(*answer)->ok()) {
    return {.says = absl::StrCat("does not answer: ", (*answer)->status().message())};
  }
  if ((**answer)->empty()) return {.says = "has no engine yet: it is starting"};
  const absl::StatusOr<BlameAnswer> read = ParseAnswer(***answer);
  return read.ok() ? *read : BlameAnswer{.says = "answers what cannot be read"};
}

absl::Status Engine::Impl::AwaitWorker(Lock& lock, WorkerId worker, const std::string& what,
                                       const std::function<bool()>& done) {
  awaits_ = worker;
  absl::Status waited = WaitFor(
      lock, what,
      [&] {
        waiting_for_ = what;
        return done();
      },
      nullptr);
  awaits_.reset();
  return waited;
}

absl::Status Engine::Impl::Blame(Lock& lock, const std::string& waited, BlameAnswer mine) {
  mine.says = mine.next.has_value() ? waited : absl::StrCat(waited, ": it ", mine.says);
  BlameChain chain;
  chain.Add(options_.self, std::move(mine));
  while (options_.transport != nullptr && error_.ok()) {
    const std::optional<BlameStep> step = chain.next();
    if (!step.has_value()) break;
    chain.Add(step->worker, AskWorker(lock, *step));
  }
  return absl::DeadlineExceededError(chain.Describe());
}

}  // namespace ringzero
