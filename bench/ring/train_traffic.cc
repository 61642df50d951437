// Walks the links of the program as the engine does, with nothing to compute.
#include "bench/ring/train_traffic.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bench/ring/train_messages.h"
#include "sharding/program.h"
#include "sharding/schedule.h"
#include "zero/program_state.h"
#include "zero/received_needs.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

// Iterations whose messages are expected at the same time, as in the engine.
constexpr int kAhead = 3;
// How often an update looks whether the version that it overwrites is free: nobody tells it.
constexpr std::chrono::microseconds kLookInterval(100);

class TrainTraffic final : public Traffic {
 public:
  explicit TrainTraffic(const TrainSetup& setup)
      : waiting_(*setup.waiting),
        transport_(waiting_.transport()),
        payload_(*setup.payload),
        self_(transport_.self()),
        plan_(setup.plan) {}

  absl::Status Prepare();
  absl::StatusOr<std::vector<double>> Time(int iterations) override;
  absl::StatusOr<int64_t> Check(uint64_t repetition) override;
  uint64_t next_tag() const override { return 0; }  // tags are the program's

 private:
  // The owner's memory of a version.
  SharedBuffer& Owned(StageId stage, Version version) {
    return owned_[stage.value][Contents(stage, version) % VersionBuffers(plan_, stage)];
  }
  // What lies behind a label: θ_{-1} is θ_0, and a frozen stage is never updated.
  int Contents(StageId stage, Version version) const {
    return plan_.stage(stage).sum_bytes == 0 ? 0 : std::max(0, version.value);
  }
  DataKey KeyOf(StageId stage, Version version) const {
    return {WorkerId(stage.value), repetition_ + static_cast<uint64_t>(Contents(stage, version))};
  }

  absl::Status Run(int iterations);
  absl::Status Append(int end);
  absl::Status Expect(int64_t op);
  absl::Status KeepArrival(OpState& state);
  void OnArrival(int64_t number, const std::function<void(OpState&)>& keep);  // message thread
  absl::Status Advance(std::vector<int64_t> ready);
  absl::StatusOr<bool> Act(int64_t number);  // false: it cannot yet
  absl::Status Send(int64_t number);
  absl::StatusOr<bool> Add(int64_t number);
  absl::StatusOr<bool> Update(int64_t number);
  absl::Status Begin(int64_t number, size_t bytes);
  absl::Status Snapshot(int64_t number);
  absl::Status Squares(int64_t number);
  absl::StatusOr<Buffer> CopyOf(const std::byte* data, size_t bytes);
  void End(const Op& op);
  Buffer TakeOver(int64_t number);
  absl::Status Inspect(const OpState& state);
  void Tell(const absl::Status& status);

  Waiting& waiting_;
  Transport& transport_;
  Payload& payload_;  // guarded by actor_mutex_ during a run
  const WorkerId self_;
  Plan plan_;                                       // its iterations: those of the run at hand
  std::map<int, std::vector<SharedBuffer>> owned_;  // by stage: its versions
  std::map<int, Buffer> taken_;  // by stage: where a complete sum waits for the norm

  std::mutex actor_mutex_;  // guards what follows: the caller begins and retries, callbacks go on
  std::unique_ptr<ProgramState> state_;
  std::vector<int64_t> deferred_;  // operations that wait for memory
  std::optional<ProgramWriter> program_;
  bool checking_ = false;
  uint64_t repetition_ = 0;
  int64_t wrong_ = 0;
  std::vector<Clock::time_point> stamps_;
  std::map<int, SharedBuffer> snapshots_;  // by stage: the result's running statistics

  // Guarded by the waiting's mutex.
  bool done_ = false;
  bool waits_for_memory_ = false;
  absl::Status failed_;
};

absl::Status TrainTraffic::Prepare() {
  if (plan_.predict) {
    return absl::InvalidArgumentError("plan: predict is of training; no traffic is made of it");
  }
  for (int j = 0; j < plan_.stage_count(); ++j) {
    const StagePlan& stage = plan_.stages[j];
    if (stage.owner != self_ || stage.parameter_bytes == 0) continue;
    for (int v = 0; v < VersionBuffers(plan_, StageId(j)); ++v) {
      RZ_ASSIGN_OR_RETURN(
          Buffer buffer,
          transport_.Allocate(static_cast<size_t>(stage.parameter_bytes), MemoryUse::kParameters));
      RZ_RETURN_IF_ERROR(payload_.Poison(buffer));
      owned_[j].push_back(std::move(buffer).Seal());
    }
    if (!plan_.takes_sums() || stage.sum_bytes == 0) continue;
    RZ_ASSIGN_OR_RETURN(taken_[j], payload_.Make(static_cast<size_t>(stage.sum_bytes)));
    RZ_RETURN_IF_ERROR(payload_.Poison(taken_[j]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> TrainTraffic::Time(int iterations) {
  checking_ = false;
  RZ_RETURN_IF_ERROR(Run(iterations + 1));
  return SecondsBetween(stamps_);
}

absl::StatusOr<int64_t> TrainTraffic::Check(uint64_t repetition) {
  constexpr int kIterations = 3;  // the shortest run in which every version is overwritten once
  checking_ = true;
  repetition_ = repetition * (kIterations + 1);
  wrong_ = 0;
  for (auto& [stage, buffers] : owned_) {
    SharedBuffer& first = Owned(StageId(stage), Version(0));
    RZ_ASSIGN_OR_RETURN(Buffer open, Reopen(waiting_, first));
    RZ_RETURN_IF_ERROR(payload_.FillData(KeyOf(StageId(stage), Version(0)), open));
    first = std::move(open).Seal();
  }
  RZ_RETURN_IF_ERROR(Run(kIterations));
  return wrong_;
}

absl::Status TrainTraffic::Run(int iterations) {
  {
    const std::lock_guard<std::mutex> lock(actor_mutex_);
    plan_.iterations = iterations;
    state_ = std::make_unique<ProgramState>(plan_, self_);
    deferred_.clear();
    stamps_.clear();
    RZ_ASSIGN_OR_RETURN(ProgramWriter program, ProgramWriter::Create(plan_, self_, Iteration(0)));
    program_ = std::move(program);
    done_ = waits_for_memory_ = false;
    RZ_RETURN_IF_ERROR(Append(kAhead));
  }
  while (true) {
    RZ_RETURN_IF_ERROR(waiting_.Until("train, the end of its run", Manner::kBusy, [this] {
      return done_ || waits_for_memory_ || !failed_.ok();
    }));
    {
      const std::lock_guard<std::mutex> lock(waiting_.mutex());
      RZ_RETURN_IF_ERROR(failed_);
      if (done_) break;
    }
    if (!transport_.Poll()) std::this_thread::sleep_for(kLookInterval);
    const std::lock_guard<std::mutex> lock(actor_mutex_);
    RZ_RETURN_IF_ERROR(Advance(std::exchange(deferred_, {})));
  }
  const std::lock_guard<std::mutex> lock(actor_mutex_);  // the last callback is out of here
  snapshots_.clear();
  return absl::OkStatus();
}

absl::Status TrainTraffic::Append(int end) {
  end = std::min(end, plan_.iterations + 1);  // closing iteration included: the rest arrives in it
  while (program_->part().has_value() && program_->part()->iteration.value < end) {
    RZ_ASSIGN_OR_RETURN(const int64_t first, state_->Append(program_->Next()));
    const int64_t last = state_->end();
    std::vector<int64_t> ready;
    for (int64_t op = first; op < last; ++op) {
      if (state_->at(op).linked.op.kind == OpKind::kReceive) {
        RZ_RETURN_IF_ERROR(Expect(op));
      } else if (state_->IsReady(op)) {
        ready.push_back(op);
      }
    }
    RZ_RETURN_IF_ERROR(Advance(std::move(ready)));
  }
  return absl::OkStatus();
}

absl::Status TrainTraffic::Expect(int64_t number) {
  const Op& op = state_->at(number).linked.op;
  const MessageKey key = MessageKeyOf(op);
  const size_t bytes = MessageBytes(plan_, op, kTrainMetrics);
  if (!IsOwnedMessage(op.channel)) {
    return transport_.ExpectShared(
        op.peer, key, bytes, [this, number](absl::StatusOr<SharedBuffer> got) {
          if (!got.ok()) return Tell(got.status());
          OnArrival(number, [&got](OpState& state) { state.shared = *std::move(got); });
        });
  }
  return transport_.ExpectOwned(op.peer, key, bytes, [this, number](absl::StatusOr<Buffer> got) {
    if (!got.ok()) return Tell(got.status());
    OnArrival(number, [&got](OpState& state) { state.owned = *std::move(got); });
  });
}

void TrainTraffic::OnArrival(int64_t number, const std::function<void(OpState&)>& keep) {
  const std::lock_guard<std::mutex> lock(actor_mutex_);
  OpState& state = state_->at(number);
  keep(state);
  state.arrived = true;
  if (checking_) {
    if (absl::Status status = Inspect(state); !status.ok()) return Tell(status);
  }
  if (absl::Status status = KeepArrival(state); !status.ok()) return Tell(status);
  if (state.waiting == 0) Tell(Advance(state_->Complete(number)));
}

// As the engine does: drops tokens and norms, copies statistics, so that their slots are free.
absl::Status TrainTraffic::KeepArrival(OpState& state) {
  const Op& op = state.linked.op;
  if (op.channel == Channel::kToken || op.channel == Channel::kNorms) {
    state.owned.Reset();
  } else if (op.channel == Channel::kBuffers) {
    RZ_ASSIGN_OR_RETURN(state.owned, CopyOf(state.owned.data(), state.owned.size()));
  } else if (op.channel == Channel::kSnapshots) {
    RZ_ASSIGN_OR_RETURN(Buffer copy, CopyOf(state.shared.data(), state.shared.size()));
    snapshots_[op.stage.value] = std::move(copy).Seal();
    state.shared.Reset();
  }
  return absl::OkStatus();
}

absl::StatusOr<Buffer> TrainTraffic::CopyOf(const std::byte* data, size_t bytes) {
  RZ_ASSIGN_OR_RETURN(Buffer copy, transport_.Allocate(bytes, MemoryUse::kSums));
  RZ_RETURN_IF_ERROR(payload_.Copy(copy, data));
  return copy;
}

// The running statistics stay in their place until this is done; a run's last ones are dropped.
absl::Status TrainTraffic::Snapshot(int64_t number) {
  const LinkedOp& linked = state_->at(number).linked;
  const Buffer& running = state_->at(linked.snapshot).owned;
  RZ_ASSIGN_OR_RETURN(Buffer copy, CopyOf(running.data(), running.size()));
  snapshots_[linked.op.stage.value] = std::move(copy).Seal();
  TakeOver(number).Reset();
  return absl::OkStatus();
}

// A sum that waits for the norm makes room for the next one, as in the engine.
absl::Status TrainTraffic::Squares(int64_t number) {
  const LinkedOp& linked = state_->at(number).linked;
  if (linked.takes < 0) return absl::OkStatus();
  const Buffer sum = TakeOver(number);
  Buffer copy = std::move(taken_.at(linked.op.stage.value));
  RZ_RETURN_IF_ERROR(payload_.Copy(copy, sum.data()));
  state_->at(number).owned = std::move(copy);
  return absl::OkStatus();
}

absl::Status TrainTraffic::Advance(std::vector<int64_t> ready) {
  for (size_t i = 0; i < ready.size(); ++i) {
    const int64_t number = ready[i];
    if (state_->at(number).linked.op.kind != OpKind::kReceive) {
      RZ_ASSIGN_OR_RETURN(const bool acted, Act(number));
      if (!acted) {
        deferred_.push_back(number);
        continue;
      }
    }
    const std::vector<int64_t> next = state_->Complete(number);
    ready.insert(ready.end(), next.begin(), next.end());
  }
  const bool all = !program_->part().has_value() && state_->AllDone();
  {
    const std::lock_guard<std::mutex> lock(waiting_.mutex());
    waits_for_memory_ = !deferred_.empty();
    done_ = all;
  }
  if (all || !deferred_.empty()) waiting_.Notify();
  return absl::OkStatus();
}

absl::StatusOr<bool> TrainTraffic::Act(int64_t number) {
  const Op op = state_->at(number).linked.op;
  switch (op.kind) {
    case OpKind::kEnd: End(op); break;
    case OpKind::kSend: RZ_RETURN_IF_ERROR(Send(number)); break;
    case OpKind::kAdd: return Add(number);
    case OpKind::kUpdate: return Update(number);
    case OpKind::kApply:
      RZ_RETURN_IF_ERROR(Begin(number, static_cast<size_t>(plan_.stage(op.stage).buffer_bytes)));
      break;
    case OpKind::kFold: RZ_RETURN_IF_ERROR(Begin(number, kTrainMetrics * sizeof(double))); break;
    case OpKind::kReport: TakeOver(number).Reset(); break;
    case OpKind::kSnapshot: RZ_RETURN_IF_ERROR(Snapshot(number)); break;
    case OpKind::kSquares: RZ_RETURN_IF_ERROR(Squares(number)); break;
    default: break;  // computing: done at once
  }
  return true;
}

// Continues a fold or statistics, or begins them.
absl::Status TrainTraffic::Begin(int64_t number, size_t bytes) {
  Buffer buffer = TakeOver(number);
  if (!buffer) {
    RZ_ASSIGN_OR_RETURN(buffer, transport_.Allocate(bytes, MemoryUse::kSums));
  }
  state_->at(number).owned = std::move(buffer);
  return absl::OkStatus();
}

// An iteration ends with its last accumulation step (lap); then iteration t + kAhead is expected.
void TrainTraffic::End(const Op& op) {
  if (op.iteration.value >= plan_.iterations || op.lap.value != plan_.laps - 1) return;
  stamps_.push_back(Clock::now());
  Tell(Append(op.iteration.value + 1 + kAhead));
}

Buffer TrainTraffic::TakeOver(int64_t number) {
  const int64_t from = state_->at(number).linked.takes;
  return from < 0 ? Buffer() : std::move(state_->at(from).owned);
}

absl::Status TrainTraffic::Send(int64_t number) {
  const LinkedOp& linked = state_->at(number).linked;
  const Op& op = linked.op;
  const MessageKey key = MessageKeyOf(op);
  if (CarriesParameters(op.channel)) {
    const Read& read = linked.reads[0];
    return transport_.Share(
        op.peer, key, read.owned ? Owned(read.stage, read.version) : state_->at(read.op).shared);
  }
  if (op.channel == Channel::kSnapshots) {
    return transport_.Share(op.peer, key, snapshots_.at(op.stage.value));
  }
  if (op.channel == Channel::kToken || op.channel == Channel::kNorms) {
    RZ_ASSIGN_OR_RETURN(Buffer words, transport_.Allocate(MessageBytes(plan_, op, kTrainMetrics),
                                                          MemoryUse::kSums));
    return transport_.Give(op.peer, key, std::move(words));
  }
  return transport_.Give(op.peer, key, TakeOver(number));
}

absl::StatusOr<bool> TrainTraffic::Add(int64_t number) {
  const Op& op = state_->at(number).linked.op;
  const size_t bytes = static_cast<size_t>(plan_.stage(op.stage).sum_bytes);
  const bool begins = state_->at(number).linked.takes < 0;
  Buffer sum;
  if (begins) {
    absl::StatusOr<Buffer> made = transport_.AllocateNumbered(op.stage.value, bytes);
    if (absl::IsResourceExhausted(made.status())) return false;  // the last sum is not back yet
    RZ_ASSIGN_OR_RETURN(sum, std::move(made));
  } else {
    sum = TakeOver(number);
  }
  if (checking_) {
    const DataKey key{self_, repetition_ + static_cast<uint64_t>(op.stage.value)};
    if (begins) {
      RZ_RETURN_IF_ERROR(payload_.FillTerms(ElementType::kFloat, key, sum));
    } else {
      RZ_ASSIGN_OR_RETURN(const Buffer terms, payload_.Make(bytes));
      RZ_RETURN_IF_ERROR(payload_.FillTerms(ElementType::kFloat, key, terms));
      RZ_RETURN_IF_ERROR(payload_.AddTerms(ElementType::kFloat, terms, sum));
    }
  }
  state_->at(number).owned = std::move(sum);
  return true;
}

absl::StatusOr<bool> TrainTraffic::Update(int64_t number) {
  const Op op = state_->at(number).linked.op;
  const bool travels = plan_.stage(op.stage).parameter_bytes > 0;
  if (travels && Owned(op.stage, op.version).holders() != 1) return false;
  Buffer sum = TakeOver(number);
  if (checking_) {
    const DataKey key{.worker = WorkerId(plan_.workers - 1),
                      .repetition = repetition_ + static_cast<uint64_t>(op.stage.value),
                      .times = plan_.laps};
    RZ_ASSIGN_OR_RETURN(const int64_t wrong,
                        payload_.CountWrongSums(ElementType::kFloat, key, sum.as<std::byte>()));
    wrong_ += wrong;
    if (travels) {
      SharedBuffer& buffer = Owned(op.stage, op.version);
      RZ_ASSIGN_OR_RETURN(Buffer open, std::move(buffer).Unseal());
      RZ_RETURN_IF_ERROR(payload_.FillData(KeyOf(op.stage, op.version), open));
      buffer = std::move(open).Seal();
    }
  }
  if (plan_.takes_sums()) taken_[op.stage.value] = std::move(sum);
  return true;
}

absl::Status TrainTraffic::Inspect(const OpState& state) {
  const Op& op = state.linked.op;
  if (!CarriesParameters(op.channel)) return absl::OkStatus();  // sums are checked when complete
  RZ_ASSIGN_OR_RETURN(const int64_t wrong,
                      payload_.CountWrong(ElementType::kFloat, KeyOf(op.stage, op.version),
                                          {state.shared.data(), state.shared.size()}));
  wrong_ += wrong;
  return absl::OkStatus();
}

void TrainTraffic::Tell(const absl::Status& status) {
  if (status.ok()) return;
  {
    const std::lock_guard<std::mutex> lock(waiting_.mutex());
    if (failed_.ok()) failed_ = status;
  }
  waiting_.Notify();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Traffic>> MakeTrainTraffic(const TrainSetup& setup) {
  auto traffic = std::make_unique<TrainTraffic>(setup);
  RZ_RETURN_IF_ERROR(traffic->Prepare());
  return traffic;
}

}  // namespace ringzero
