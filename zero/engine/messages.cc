// What goes into a message, and where what comes in one goes.
#include "zero/engine/messages.h"

#include "base/check.h"
#include "base/status.h"
#include "sharding/memory/block_table.h"
#include "sharding/program/loans.h"
#include "sharding/program/operands.h"
#include "sharding/rules/schedule.h"
#include "zero/message_key.h"

namespace ringzero {
namespace {

size_t BytesOf(const EngineOptions& options, const Op& message) {
  return static_cast<size_t>(MessageBytes(options.plan, message, options.metrics_count));
}

}  // namespace

using Writer = Executor::Writer;

std::span<std::byte> Messages::PayloadOf(const Instruction& op) const {
  const std::span<std::byte> block = blocks_.Bytes(op.uses[0].block);
  const size_t bytes = BytesOf(executor_.options(), op);
  RZ_CHECK(bytes <= block.size(), WithOperands(op));
  return block.first(bytes);
}

absl::Status Messages::Expect(int64_t number) {
  const Op& op = executor_.OpOf(number);
  const uint32_t count = received_[{op.peer, op.channel}]++;
  return executor_.transport()->ExpectWord(op.peer, MessageKeyOf(op),
                                           executor_.AtEnd([this, number, count] {
                                             executor_.RecordAtOnce(executor_.OpOf(number), count);
                                             executor_.Arrive(number);
                                           }));
}

absl::StatusOr<bool> Messages::Receive(int64_t number) {
  const Instruction& op = executor_.OpOf(number);
  Transport& transport = *executor_.transport();
  const MemoryBlock& target = op.uses[0].block;
  if (!IsWord(op)) {
    const uint32_t count = received_[{op.peer, op.channel}]++;
    // The memory of a sum keeps its stamp: other workers may still add to the sum that is there.
    // The next sum comes only when that one has gone on.
    if (CarriesParameters(op.channel)) blocks_.StampAt(target).Set(Stamp::kBeingWritten);
    RZ_RETURN_IF_ERROR(
        transport.Post(op.peer, MessageKeyOf(op), PayloadOf(op),
                       executor_.AtEnd([this, number, count] { Arrive(number, count); })));
    return false;
  }
  // From now on the target is a name for what was lent; but of a sum that came home.
  if (op.loan && target.kind != BlockKind::kSum) {
    const LentBlock lent = lent_.HomeOf(transport.self(), op);
    const bool filed = LiesInFile(executor_.plan(), lent.block);
    const MemoryBlock file{.kind = BlockKind::kVersionFile};
    RZ_ASSIGN_OR_RETURN(MappedMemory memory,
                        lent_.At(transport, filed ? LentBlock{lent.home, file} : lent));
    if (filed) {
      RZ_ASSIGN_OR_RETURN(memory, files_.Of(lent, memory.bytes.data()));
      blocks_.Map(target, std::move(memory));
    } else {
      blocks_.Borrow(target, std::move(memory));
    }
  }
  return true;
}

void Messages::Arrive(int64_t number, uint32_t count) {
  const Instruction& op = executor_.OpOf(number);
  executor_.RecordAtOnce(op, count);
  StampArrived(op);
  if (op.channel == Channel::kNorms) {
    if (absl::Status kept = norms_.Keep(op); !kept.ok()) return executor_.FailAt(op, kept);
  }
  executor_.Complete(number);
}

void Messages::StampArrived(const Instruction& receive) {
  const Stamp stamp = blocks_.StampAt(receive.uses[0].block);
  if (CarriesParameters(receive.channel)) return stamp.Set(StampOf(receive.version));
  if (receive.channel != Channel::kSum) return;
  const Plan& plan = executor_.plan();
  const int before = MicroBatchOf(plan, executor_.options().self, receive.lap);
  stamp.Set(StampOfSum(plan, receive.iteration.value, before));
}

void Messages::StampSent(const Instruction& send) {
  if (!CarriesSums(send.channel)) return;
  const int64_t free = StampOfFreeSum(executor_.plan(), send.iteration.value + 1);
  blocks_.StampAt(send.uses[0].block).Set(free);
}

std::vector<StageCopy> Messages::CopiesOf(const LinkedOp& linked) const {
  std::vector<StageCopy> copies;
  for (const Read& read : linked.reads) {
    // A forward reads tied stages by the copies of their own BeginForward, which are still held.
    if (linked.op.kind != OpKind::kBackward && read.stage != linked.op.stage) continue;
    copies.push_back({read.stage, blocks_.Lend(read.block)});
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

absl::StatusOr<bool> Messages::Send(int64_t number) {
  const Instruction op = executor_.OpOf(number);
  const uint32_t count = sent_[{op.peer, op.channel}]++;
  const MessageKey key = MessageKeyOf(op);
  Transport& transport = *executor_.transport();
  executor_.recorder().Record(Writer::kMessages, {EventKind::kBegin, op, count});
  if (IsWord(op)) {
    if (op.loan) lent_bytes_[key.kind] += BytesOf(executor_.options(), op);
    RZ_RETURN_IF_ERROR(transport.SendWord(op.peer, key));
  } else {
    StampSent(op);
    RZ_RETURN_IF_ERROR(transport.Send(op.peer, key, PayloadOf(op), executor_.AtEnd([this, number] {
      executor_.Complete(number);
    })));
  }
  executor_.recorder().Record(Writer::kMessages, {EventKind::kEnd, op, count});
  return IsWord(op);
}

}  // namespace ringzero
