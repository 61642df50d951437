// What goes into a message, and where what comes in one goes.
#include "zero/engine/messages.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/loans.h"
#include "zero/received_needs.h"

namespace ringzero {

using Writer = Executor::Writer;

Messages::Messages(const Parts& parts)
    : executor_(parts.executor),
      blocks_(parts.blocks),
      lent_(parts.lent),
      norms_(parts.norms),
      statistics_(parts.statistics) {
  const auto channels = static_cast<size_t>(executor_.plan().workers * kChannelCount);
  sent_.resize(channels);
  received_.resize(channels);
}

uint32_t Messages::NextMessage(std::vector<uint32_t>& counts, const Op& op) {
  return counts[static_cast<size_t>(op.peer.value * kChannelCount) +
                static_cast<size_t>(op.channel)]++;
}

template <typename Handle>
void Messages::Arrive(int64_t number, uint32_t count, absl::StatusOr<Handle> message) {
  const Executor::Lock lock = executor_.Hold();
  if (!executor_.error().ok()) return;
  if (!message.ok()) return executor_.Fail(message.status());
  OpState& state = executor_.state().at(number);
  const Op& op = state.linked.op;
  executor_.recorder().Record(Writer::kMessages, {EventKind::kBegin, op, count});
  if constexpr (std::is_same_v<Handle, Buffer>) {
    state.owned = *std::move(message);
  } else if (IsHeld(op)) {
    held_copies_[{op.stage.value, op.version.value}] = *std::move(message);
  } else {
    state.shared = *std::move(message);
  }
  if (absl::Status kept = KeepArrival(state); !kept.ok()) return executor_.FailAt(op, kept);
  End(number, count);
}

void Messages::ArriveWord(int64_t number, uint32_t count, const absl::Status& word) {
  const Executor::Lock lock = executor_.Hold();
  if (!executor_.error().ok()) return;
  if (!word.ok()) return executor_.Fail(word);
  executor_.recorder().Record(Writer::kMessages,
                              {EventKind::kBegin, executor_.OpOf(number), count});
  End(number, count);
}

void Messages::End(int64_t number, uint32_t count) {
  OpState& state = executor_.state().at(number);
  state.arrived = true;
  executor_.recorder().Record(Writer::kMessages, {EventKind::kEnd, state.linked.op, count});
  if (state.waiting > 0) return;
  if (absl::Status taken = Take(number); !taken.ok()) {
    return executor_.FailAt(state.linked.op, taken);
  }
  executor_.Complete(number);
}

absl::Status Messages::Take(int64_t number) {
  const Instruction& op = executor_.OpOf(number);
  if (!op.loan) return absl::OkStatus();
  const MemoryBlock& target = op.uses[0].block;
  if (target.kind == BlockKind::kSum) return absl::OkStatus();  // it came home
  RZ_ASSIGN_OR_RETURN(MappedMemory memory, lent_.Of(*executor_.transport(), op));
  blocks_.Borrow(target, std::move(memory));
  return absl::OkStatus();
}

absl::Status Messages::Post(int64_t number) {
  const Instruction& op = executor_.OpOf(number);
  const MessageKey key = MessageKeyOf(op);
  const uint32_t count = NextMessage(received_, op);
  Transport& transport = *executor_.transport();
  if (IsWord(op)) {
    return transport.ExpectWord(op.peer, key, [this, number, count](const absl::Status& word) {
      ArriveWord(number, count, word);
    });
  }
  const size_t bytes = executor_.MessageBytes(op);
  if (IsOwnedMessage(op.channel)) {
    return transport.ExpectOwned(op.peer, key, bytes,
                                 [this, number, count](absl::StatusOr<Buffer> message) {
                                   Arrive(number, count, std::move(message));
                                 });
  }
  return transport.ExpectShared(op.peer, key, bytes,
                                [this, number, count](absl::StatusOr<SharedBuffer> message) {
                                  Arrive(number, count, std::move(message));
                                });
}

absl::Status Messages::KeepArrival(OpState& state) {
  switch (state.linked.op.channel) {
    case Channel::kToken:
      state.owned.Reset();  // it has said all by arriving
      return absl::OkStatus();
    case Channel::kNorms:
      // A few numbers: their slot is free at once.
      return norms_.Keep(state.linked.op, std::move(state.owned));
    case Channel::kBuffers: return statistics_.KeepRunning(state);
    case Channel::kSnapshots: statistics_.KeepSnapshot(state); return absl::OkStatus();
    default: return absl::OkStatus();
  }
}

bool Messages::IsHeld(const Op& message) const {
  return executor_.plan().holds_copies() && BringsHeldCopies(message.channel);
}

SharedBuffer Messages::CopyOf(const Read& read) const {
  if (blocks_.Has(read.block)) return blocks_.Lend(read.block);
  if (read.held) return held_copies_.at({read.stage.value, read.version.value});
  return executor_.state().at(read.op).shared;
}

std::vector<StageCopy> Messages::CopiesOf(const LinkedOp& linked) const {
  std::vector<StageCopy> copies;
  for (const Read& read : linked.reads) {
    // A forward reads tied stages by the copies of their own BeginForward, which are still held.
    if (linked.op.kind != OpKind::kBackward && read.stage != linked.op.stage) continue;
    copies.push_back({read.stage, CopyOf(read)});
  }
  return copies;
}

absl::Status Messages::CheckReads(const LinkedOp& linked) const {
  for (const Read& read : linked.reads) {
    const absl::Status holds = blocks_.StampAt(read.block).Check(StampOf(read.version));
    RZ_RETURN_IF_ERROR(Annotate(holds, ToString(read.block)));
  }
  return absl::OkStatus();
}

absl::Status Messages::Send(int64_t number) {
  const Op op = executor_.OpOf(number);
  const uint32_t count = NextMessage(sent_, op);
  executor_.recorder().Record(Writer::kMessages, {EventKind::kBegin, op, count});
  RZ_RETURN_IF_ERROR(SendNow(number));
  executor_.recorder().Record(Writer::kMessages, {EventKind::kEnd, op, count});
  return absl::OkStatus();
}

absl::Status Messages::SendNow(int64_t number) {
  const LinkedOp& linked = executor_.state().at(number).linked;
  const Instruction& op = linked.op;
  const MessageKey key = MessageKeyOf(op);
  Transport& transport = *executor_.transport();
  if (IsWord(op)) {
    if (op.loan) lent_bytes_[key.kind] += executor_.MessageBytes(op);
    return transport.SendWord(op.peer, key);
  }
  if (CarriesParameters(op.channel)) {
    return transport.Share(op.peer, key, CopyOf(linked.reads[0]));
  }
  if (op.channel == Channel::kFinished || op.channel == Channel::kSnapshots) {
    return transport.Share(op.peer, key, executor_.state().at(linked.snapshot).shared);
  }
  if (op.channel == Channel::kToken) {
    RZ_ASSIGN_OR_RETURN(Buffer token, executor_.AllocateMessage(kPayloadAlignment));
    return transport.Give(op.peer, key, std::move(token));
  }
  if (op.channel == Channel::kNorms) {
    RZ_ASSIGN_OR_RETURN(Buffer numbers, norms_.Message(op));
    return transport.Give(op.peer, key, std::move(numbers));
  }
  return transport.Give(op.peer, key, executor_.TakeOver(number));
}

}  // namespace ringzero
