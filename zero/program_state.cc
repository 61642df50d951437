// Counts what each operation still waits for.
#include "zero/program_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "sharding/loans.h"
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
      at(one.behind).behind = number;
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
  if (state.behind.has_value()) Free(*std::exchange(state.behind, std::nullopt), ready);
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
