// Counts squares, folds norms, and says what updates do with them.
#include "zero/engine/norms.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status.h"
#include "sharding/memory/block_table.h"
#include "sharding/rules/schedule.h"
#include "zero/engine/updates.h"
#include "zero/flight/blame.h"
#include "zero/gradient_sum.h"

namespace ringzero {
namespace {

// Norms and squares are used by the update of the next iteration at the latest, and shown to who
// asks (GradientSquares) until three after it.
constexpr int kIterationsKept = 4;
// After Finish.
constexpr int kIterationsTold = 3;

}  // namespace

Norms::Norms(Executor& executor, BlockMemory& blocks, Sums& sums, const OwnedStages& owned)
    : executor_(executor),
      blocks_(blocks),
      sums_(sums),
      owned_(owned),
      scale_(executor_.options().loss_scale,
             {.lag = plan().scale_lag(Iteration(plan().warmup_updates)),
              .warmup = plan().warmup_updates},
             executor_.options().beginning.loss_scale) {
  const int first = plan().first_iteration;
  if (first > 0) norms_[first - 1] = executor_.options().beginning.norm;
}

void Norms::StartSquares(int64_t number) {
  using Writer = Executor::Writer;
  const Instruction op = executor_.OpOf(number);
  std::byte* taken = nullptr;
  for (const Use& use : op.uses) {
    if (use.role == Role::kTaken) taken = blocks_.Write(use.block);
  }
  const StageLayout& layout = executor_.options().layouts[op.stage.value];
  auto squares = std::make_shared<SumSquares>(layout, sums_.Read(op), taken);
  executor_.pool().Update([this, number, op, squares, begun = false]() mutable {
    FlightRecorder& recorder = executor_.recorder();
    if (!std::exchange(begun, true)) recorder.Record(Writer::kPool, {EventKind::kBegin, op});
    if (executor_.Costed(op, 0, [&] { return squares->Step(); })) return true;
    if (executor_.options().costs != nullptr) executor_.options().costs->Count(op, 0, 1);
    recorder.Record(Writer::kPool, {EventKind::kEnd, op});
    const Executor::Lock lock = executor_.Hold();
    if (!sums_.GoesOnComplete(op)) return false;
    if (plan().takes_sums()) sums_.Free(op);
    std::ranges::copy(squares->values(), Place(op, Role::kSquares).begin());
    NoteSquares(op.iteration, op.stage, squares->values());
    executor_.Complete(number);
    return false;
  });
}

std::span<double> Norms::Place(const Instruction& op, Role role) {
  const auto use = std::ranges::find(op.uses, role, &Use::role);
  RZ_CHECK(use != op.uses.end(), ToString(op));
  const std::span<std::byte> bytes = blocks_.Bytes(use->block);
  return {reinterpret_cast<double*>(bytes.data()), bytes.size() / sizeof(double)};
}

void Norms::NoteSquares(Iteration t, StageId stage, std::span<const double> squares) {
  squares_.erase(squares_.begin(), squares_.lower_bound({t.value - kIterationsKept, 0}));
  squares_[{t.value, stage.value}].assign(squares.begin(), squares.end());
}

absl::Status Norms::Fold(const Instruction& op) {
  const Iteration t = op.iteration;
  std::vector<std::span<const double>> stages;
  for (int j = 0; j < plan().stage_count(); ++j) {
    if (plan().stages[j].sum_bytes > 0) stages.push_back(squares_.at({t.value, j}));
  }
  const double norm = NormOf(stages, SumDivisor(t));
  Place(op, Role::kNorm)[0] = norm;
  return NoteNorm(t, norm);
}

absl::Status Norms::NoteNorm(Iteration t, double norm) {
  norms_.erase(norms_.begin(), norms_.lower_bound(t.value - kIterationsKept));
  norms_[t.value] = norm;
  if (!plan().skips()) return absl::OkStatus();
  RZ_RETURN_IF_ERROR(scale_.Note(t.value, !std::isfinite(norm)));
  histories_.erase(histories_.begin(), histories_.lower_bound(t.value - kIterationsKept));
  histories_[t.value] = scale_.history();
  return absl::OkStatus();
}

SavedScalars Norms::ScalarsBefore(Iteration t) const {
  SavedScalars scalars;
  if (plan().has_norm()) scalars.norm = norms_.at(t.value - 1);
  if (plan().skips()) scalars.loss_scale = histories_.at(t.value - 1);
  return scalars;
}

absl::Status Norms::Keep(const Instruction& op) {
  const int64_t bytes = MessageBytes(plan(), op, executor_.options().metrics_count);
  const size_t count = static_cast<size_t>(bytes) / sizeof(double);
  const std::span<const double> numbers = Place(op, Role::kTarget).first(count);
  if (op.stage == kNoStage) return NoteNorm(op.iteration, numbers[0]);
  NoteSquares(op.iteration, op.stage, numbers);
  return absl::OkStatus();
}

double Norms::StageNorm(Iteration t, StageId stage) const {
  const auto squares = squares_.find({t.value, stage.value});
  if (squares == squares_.end()) return 0;
  return NormOf({squares->second}, SumDivisor(t));
}

double Norms::SquaresHere(Iteration t) const {
  const WorkerId self = executor_.options().self;
  if (plan().has_norm()) {
    const auto norm = norms_.find(t.value);
    const bool ours = self.value == 0 && norm != norms_.end();
    return ours ? norm->second * norm->second : 0;
  }
  double squares = 0;
  for (int j = 0; j < plan().stage_count(); ++j) {
    if (plan().stages[j].owner != self) continue;
    squares += plan().counts_squares() ? std::pow(StageNorm(t, StageId(j)), 2)
                                       : owned_.GradientSquares(StageId(j), t);
  }
  return squares;
}

double Norms::SquaresAtTheEnd(Iteration t) const {
  const auto told = last_squares_.find(t.value);
  return told == last_squares_.end() ? 0 : told->second;
}

absl::Status Norms::Gather(Executor::Lock& lock, Waits& waits) {
  const EngineOptions& options = executor_.options();
  const int first =
      std::max(plan().first_iteration, executor_.plan_so_far().iterations - kIterationsTold);
  std::vector<std::string> mine;
  for (int t = first; t < executor_.plan_so_far().iterations; ++t) {
    last_squares_[t] = SquaresHere(Iteration(t));
    mine.push_back(absl::StrFormat("%.17g", last_squares_[t]));
  }
  const bool apart = options.gradient_norms && plan().exchange && !plan().has_norm();
  if (!apart || mine.empty() || options.transport == nullptr) return absl::OkStatus();
  if (options.self.value > 0) return Tell(lock, waits, absl::StrJoin(mine, " "));
  for (int w = 1; w < plan().workers; ++w) {
    const std::string what = absl::StrCat("worker ", w, "'s part of the last gradient norms");
    RZ_RETURN_IF_ERROR(
        waits.AwaitWorker(lock, WorkerId(w), what, [&] { return told_.contains(w); }));
    const std::vector<double>& theirs = told_[w];
    for (size_t i = 0; i < theirs.size(); ++i) {
      last_squares_[first + static_cast<int>(i)] += theirs[i];
    }
  }
  return absl::OkStatus();
}

absl::Status Norms::Tell(Executor::Lock& lock, Waits& waits, const std::string& mine) {
  // Shared with the callback, which may come after we have given up.
  auto answered = std::make_shared<bool>(false);
  RZ_RETURN_IF_ERROR(
      executor_.transport()->Ask(WorkerId(0), absl::StrCat(kSquaresQuestion, mine),
                                 [this, answered](const absl::StatusOr<std::string>&) {
                                   // Worker 0's goodbye is an answer, too: it has all that it
                                   // waited for.
                                   const Executor::Lock lock = executor_.Hold();
                                   *answered = true;
                                   executor_.changed().notify_all();
                                 }));
  return waits.AwaitWorker(lock, WorkerId(0),
                           "worker 0 to take its part of the last gradient norms",
                           [&] { return *answered; });
}

std::string Norms::Take(WorkerId from, absl::string_view numbers) {
  std::vector<double> squares;
  for (const absl::string_view number : absl::StrSplit(numbers, ' ')) {
    if (!absl::SimpleAtod(number, &squares.emplace_back())) return "cannot be read";
  }
  const Executor::Lock lock = executor_.Hold();
  const int iterations = executor_.plan_so_far().iterations - plan().first_iteration;
  squares.resize(static_cast<size_t>(std::min(iterations, kIterationsTold)));
  told_[from.value] = std::move(squares);
  executor_.changed().notify_all();
  return "";
}

std::optional<StageId> Norms::NonfiniteStage(Iteration t) const {
  for (int j = plan().stage_count() - 1; plan().has_norm() && j >= 0; --j) {
    const auto found = squares_.find({t.value, j});
    if (found == squares_.end()) continue;
    const auto is_finite = [](double squares) { return std::isfinite(squares); };
    if (!std::all_of(found->second.begin(), found->second.end(), is_finite)) return StageId(j);
  }
  return std::nullopt;
}

double Norms::SumDivisor(Iteration t) const { return DivisorOf(plan(), t) * ScaleOf(t); }

double Norms::ScaleOf(Iteration t) const {
  return plan().skips() ? scale_.Of(t.value) : executor_.options().loss_scale.initial;
}

UpdateTerms Norms::TermsOf(const Op& update) const {
  const Iteration t = update.iteration;
  UpdateTerms terms{.loss_scale = ScaleOf(t), .number = t.value};
  if (plan().skips()) {
    terms.number = scale_.UpdatesBefore(t.value);
    terms.skipped = scale_.Overflowed(t.value);
  }
  if (!terms.skipped) terms.clip = ClipOf(update);
  return terms;
}

float Norms::ClipOf(const Op& update) const {
  if (!plan().counts_squares() || plan().clipping == Clipping::kOff) return 1;
  const double max_norm = executor_.options().optimizer.max_norm;
  if (plan().clipping == Clipping::kPerStage) {
    return ClipFactor(StageNorm(update.iteration, update.stage), max_norm);
  }
  const int norm = plan().norm_iteration(update.iteration.value);
  return norm < 0 ? 1 : ClipFactor(norms_.at(norm), max_norm);
}

}  // namespace ringzero
