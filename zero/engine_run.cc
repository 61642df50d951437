// What happens when an operation may start: messages go, work goes to the pool.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "zero/engine_impl.h"
#include "zero/optimizer_state.h"
#include "zero/received_needs.h"

namespace ringzero {

Engine::Impl::Impl(EngineOptions options)
    : options_(std::move(options)),
      plan_(options_.plan),
      owned_(plan_, options_.layouts, blocks_),
      recorder_(options_.recorder),
      state_(plan_, options_.self),
      scale_(options_.loss_scale, plan_.scale_lag()),
      sent_messages_(static_cast<size_t>(plan_.workers * kChannelCount)),
      received_messages_(static_cast<size_t>(plan_.workers * kChannelCount)),
      pool_(std::make_unique<WorkerPool>()) {}

Engine::Impl::~Impl() {
  if (!finished_)
    Abort(absl::CancelledError(absl::StrCat("worker ", options_.self.value, " left")));
  // The transport's thread and the pool's end before anything that they use; what operations hold
  // goes back to the transport's pools first.
  pool_.reset();
  {
    Lock lock(mutex_);
    state_.Clear();
    owned_.Clear();
    blocks_.Clear();
    initial_statistics_.clear();
    snapshots_.clear();
    gradients_.clear();
    started_sums_.clear();
    held_copies_.clear();
    statistics_.clear();
  }
  options_.transport.reset();
}

absl::Status Engine::Impl::Start() {
  const auto allocate = [this](const OwnBlock& own) -> absl::StatusOr<Buffer> {
    const auto bytes = static_cast<size_t>(own.bytes);
    if (own.access == Access::kLentToRead) {
      return options_.transport->Allocate(bytes, MemoryUse::kParameters);
    }
    const bool parameters =
        own.block.kind == BlockKind::kVersion || own.block.kind == BlockKind::kMasters;
    if (parameters && options_.parameter_memory) return options_.parameter_memory(bytes);
    return MakeHeapBuffer(bytes);
  };
  const std::vector<int64_t> moments = MomentBytes(options_.optimizer, options_.layouts);
  RZ_RETURN_IF_ERROR(blocks_.Allocate(OwnBlocks(plan_, options_.self, moments), allocate));
  for (int j = 0; j < plan_.stage_count(); ++j) {
    if (plan_.has_masters(options_.self, StageId(j))) {
      RZ_RETURN_IF_ERROR(owned_.Initialize(StageId(j), options_.optimizer, options_.initialize));
    }
    const int64_t bytes = options_.layouts[j].statistics_bytes;
    if (options_.self.value == 0 && bytes > 0) {
      Buffer initial = MakeHeapBuffer(static_cast<size_t>(bytes));
      if (options_.initialize_statistics) {
        RZ_RETURN_IF_ERROR(options_.initialize_statistics(StageId(j), initial.data()));
      }
      initial_statistics_[j] = std::move(initial).Seal();
    }
  }
  RZ_RETURN_IF_ERROR(ReserveSums());
  RZ_ASSIGN_OR_RETURN(ProgramWriter program,
                      ProgramWriter::Create(plan_, options_.self, Iteration(0)));
  Lock lock(mutex_);
  program_ = std::move(program);
  AnswerQuestions();
  stats_.memory = blocks_.bytes();
  stats_.memory.moments += owned_.scratch_bytes();
  return AppendParts();
}

absl::Status Engine::Impl::AppendParts() {
  constexpr size_t kKnown = kLapsAhead + 1;
  const int64_t front = compute_.empty() ? 0 : compute_.front();
  while (!part_ends_.empty() && part_ends_.front() <= front) part_ends_.pop_front();
  while (next_part().has_value() && part_ends_.size() < kKnown) {
    RZ_ASSIGN_OR_RETURN(const int64_t first, state_.Append(program_->Next()));
    const int64_t last = state_.end();
    stats_.operations_known = std::max(stats_.operations_known, state_.known());
    part_ends_.push_back(last);
    std::vector<int64_t> ready;
    for (int64_t op = first; op < last; ++op) {
      const OpKind kind = state_.at(op).linked.op.kind;
      if (IsCompute(kind)) compute_.push_back(op);
      if (kind == OpKind::kReceive) {
        RZ_RETURN_IF_ERROR(PostReceive(op));
      } else if (state_.IsReady(op)) {
        ready.push_back(op);
      }
    }
    Advance(std::move(ready));
  }
  return error_;
}

size_t Engine::Impl::MessageBytes(const Op& op) const {
  return ringzero::MessageBytes(plan_, op, options_.metrics_count);
}

std::string Engine::Impl::Where(const Op& op) const {
  return absl::StrCat("worker ", options_.self.value, ", \"", ToString(op), "\"");
}

absl::Status Engine::Impl::PostReceive(int64_t number) {
  const Op& op = state_.at(number).linked.op;
  const MessageKey key{static_cast<uint8_t>(op.channel), MessageTag(op)};
  const uint32_t count = NextMessage(received_messages_, op);
  const auto arrived = [this, number, count](auto message, auto member) {
    Lock lock(mutex_);
    if (!error_.ok()) return;
    if (!message.ok()) return Fail(message.status());
    OpState& state = state_.at(number);
    recorder_.Record(Writer::kMessages, {EventKind::kBegin, state.linked.op, count});
    if constexpr (std::is_same_v<std::decay_t<decltype(*message)>, SharedBuffer>) {
      SharedBuffer& place = IsHeld(state.linked.op) ? HeldCopy(state.linked.op) : state.*member;
      place = *std::move(message);
    } else {
      state.*member = *std::move(message);
    }
    state.arrived = true;
    if (absl::Status kept = KeepArrival(state); !kept.ok()) {
      return FailAt(state.linked.op, kept);
    }
    recorder_.Record(Writer::kMessages, {EventKind::kEnd, state.linked.op, count});
    if (state.waiting == 0) Complete(number);
  };
  if (IsOwnedMessage(op.channel)) {
    return options_.transport->ExpectOwned(op.peer, key, MessageBytes(op),
                                           [arrived](absl::StatusOr<Buffer> message) {
                                             arrived(std::move(message), &OpState::owned);
                                           });
  }
  return options_.transport->ExpectShared(op.peer, key, MessageBytes(op),
                                          [arrived](absl::StatusOr<SharedBuffer> message) {
                                            arrived(std::move(message), &OpState::shared);
                                          });
}

bool Engine::Impl::IsHeld(const Op& message) const {
  return plan_.holds_copies() && BringsHeldCopies(message.channel);
}

SharedBuffer& Engine::Impl::HeldCopy(const Op& op) {
  return held_copies_[{op.stage.value, op.version.value}];
}

SharedBuffer Engine::Impl::CopyOf(const Read& read) const {
  if (read.owned) return blocks_.Lend(read.block);
  if (read.held) return held_copies_.at({read.stage.value, read.version.value});
  return state_.at(read.op).shared;
}

absl::Status Engine::Impl::KeepArrival(OpState& state) {
  const Op& op = state.linked.op;
  switch (op.channel) {
    case Channel::kToken:
      state.owned.Reset();  // it has said all by arriving
      break;
    case Channel::kNorms: return KeepNorm(state);
    case Channel::kBuffers: {
      // Into memory of our own, so that the slot is free: the next worker's evaluation, which waits
      // for later statistics on this channel, may come before its use of these.
      RZ_ASSIGN_OR_RETURN(Buffer copy, AllocateSum(static_cast<int64_t>(state.owned.size())));
      std::memcpy(copy.data(), state.owned.data(), copy.size());
      state.owned = std::move(copy);
      break;
    }
    case Channel::kSnapshots: {
      // Likewise; the received handle itself serves the relay.
      Buffer copy = MakeHeapBuffer(state.shared.size());
      std::memcpy(copy.data(), state.shared.data(), copy.size());
      if (state.users_left == 0) state.shared.Reset();
      snapshots_[{op.iteration.value, op.stage.value}] = std::move(copy).Seal();
      break;
    }
    default: break;
  }
  return absl::OkStatus();
}

void Engine::Impl::Advance(std::vector<int64_t> ready) {
  // A worklist, not recursion: a message may set off a long chain of sends.
  for (size_t i = 0; i < ready.size() && error_.ok(); ++i) Act(ready[i], ready);
  changed_.notify_all();
}

void Engine::Impl::Act(int64_t number, std::vector<int64_t>& ready) {
  const Op op = state_.at(number).linked.op;
  switch (op.kind) {
    case OpKind::kForward:
    case OpKind::kBackward:
    case OpKind::kEvaluate:
    case OpKind::kEnd:
    case OpKind::kCollect: return;  // the computing thread sees it
    case OpKind::kReceive: break;   // completed when its message arrives
    case OpKind::kSend: {
      const uint32_t count = NextMessage(sent_messages_, op);
      recorder_.Record(Writer::kMessages, {EventKind::kBegin, op, count});
      if (absl::Status sent = Send(number); !sent.ok()) return FailAt(op, sent);
      recorder_.Record(Writer::kMessages, {EventKind::kEnd, op, count});
      break;
    }
    case OpKind::kRelease:
      recorder_.Record(Writer::kMessages, {EventKind::kBegin, op});
      held_copies_.erase({op.stage.value, op.version.value});
      recorder_.Record(Writer::kMessages, {EventKind::kEnd, op});
      break;
    case OpKind::kAdd: return SubmitAdd(number);
    case OpKind::kUpdate: return SubmitUpdate(number);
    case OpKind::kApply: return SubmitApply(number);
    case OpKind::kSnapshot: return SubmitSnapshot(number);
    case OpKind::kFold: return SubmitFold(number);
    case OpKind::kReport: return SubmitReport(number);
    case OpKind::kKeep: return SubmitKeep(number);
    case OpKind::kSquares: return SubmitSquares(number);
    case OpKind::kNorm:
      recorder_.Record(Writer::kMessages, {EventKind::kBegin, op});
      if (const absl::Status folded = FoldNorm(op.iteration); !folded.ok()) return Fail(folded);
      recorder_.Record(Writer::kMessages, {EventKind::kEnd, op});
      break;
  }
  const std::vector<int64_t> next = state_.Complete(number);
  ready.insert(ready.end(), next.begin(), next.end());
}

Buffer Engine::Impl::TakeOver(int64_t op) {
  const int64_t from = state_.at(op).linked.takes;
  if (from < 0) return Buffer();
  Buffer buffer = std::move(state_.at(from).owned);
  RZ_CHECK(buffer, ToString(state_.at(op).linked.op));
  return buffer;
}

absl::Status Engine::Impl::Send(int64_t number) {
  const LinkedOp& linked = state_.at(number).linked;
  const Op& op = linked.op;
  const MessageKey key{static_cast<uint8_t>(op.channel), MessageTag(op)};
  Transport& transport = *options_.transport;
  if (CarriesParameters(op.channel)) {
    return transport.Share(op.peer, key, CopyOf(linked.reads[0]));
  }
  if (op.channel == Channel::kFinished || op.channel == Channel::kSnapshots) {
    return transport.Share(op.peer, key, state_.at(linked.snapshot).shared);
  }
  if (op.channel == Channel::kToken) {
    RZ_ASSIGN_OR_RETURN(Buffer token, AllocateSum(kPayloadAlignment));
    return transport.Give(op.peer, key, std::move(token));
  }
  if (op.channel == Channel::kNorms) {
    RZ_ASSIGN_OR_RETURN(Buffer numbers, NormMessage(op));
    return transport.Give(op.peer, key, std::move(numbers));
  }
  return transport.Give(op.peer, key, TakeOver(number));
}

void Engine::Impl::Fail(const absl::Status& why) {
  if (!error_.ok()) return;
  error_ = why;
  changed_.notify_all();
  if (options_.transport != nullptr) options_.transport->Abort(why);
  if (options_.on_failure) options_.on_failure();
}

void Engine::Impl::FailAt(const Op& op, const absl::Status& why) {
  // What has ended the transport is no fault of the operation that is the first to hear of it.
  const absl::Status ended =
      options_.transport == nullptr ? absl::OkStatus() : options_.transport->status();
  Fail(ended.ok() ? Annotate(why, Where(op)) : ended);
}

void Engine::Impl::Abort(const absl::Status& why) {
  Lock lock(mutex_);
  Fail(why);
}

}  // namespace ringzero
