// Starts operations, ends them, and waits.
#include "zero/engine/executor.h"

#include <algorithm>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "p2p/job/limits.h"
#include "sharding/program/loans.h"
#include "zero/flight/blame.h"
#include "zero/message_key.h"

namespace ringzero {

absl::StatusOr<int64_t> ProgramState::Append(std::span<const Instruction> ops) {
  RZ_ASSIGN_OR_RETURN(std::vector<LinkedOp> linked, linker_.Append(ops));
  const int64_t first = end();
  for (LinkedOp& one : linked) {
    const int64_t number = end();
    OpState state;
    const bool is_word = IsMessage(one.op.kind) && IsWord(one.op);
    state.arrived = !is_word || one.op.kind != OpKind::kReceive;
    for (const int64_t before : one.after) {
      if (IsDone(before)) continue;
      at(before).next.push_back(number);
      ++state.waiting;
    }
    if (one.behind >= base_ && !at(one.behind).begun) {
      at(one.behind).behind.push_back(number);
      ++state.waiting;
    }
    state.linked = std::move(one);
    ops_.push_back(std::move(state));
    ++undone_;
  }
  return first;
}

void ProgramState::Free(int64_t op, std::vector<int64_t>& ready) {
  OpState& state = at(op);
  if (--state.waiting == 0 && state.arrived) ready.push_back(op);
}

std::vector<int64_t> ProgramState::Begin(int64_t op) {
  std::vector<int64_t> ready;
  OpState& state = at(op);
  state.begun = true;
  for (const int64_t next : std::exchange(state.behind, {})) Free(next, ready);
  return ready;
}

std::vector<int64_t> ProgramState::Complete(int64_t op) {
  OpState& state = at(op);
  RZ_CHECK(!state.done, ToString(state.linked.op));
  std::vector<int64_t> ready = Begin(op);
  state.done = true;
  --undone_;
  for (const int64_t next : state.next) Free(next, ready);
  state.next.clear();
  while (!ops_.empty() && ops_.front().done) {
    ops_.pop_front();
    ++base_;
  }
  return ready;
}

int64_t ProgramState::FirstUnfinished(int64_t op, int64_t aside) const {
  const OpState& state = at(op);
  if (!state.arrived) return op;
  for (const int64_t before : state.linked.after) {
    if (before != aside && !IsDone(before)) return before;
  }
  const int64_t behind = state.linked.behind;
  return behind >= base_ && !at(behind).begun ? behind : kNoOp;
}

int64_t ProgramState::Root(int64_t op) const {
  for (int64_t cause = FirstUnfinished(op); cause != kNoOp && cause != op;) {
    op = cause;
    cause = FirstUnfinished(op);
  }
  return op;
}

int64_t ProgramState::FirstUndone() const {
  for (int64_t op = base_; op < end(); ++op) {
    if (!at(op).done) return op;
  }
  return kNoOp;
}

int64_t ProgramState::FindSend(WorkerId to, MessageKey message) const {
  for (int64_t number = base_; number < end(); ++number) {
    const Op& op = at(number).linked.op;
    if (op.kind == OpKind::kSend && op.peer == to && MessageKeyOf(op) == message) return number;
  }
  return kNoOp;
}

std::string ProgramState::Unfinished(int limit) const {
  std::string text;
  int count = 0;
  for (const OpState& state : ops_) {
    if (state.done) continue;
    if (count++ == limit) return absl::StrCat(text, ", …");
    absl::StrAppend(&text, text.empty() ? "" : ", ", "\"", ToString(state.linked.op), "\"");
  }
  return text.empty() ? "nothing" : text;
}

void ProgramState::Clear() {
  base_ = end();
  undone_ = 0;
  ops_.clear();
}

using Clock = std::chrono::steady_clock;

Executor::Executor(const EngineOptions& options)
    : options_(options),
      recorder_(options.recorder_events),
      guarded_{.program = {options.plan, options.self}},
      pool_(std::make_unique<WorkerPool>()) {}

absl::Status Executor::Begin(std::unique_ptr<ProgramWriter> program, Hooks hooks) {
  program_ = std::move(program);
  hooks_ = std::move(hooks);
  guarded_.computing.since = Clock::now();
  learnt_ = plan().first_iteration;
  return AppendParts();
}

bool Executor::MayAppend() const {
  const std::optional<ProgramPart>& part = program_->part();
  if (!part.has_value() || part_ends_.size() > kLapsAhead) return false;
  return !plan().requests || part->iteration.value < learnt_ + IterationsOfNotice(plan());
}

void Executor::Learn(Iteration t, const RunRequest& request) {
  learnt_ = t.value + 1;
  if (request.any()) program_->Note(request);
  if (const absl::Status appended = AppendParts(); !appended.ok()) Fail(appended);
}

absl::Status Executor::AppendParts() {
  const std::deque<int64_t>& next = guarded_.computing.next;
  const int64_t front = next.empty() ? guarded_.program.end() : next.front();
  while (!part_ends_.empty() && part_ends_.front() <= front) part_ends_.pop_front();
  while (MayAppend()) {
    RZ_ASSIGN_OR_RETURN(const int64_t first, guarded_.program.Append(program_->Next()));
    const int64_t last = guarded_.program.end();
    guarded_.stats.operations_known =
        std::max(guarded_.stats.operations_known, guarded_.program.known());
    part_ends_.push_back(last);
    std::vector<int64_t> ready;
    for (int64_t op = first; op < last; ++op) {
      const OpState& state = guarded_.program.at(op);
      if (IsCompute(state.linked.op.kind)) guarded_.computing.next.push_back(op);
      if (!state.arrived) RZ_RETURN_IF_ERROR(hooks_.expect(op));
      if (guarded_.program.IsReady(op)) ready.push_back(op);
    }
    Advance(std::move(ready));
  }
  return guarded_.error;
}

void Executor::Complete(int64_t op) { Advance(guarded_.program.Complete(op)); }

void Executor::Arrive(int64_t op) {
  guarded_.program.at(op).arrived = true;
  if (guarded_.program.IsReady(op)) Advance({op});
}

void Executor::Advance(std::vector<int64_t> ready) {
  // A worklist, not recursion: a message may set off a long chain of sends.
  for (size_t i = 0; i < ready.size() && guarded_.error.ok(); ++i) {
    const OpKind kind = guarded_.program.at(ready[i]).linked.op.kind;
    if (IsCompute(kind)) continue;  // the computing thread sees for itself
    const bool done = hooks_.start(ready[i]);
    if (!guarded_.error.ok()) break;
    const std::vector<int64_t> next =
        done ? guarded_.program.Complete(ready[i]) : guarded_.program.Begin(ready[i]);
    ready.insert(ready.end(), next.begin(), next.end());
  }
  changed_.notify_all();
}

void Executor::Fail(const absl::Status& why) {
  if (!guarded_.error.ok()) return;
  guarded_.error = why;
  changed_.notify_all();
  if (transport() != nullptr) transport()->Abort(why);
  if (options_.on_failure) options_.on_failure();
}

void Executor::FailAt(const Op& op, const absl::Status& why) {
  // What has ended the transport is no fault of the operation that is the first to hear of it.
  const absl::Status ended = transport() == nullptr ? absl::OkStatus() : transport()->status();
  const std::string where =
      absl::StrCat("worker ", options_.self.value, ", \"", ToString(op), "\"");
  Fail(ended.ok() ? Annotate(why, where) : ended);
}

absl::Status Executor::WaitFor(Lock& lock, const std::string& what,
                               const std::function<bool()>& done,
                               const std::function<void(double)>& waited) {
  const Deadline deadline(options_.wait_timeout);
  Clock::time_point since = Clock::now();
  while (guarded_.error.ok() && !done()) {
    // Several waits at most: each change is attributed to what was missing before it.
    changed_.wait_for(lock, deadline.Look());
    const Clock::time_point now = Clock::now();
    if (waited) waited(std::chrono::duration<double>(now - since).count());
    since = now;
    if (transport() != nullptr && guarded_.error.ok()) {
      if (absl::Status ended = transport()->status(); !ended.ok()) Fail(ended);
    }
    if (deadline.over() && guarded_.error.ok() && !done()) {
      const std::string& words = guarded_.computing.waiting_for;
      const absl::Status blame =
          hooks_.blame(lock, absl::StrCat("waited ", SecondsText(options_.wait_timeout), " ",
                                          words.empty() ? what : absl::StrCat("for ", words)));
      if (guarded_.error.ok() && !done()) Fail(blame);
    }
  }
  guarded_.computing.waiting_for.clear();
  return guarded_.error;
}

void Executor::RunOnPool(int64_t op, std::function<absl::Status()> work) {
  pool_->Add([this, op, what = Op(guarded_.program.at(op).linked.op), work = std::move(work)] {
    recorder_.Record(Writer::kPool, {EventKind::kBegin, what});
    const absl::Status status = Costed(what, 1, [&]() -> absl::Status {
      try {
        return work();
      } catch (const std::bad_alloc& error) {
        return OutOfMemory(error.what());
      }
    });
    recorder_.Record(Writer::kPool, {EventKind::kEnd, what});
    const Lock lock = Hold();
    if (!guarded_.error.ok()) return;
    if (!status.ok()) return FailAt(what, status);
    Complete(op);
  });
}

std::function<void()> Executor::BeginElsewhere(int64_t op) {
  recorder_.Record(Writer::kMessages, {EventKind::kBegin, OpOf(op)});
  return [this, op] {
    const Lock lock = Hold();
    if (!guarded_.error.ok()) return;
    recorder_.Record(Writer::kMessages, {EventKind::kEnd, OpOf(op)});
    Complete(op);
  };
}

void Executor::RecordAtOnce(const Op& op, uint32_t message) {
  recorder_.Record(Writer::kMessages, {EventKind::kBegin, op, message});
  recorder_.Record(Writer::kMessages, {EventKind::kEnd, op, message});
}

Done Executor::AtEnd(std::function<void()> then) {
  return [this, then = std::move(then)](const absl::Status& end) {
    const Lock lock = Hold();
    if (!guarded_.error.ok()) return;
    if (!end.ok()) return Fail(end);
    then();
  };
}

}  // namespace ringzero
