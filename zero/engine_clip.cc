// Squares of complete sums, their norm on its way, and what follows from it: clipping, the loss
// scale, and updates that are skipped.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status.h"
#include "sharding/samples.h"
#include "zero/engine_impl.h"
#include "zero/gradient_norm.h"

namespace ringzero {
namespace {

// Norms and squares are used by the update of the next iteration at the latest, and shown to who
// asks (GradientSquares) until three after it.
constexpr int kIterationsKept = 4;
// After Finish.
constexpr int kIterationsTold = 3;

}  // namespace

void Engine::Impl::SubmitSquares(int64_t number) {
  const LinkedOp& linked = state_.at(number).linked;
  const Op op = linked.op;
  struct Work {
    Buffer owned;         // the sum that is taken over
    SharedBuffer shared;  // or this worker's handle of one that all have
    std::unique_ptr<SumSquares> squares;
  };
  auto work = std::make_shared<Work>();
  const std::byte* const sum = CompleteSum(linked);
  std::byte* taken = nullptr;
  for (const Use& use : linked.op.uses) {
    if (use.role == Role::kTaken) taken = blocks_.Write(use.block);
  }
  // What is not taken stays where it is until the update, which waits for this (sharding/link.h).
  if (taken != nullptr && OwnSum(linked.op) == nullptr) {
    work->shared = state_.at(linked.takes).shared;
    if (!work->shared) work->owned = TakeOver(number);
  }
  work->squares = std::make_unique<SumSquares>(options_.layouts[op.stage.value], sum, taken);
  pool_->Update([this, number, op, work, begun = false]() mutable {
    if (!std::exchange(begun, true)) recorder_.Record(Writer::kPool, {EventKind::kBegin, op});
    if (Costed(op, 0, [&] { return work->squares->Step(); })) return true;
    if (options_.costs != nullptr) options_.costs->Count(op, 0, 1);
    recorder_.Record(Writer::kPool, {EventKind::kEnd, op});
    // The sum's memory is free for the next one before anybody hears that this is done.
    work->owned.Reset();
    work->shared.Reset();
    Lock lock(mutex_);
    if (!error_.ok()) return false;
    NoteSquares(op.iteration, op.stage, work->squares->values());
    Complete(number);
    return false;
  });
}

void Engine::Impl::NoteSquares(Iteration t, StageId stage, std::vector<double> squares) {
  squares_.erase(squares_.begin(), squares_.lower_bound({t.value - kIterationsKept, 0}));
  squares_[{t.value, stage.value}] = std::move(squares);
}

absl::Status Engine::Impl::FoldNorm(Iteration t) {
  std::vector<std::span<const double>> stages;
  for (int j = 0; j < plan_.stage_count(); ++j) {
    if (plan_.stages[j].sum_bytes > 0) stages.push_back(squares_.at({t.value, j}));
  }
  return NoteNorm(t, NormOf(stages, SumDivisor(t)));
}

absl::Status Engine::Impl::NoteNorm(Iteration t, double norm) {
  norms_.erase(norms_.begin(), norms_.lower_bound(t.value - kIterationsKept));
  norms_[t.value] = norm;
  return plan_.skips() ? scale_.Note(t.value, !std::isfinite(norm)) : absl::OkStatus();
}

absl::StatusOr<Buffer> Engine::Impl::NormMessage(const Op& op) {
  const std::span<const double> numbers =
      op.stage == kNoStage ? std::span<const double>(&norms_.at(op.iteration.value), 1)
                           : squares_.at({op.iteration.value, op.stage.value});
  RZ_ASSIGN_OR_RETURN(Buffer message, AllocateSum(static_cast<int64_t>(numbers.size_bytes())));
  std::memcpy(message.data(), numbers.data(), numbers.size_bytes());
  return message;
}

absl::Status Engine::Impl::KeepNorm(OpState& received) {
  // A few numbers: their slot is free at once.
  const Op& op = received.linked.op;
  const std::span<const double> numbers = received.owned.as<double>();
  if (op.stage == kNoStage) {
    RZ_RETURN_IF_ERROR(NoteNorm(op.iteration, numbers[0]));
  } else {
    const size_t count = MessageBytes(op) / sizeof(double);
    NoteSquares(op.iteration, op.stage, {numbers.begin(), numbers.begin() + count});
  }
  received.owned.Reset();
  return absl::OkStatus();
}

double Engine::Impl::StageNorm(Iteration t, StageId stage) const {
  const auto squares = squares_.find({t.value, stage.value});
  if (squares == squares_.end()) return 0;
  return NormOf({squares->second}, SumDivisor(t));
}

double Engine::Impl::SquaresHere(Iteration t) const {
  if (plan_.has_norm()) {
    const auto norm = norms_.find(t.value);
    const bool ours = options_.self.value == 0 && norm != norms_.end();
    return ours ? norm->second * norm->second : 0;
  }
  double squares = 0;
  for (int j = 0; j < plan_.stage_count(); ++j) {
    const bool ours = plan_.stages[j].owner == options_.self;
    if (!ours) continue;
    if (plan_.counts_squares()) {
      squares += std::pow(StageNorm(t, StageId(j)), 2);
    } else {
      squares += owned_.GradientSquares(StageId(j), t);
    }
  }
  return squares;
}

double Engine::Impl::GradientSquares(Iteration t) const {
  Lock lock(mutex_);
  if (!finished_) return SquaresHere(t);
  const auto told = last_squares_.find(t.value);
  return told == last_squares_.end() ? 0 : told->second;
}

// Worker 0 gets all workers' last squares, each of the others keeps its own. No message of the plan
// carries them: each asks worker 0 a question whose words they are.
absl::Status Engine::Impl::GatherSquares(Lock& lock) {
  const int first = std::max(0, plan_.iterations - kIterationsTold);
  std::vector<std::string> mine;
  for (int t = first; t < plan_.iterations; ++t) {
    last_squares_[t] = SquaresHere(Iteration(t));
    mine.push_back(absl::StrFormat("%.17g", last_squares_[t]));
  }
  const bool apart = options_.gradient_norms && plan_.exchange && !plan_.has_norm();
  if (!apart || mine.empty() || options_.transport == nullptr) return absl::OkStatus();
  if (options_.self.value > 0) return TellSquares(lock, absl::StrJoin(mine, " "));
  for (int w = 1; w < plan_.workers; ++w) {
    const std::string what = absl::StrCat("worker ", w, "'s part of the last gradient norms");
    RZ_RETURN_IF_ERROR(
        AwaitWorker(lock, WorkerId(w), what, [&] { return told_squares_.contains(w); }));
    const std::vector<double>& theirs = told_squares_[w];
    for (size_t i = 0; i < theirs.size(); ++i) {
      last_squares_[first + static_cast<int>(i)] += theirs[i];
    }
  }
  return absl::OkStatus();
}

absl::Status Engine::Impl::TellSquares(Lock& lock, const std::string& mine) {
  // Shared with the callback, which may come after we have given up.
  auto answered = std::make_shared<bool>(false);
  RZ_RETURN_IF_ERROR(options_.transport->Ask(WorkerId(0), absl::StrCat(kSquaresQuestion, mine),
                                             [this, answered](const absl::StatusOr<std::string>&) {
                                               // Worker 0's goodbye is an answer, too: it has all
                                               // that it waited for.
                                               Lock lock(mutex_);
                                               *answered = true;
                                               changed_.notify_all();
                                             }));
  return AwaitWorker(lock, WorkerId(0), "worker 0 to take its part of the last gradient norms",
                     [&] { return *answered; });
}

std::string Engine::Impl::TakeSquares(WorkerId from, absl::string_view numbers) {
  std::vector<double> squares;
  for (const absl::string_view number : absl::StrSplit(numbers, ' ')) {
    if (!absl::SimpleAtod(number, &squares.emplace_back())) return "cannot be read";
  }
  Lock lock(mutex_);
  squares.resize(static_cast<size_t>(std::min(plan_.iterations, kIterationsTold)));
  told_squares_[from.value] = std::move(squares);
  changed_.notify_all();
  return "";
}

std::optional<StageId> Engine::Impl::NonfiniteStage(Iteration t) const {
  Lock lock(mutex_);
  for (int j = plan_.stage_count() - 1; plan_.has_norm() && j >= 0; --j) {
    const auto found = squares_.find({t.value, j});
    if (found == squares_.end()) continue;
    const auto is_finite = [](double squares) { return std::isfinite(squares); };
    if (!std::all_of(found->second.begin(), found->second.end(), is_finite)) return StageId(j);
  }
  return std::nullopt;
}

double Engine::Impl::SumDivisor(Iteration t) const { return DivisorOf(plan_, t) * ScaleOf(t); }

double Engine::Impl::ScaleOf(Iteration t) const {
  return plan_.skips() ? scale_.Of(t.value) : options_.loss_scale.initial;
}

double Engine::Impl::LossScaleOf(Iteration t) const {
  Lock lock(mutex_);
  return ScaleOf(t);
}

UpdateTerms Engine::Impl::TermsOf(const Op& update) const {
  const Iteration t = update.iteration;
  UpdateTerms terms{.loss_scale = ScaleOf(t), .number = t.value};
  if (plan_.skips()) {
    terms.number = scale_.UpdatesBefore(t.value);
    terms.skipped = scale_.Overflowed(t.value);
  }
  if (!terms.skipped) terms.clip = ClipOf(update);
  return terms;
}

float Engine::Impl::ClipOf(const Op& update) const {
  if (!plan_.counts_squares() || plan_.clipping == Clipping::kOff) return 1;
  const double max_norm = options_.optimizer.max_norm;
  if (plan_.clipping == Clipping::kPerStage)
    return ClipFactor(StageNorm(update.iteration, update.stage), max_norm);
  const int norm = plan_.norm_iteration(update.iteration.value);
  return norm < 0 ? 1 : ClipFactor(norms_.at(norm), max_norm);
}

}  // namespace ringzero
