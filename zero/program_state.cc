// Counts what each operation still waits for.
#include "zero/program_state.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "zero/received_needs.h"

namespace ringzero {

absl::StatusOr<int64_t> ProgramState::Append(std::span<const Instruction> ops) {
  RZ_ASSIGN_OR_RETURN(std::vector<LinkedOp> linked, linker_.Append(ops));
  const int64_t first = end();
  for (LinkedOp& one : linked) {
    const int64_t number = end();
    OpState state;
    state.arrived = one.op.kind != OpKind::kReceive;
    state.users_left = one.users;
    const auto wait_for = [&](int64_t before) {
      if (IsDone(before)) return;
      at(before).next.push_back(number);
      ++state.waiting;
    };
    for (const int64_t before : one.after) wait_for(before);
    if (one.behind != kNoOp && one.op.kind == OpKind::kSend) wait_for(one.behind);
    state.linked = std::move(one);
    ops_.push_back(std::move(state));
    ++undone_;
  }
  return first;
}

std::vector<int64_t> ProgramState::Complete(int64_t op) {
  OpState& state = at(op);
  RZ_CHECK(!state.done, ToString(state.linked.op));
  state.done = true;
  --undone_;
  for (const int64_t shared : state.linked.shares) DropUse(shared);
  std::vector<int64_t> ready;
  for (const int64_t next : state.next) {
    OpState& successor = at(next);
    if (--successor.waiting == 0 && successor.arrived) ready.push_back(next);
  }
  state.next.clear();
  Forget();
  return ready;
}

void ProgramState::DropUse(int64_t op) {
  if (op < base_) return;
  OpState& state = at(op);
  if (--state.users_left == 0) state.shared.Reset();
}

void ProgramState::Forget() {
  // An operation that is done but still holds something is kept until its reader is done.
  while (!ops_.empty() && ops_.front().done && ops_.front().users_left <= 0 &&
         !ops_.front().owned) {
    ops_.pop_front();
    ++base_;
  }
}

int64_t ProgramState::FirstUnfinished(int64_t op) const {
  const OpState& state = at(op);
  if (!state.arrived) return op;
  for (const int64_t before : state.linked.after) {
    if (!IsDone(before)) return before;
  }
  const int64_t behind = state.linked.behind;
  const bool waits = behind != kNoOp && state.linked.op.kind == OpKind::kSend;
  return waits && !IsDone(behind) ? behind : kNoOp;
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

int64_t ProgramState::FindUpdate(StageId stage, Iteration iteration) const {
  for (int64_t number = base_; number < end(); ++number) {
    const Op& op = at(number).linked.op;
    if (op.kind == OpKind::kUpdate && op.stage == stage && op.iteration == iteration) return number;
  }
  return kNoOp;
}

int64_t ProgramState::FindSend(WorkerId to, MessageKey message) const {
  for (int64_t number = base_; number < end(); ++number) {
    const Op& op = at(number).linked.op;
    if (op.kind == OpKind::kSend && op.peer == to && MessageKeyOf(op) == message) {
      return number;
    }
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

}  // namespace ringzero
