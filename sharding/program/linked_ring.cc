// Links all programs and joins sends to receives.
#include "sharding/program/linked_ring.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/program/loans.h"
#include "sharding/program/requests.h"
#include "sharding/rules/schedule.h"

namespace ringzero {
namespace {

// Writes a worker's program, and links it.
absl::Status WriteWorker(const Plan& plan, int worker, bool in_pieces, LinkedRing& ring) {
  const int base = ring.count();
  const auto shift = [base](int64_t op) { return static_cast<int>(op >= 0 ? op + base : op); };
  Linker linker(plan, WorkerId(worker), in_pieces);
  RZ_ASSIGN_OR_RETURN(const auto writer,
                      ProgramWriter::Create(plan, WorkerId(worker), WholeRun(plan).begin));
  while (writer->part().has_value()) {
    RZ_ASSIGN_OR_RETURN(const std::vector<LinkedOp> linked, linker.Append(writer->Next()));
    for (const LinkedOp& from : linked) {
      RingOp& to = ring.ops.emplace_back();
      static_cast<Op&>(to) = from.op;
      to.uses = from.uses;
      to.loan = from.op.loan;
      to.worker = worker;
      to.behind = shift(from.behind);
      for (const int64_t after : from.after) to.after.push_back(shift(after));
      for (const Read& read : from.reads) to.reads.push_back({read.stage, read.version});
    }
  }
  ring.begin.push_back(ring.count());
  ring.blocks.push_back(linker.blocks());
  return absl::OkStatus();
}

absl::Status SortIntoQueues(const Plan& plan, LinkedRing& ring) {
  std::map<std::tuple<WorkerId, WorkerId, Channel>, MessageQueue> queues;
  for (int w = 0; w < plan.workers; ++w) {
    for (int i = ring.begin[w]; i < ring.begin[w + 1]; ++i) {
      const Op& op = ring.op(i);
      if (!IsMessage(op.kind)) continue;
      if (op.peer.value < 0 || op.peer.value >= plan.workers || op.peer.value == w) {
        return FailedPrecondition(ring.Describe(i), ": its other end is none of the other workers");
      }
      const bool send = op.kind == OpKind::kSend;
      const WorkerId from = send ? WorkerId(w) : op.peer, to = send ? op.peer : WorkerId(w);
      MessageQueue& queue = queues[{from, to, op.channel}];
      queue.from = from;
      queue.to = to;
      (send ? queue.sends : queue.receives).push_back(i);
    }
  }
  for (auto& [key, queue] : queues) ring.queues.push_back(std::move(queue));
  return absl::OkStatus();
}

void AddAfter(RingOp& op, int before) {
  const auto at = std::lower_bound(op.after.begin(), op.after.end(), before);
  if (at == op.after.end() || *at != before) op.after.insert(at, before);
}

// Memory that a message is sent from is free when the message has been delivered.
void WaitForDeliveries(LinkedRing& ring) {
  for (int i = 0; i < ring.count(); ++i) {
    RingOp& op = ring.ops[i];
    for (int& before : op.after) {
      const RingOp& other = ring.ops[before];
      if (other.kind == OpKind::kSend && !IsWord(other)) before = ring.partner[before];
    }
    std::sort(op.after.begin(), op.after.end());
    op.after.erase(std::unique(op.after.begin(), op.after.end()), op.after.end());
    // Receives of a channel are in order anyhow.
    if (op.kind == OpKind::kSend && op.behind >= 0) AddAfter(op, op.behind);
  }
}

// A backward whose gradient begins a sum waits for all that its add waits for.
void FindSumMemory(LinkedRing& ring) {
  std::map<int, int> last;  // by stage: the backward before
  for (int i = ring.begin[0]; i < ring.begin[1]; ++i) {
    const RingOp& op = ring.ops[i];
    if (op.kind == OpKind::kBackward) last[op.stage.value] = i;
    if (op.kind != OpKind::kAdd || op.uses[1].how != How::kWrite) continue;
    const int backward = last[op.stage.value];
    for (const int before : ring.ops[i].after) {
      if (before != backward) AddAfter(ring.ops[backward], before);
    }
  }
}

// A worker does nothing of a lap that it does not know yet (kLapsAhead, requests.h). What follows
// the end of a lap counts for the next one here, which makes it wait for longer than the engine
// does.
void FindHorizons(const Plan& plan, LinkedRing& ring) {
  for (int w = 0; w < plan.workers; ++w) {
    std::vector<int> ends;   // of laps
    std::vector<int> folds;  // of iterations' first laps, which bring requests
    for (int i = ring.begin[w]; i < ring.begin[w + 1]; ++i) {
      const Op& op = ring.op(i);
      const int laps = static_cast<int>(ends.size());
      const int passed = laps - kLapsAhead - 1;
      if (passed >= 0 && !IsCompute(op.kind)) AddAfter(ring.ops[i], ends[passed]);
      const int brought = laps / plan.laps - IterationsOfNotice(plan);
      if (plan.requests && brought >= 0) AddAfter(ring.ops[i], folds[brought]);
      if (op.copy != Copy::kNone) continue;
      if (op.kind == OpKind::kEnd) ends.push_back(i);
      if (op.kind == OpKind::kFold && op.lap.value == 0) folds.push_back(i);
    }
  }
}

}  // namespace

std::string LinkedRing::Describe(int i) const {
  const int w = worker_of(i);
  return absl::StrCat("worker ", w, ", line ", i - begin[w] + 2, ": \"", ToString(op(i)), "\"");
}

Instruction LinkedRing::InstructionOf(int i) const {
  Instruction instruction = op(i);
  instruction.loan = ops[i].loan;
  for (const NumberedUse& use : ops[i].uses) {
    instruction.uses.push_back({use.role, use.how, blocks[worker_of(i)][use.block]});
  }
  return instruction;
}

absl::Status LinkedRing::JoinMessages(const Plan& plan) {
  RZ_RETURN_IF_ERROR(SortIntoQueues(plan, *this));
  partner.assign(count(), -1);
  for (const MessageQueue& queue : queues) {
    const size_t both = std::min(queue.sends.size(), queue.receives.size());
    for (size_t i = 0; i < both; ++i) {
      const int send = queue.sends[i], receive = queue.receives[i];
      Op name = op(send);
      name.kind = OpKind::kReceive;
      name.peer = op(receive).peer;
      if (name != op(receive)) {
        return FailedPrecondition(Describe(receive), " meets ", Describe(send),
                                  ": not the same message");
      }
      partner[send] = receive;
      partner[receive] = send;
    }
    if (queue.sends.size() > both) {
      return FailedPrecondition(Describe(queue.sends[both]), ": nobody receives it");
    }
    if (queue.receives.size() > both) {
      return FailedPrecondition(Describe(queue.receives[both]), ": nobody sends it");
    }
  }
  return absl::OkStatus();
}

void LinkedRing::Finish(const Plan& plan) {
  window = plan.window > 0 ? plan.window : LeastWindow(plan);
  WaitForDeliveries(*this);
  FindSumMemory(*this);
  FindHorizons(plan, *this);
}

absl::StatusOr<LinkedRing> LinkedRing::Write(const Plan& plan, bool in_pieces) {
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  LinkedRing ring;
  for (int w = 0; w < plan.workers; ++w) RZ_RETURN_IF_ERROR(WriteWorker(plan, w, in_pieces, ring));
  RZ_RETURN_IF_ERROR(ring.JoinMessages(plan));
  ring.Finish(plan);
  return ring;
}

}  // namespace ringzero
