// Walks the links of the program as the engine does, with nothing to compute.
#include "bench/ring/train_traffic.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "sharding/check/verify.h"
#include "sharding/memory/block_table.h"
#include "sharding/program/operands.h"
#include "sharding/program/program.h"
#include "zero/block_memory.h"
#include "zero/engine/executor.h"
#include "zero/message_key.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

// Iterations that are known at the same time, as in the engine.
constexpr int kAhead = 3;

class TrainTraffic final : public Traffic {
 public:
  explicit TrainTraffic(const TrainSetup& setup)
      : waiting_(*setup.waiting),
        transport_(waiting_.transport()),
        payload_(*setup.payload),
        self_(transport_.self()),
        plan_(setup.plan),
        damage_(setup.damage) {}

  absl::Status Prepare();
  absl::StatusOr<std::vector<double>> Time(int iterations) override;
  absl::StatusOr<int64_t> Check(uint64_t repetition) override;
  uint64_t next_tag() const override { return 0; }  // tags are the program's

 private:
  // What lies behind a label: θ_{-1} is θ_0, and a frozen stage is never updated.
  int Contents(StageId stage, Version version) const {
    return plan_.stage(stage).sum_bytes == 0 ? 0 : std::max(0, version.value);
  }
  DataKey KeyOf(StageId stage, Version version) const {
    return {WorkerId(stage.value), repetition_ + static_cast<uint64_t>(Contents(stage, version))};
  }
  // The first bytes of a block.
  std::span<std::byte> BytesOf(const MemoryBlock& block, int64_t bytes) const {
    return blocks_.at(block).as<std::byte>().first(static_cast<size_t>(bytes));
  }
  int64_t PayloadOf(const Op& message) const { return MessageBytes(plan_, message, kTrainMetrics); }

  absl::Status Run(int iterations);
  absl::Status Append(int end);
  absl::Status Advance(std::vector<int64_t> ready);
  // True: it is done; else OnEnd completes it.
  absl::StatusOr<bool> Act(int64_t number);
  absl::Status Send(int64_t number);
  absl::Status Receive(int64_t number);
  void OnEnd(int64_t number, const absl::Status& end);  // message thread
  absl::Status Add(const Instruction& op);
  absl::Status Update(const Instruction& op);
  absl::Status Copy(const Instruction& op, Role from, Role to, int64_t bytes);
  absl::Status Inspect(const Instruction& receive);
  void End(const Op& op);
  void Tell(const absl::Status& status);

  Waiting& waiting_;
  Transport& transport_;
  Payload& payload_;  // guarded by actor_mutex_ during a run
  const WorkerId self_;
  Plan plan_;  // its iterations: those of the run at hand
  const bool damage_;
  std::map<MemoryBlock, Buffer> blocks_;

  std::mutex actor_mutex_;  // guards what follows: the caller begins, callbacks go on
  std::unique_ptr<ProgramState> state_;
  std::unique_ptr<ProgramWriter> program_;
  bool checking_ = false;
  uint64_t repetition_ = 0;
  int64_t wrong_ = 0;
  std::vector<Clock::time_point> stamps_;

  // Guarded by the waiting's mutex.
  bool done_ = false;
  absl::Status failed_;
};

const MemoryBlock& BlockOf(const Instruction& op, Role role) {
  const auto use = std::find_if(op.uses.begin(), op.uses.end(),
                                [role](const Use& each) { return each.role == role; });
  RZ_CHECK(use != op.uses.end(), ToString(op));
  return use->block;
}

absl::Status TrainTraffic::Prepare() {
  if (plan_.predict) {
    return absl::InvalidArgumentError("plan: predict is of training; no traffic is made of it");
  }
  RZ_ASSIGN_OR_RETURN(const std::vector<OwnBlock> table,
                      BlockTable(plan_, self_, {.metrics_count = kTrainMetrics}));
  for (const OwnBlock& own : table) {
    const auto bytes = static_cast<size_t>(own.bytes);
    Buffer& block = blocks_[own.block];
    if (own.access == Access::kPrivate) {
      RZ_ASSIGN_OR_RETURN(block, payload_.Make(bytes));
    } else {
      RZ_ASSIGN_OR_RETURN(block, transport_.Allocate(bytes, UseOf(own.access)));
    }
    RZ_RETURN_IF_ERROR(payload_.Poison(block));
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
  for (int j = 0; j < plan_.stage_count(); ++j) {
    const auto first = blocks_.find(VersionBlock(plan_, StageId(j), Version(0)));
    if (first == blocks_.end()) continue;
    RZ_RETURN_IF_ERROR(payload_.FillData(KeyOf(StageId(j), Version(0)), first->second));
    if (damage_ && repetition == 1 && j == 0) *first->second.data() ^= std::byte{1};
  }
  RZ_RETURN_IF_ERROR(Run(kIterations));
  return wrong_;
}

absl::Status TrainTraffic::Run(int iterations) {
  {
    const std::lock_guard<std::mutex> lock(actor_mutex_);
    plan_.iterations = iterations;
    state_ = std::make_unique<ProgramState>(plan_, self_);
    stamps_.clear();
    RZ_ASSIGN_OR_RETURN(program_, ProgramWriter::Create(plan_, self_, Iteration(0)));
    done_ = false;
    RZ_RETURN_IF_ERROR(Append(kAhead));
  }
  RZ_RETURN_IF_ERROR(waiting_.Until("train, the end of its run", Manner::kBusy,
                                    [this] { return done_ || !failed_.ok(); }));
  {
    const std::lock_guard<std::mutex> lock(waiting_.mutex());
    RZ_RETURN_IF_ERROR(failed_);
  }
  const std::lock_guard<std::mutex> lock(actor_mutex_);  // the last callback is out of here
  return absl::OkStatus();
}

absl::Status TrainTraffic::Append(int end) {
  end = std::min(end, plan_.iterations + 1);  // closing iteration included: the rest arrives in it
  while (program_->part().has_value() && program_->part()->iteration.value < end) {
    RZ_ASSIGN_OR_RETURN(const int64_t first, state_->Append(program_->Next()));
    const int64_t last = state_->end();
    std::vector<int64_t> ready;
    for (int64_t op = first; op < last; ++op) {
      if (state_->IsReady(op)) ready.push_back(op);
    }
    RZ_RETURN_IF_ERROR(Advance(std::move(ready)));
  }
  return absl::OkStatus();
}

absl::Status TrainTraffic::Advance(std::vector<int64_t> ready) {
  for (size_t i = 0; i < ready.size(); ++i) {
    RZ_ASSIGN_OR_RETURN(const bool done, Act(ready[i]));
    const std::vector<int64_t> next = done ? state_->Complete(ready[i]) : state_->Begin(ready[i]);
    ready.insert(ready.end(), next.begin(), next.end());
  }
  if (program_->part().has_value() || !state_->AllDone()) return absl::OkStatus();
  {
    const std::lock_guard<std::mutex> lock(waiting_.mutex());
    done_ = true;
  }
  waiting_.Notify();
  return absl::OkStatus();
}

absl::StatusOr<bool> TrainTraffic::Act(int64_t number) {
  const Instruction op = state_->at(number).linked.op;
  switch (op.kind) {
    case OpKind::kEnd: End(op); break;
    case OpKind::kSend: RZ_RETURN_IF_ERROR(Send(number)); return false;
    case OpKind::kReceive: RZ_RETURN_IF_ERROR(Receive(number)); return false;
    case OpKind::kAdd: RZ_RETURN_IF_ERROR(Add(op)); break;
    case OpKind::kUpdate: RZ_RETURN_IF_ERROR(Update(op)); break;
    case OpKind::kSnapshot:
      RZ_RETURN_IF_ERROR(
          Copy(op, Role::kStatistics, Role::kSnapshot, plan_.stage(op.stage).buffer_bytes));
      break;
    case OpKind::kSquares:
      if (!plan_.takes_sums()) break;
      // A sum that waits for the norm makes room for the next one.
      RZ_RETURN_IF_ERROR(Copy(op, Role::kSum, Role::kTaken, plan_.stage(op.stage).sum_bytes));
      break;
    default: break;  // computing: done at once
  }
  return true;
}

absl::Status TrainTraffic::Send(int64_t number) {
  const Instruction& op = state_->at(number).linked.op;
  return transport_.Send(op.peer, MessageKeyOf(op), BytesOf(op.uses[0].block, PayloadOf(op)),
                         [this, number](const absl::Status& left) { OnEnd(number, left); });
}

absl::Status TrainTraffic::Receive(int64_t number) {
  const Instruction& op = state_->at(number).linked.op;
  return transport_.Post(op.peer, MessageKeyOf(op), BytesOf(op.uses[0].block, PayloadOf(op)),
                         [this, number](const absl::Status& came) { OnEnd(number, came); });
}

void TrainTraffic::OnEnd(int64_t number, const absl::Status& end) {
  if (!end.ok()) return Tell(end);
  const std::lock_guard<std::mutex> lock(actor_mutex_);
  const Instruction& op = state_->at(number).linked.op;
  if (checking_ && op.kind == OpKind::kReceive) {
    if (absl::Status status = Inspect(op); !status.ok()) return Tell(status);
  }
  Tell(Advance(state_->Complete(number)));
}

absl::Status TrainTraffic::Copy(const Instruction& op, Role from, Role to, int64_t bytes) {
  return payload_.Copy(Buffer(BytesOf(BlockOf(op, to), bytes)),
                       blocks_.at(BlockOf(op, from)).data());
}

// An iteration ends with its last accumulation step (lap); then iteration t + kAhead is expected.
void TrainTraffic::End(const Op& op) {
  if (op.iteration.value >= plan_.iterations || op.lap.value != plan_.laps - 1) return;
  stamps_.push_back(Clock::now());
  Tell(Append(op.iteration.value + 1 + kAhead));
}

absl::Status TrainTraffic::Add(const Instruction& op) {
  if (!checking_) return absl::OkStatus();
  const int64_t bytes = plan_.stage(op.stage).sum_bytes;
  const Buffer sum = Buffer(BytesOf(BlockOf(op, Role::kSum), bytes));
  const DataKey key{self_, repetition_ + static_cast<uint64_t>(op.stage.value)};
  if (op.uses[1].how == How::kWrite) return payload_.FillTerms(ElementType::kFloat, key, sum);
  RZ_ASSIGN_OR_RETURN(const Buffer terms, payload_.Make(static_cast<size_t>(bytes)));
  RZ_RETURN_IF_ERROR(payload_.FillTerms(ElementType::kFloat, key, terms));
  return payload_.AddTerms(ElementType::kFloat, terms, sum);
}

absl::Status TrainTraffic::Update(const Instruction& op) {
  if (!checking_) return absl::OkStatus();
  const StagePlan& stage = plan_.stage(op.stage);
  const DataKey key{.worker = WorkerId(plan_.workers - 1),
                    .repetition = repetition_ + static_cast<uint64_t>(op.stage.value),
                    .times = plan_.laps};
  RZ_ASSIGN_OR_RETURN(const int64_t wrong,
                      payload_.CountWrongSums(ElementType::kFloat, key,
                                              BytesOf(BlockOf(op, Role::kSum), stage.sum_bytes)));
  wrong_ += wrong;
  if (stage.parameter_bytes == 0) return absl::OkStatus();
  return payload_.FillData(KeyOf(op.stage, op.version), blocks_.at(BlockOf(op, Role::kMade)));
}

absl::Status TrainTraffic::Inspect(const Instruction& receive) {
  // Sums are checked when complete.
  if (!CarriesParameters(receive.channel)) return absl::OkStatus();
  RZ_ASSIGN_OR_RETURN(
      const int64_t wrong,
      payload_.CountWrong(ElementType::kFloat, KeyOf(receive.stage, receive.version),
                          BytesOf(receive.uses[0].block, PayloadOf(receive))));
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

absl::StatusOr<Plan> ReadTrafficPlan(const std::string& file) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream) return InvalidArgument("--plan ", file, ": cannot read it");
  absl::StatusOr<Plan> plan = ParsePlan(text.str());
  if (!plan.ok()) return Annotate(plan.status(), absl::StrCat("--plan ", file));
  plan->evaluation = {};
  plan->collection = {};
  plan->iterations = 3;
  if (!plan->exchange) {
    return InvalidArgument("--plan ", file, ": in it nothing travels");
  }
  if (plan->zero_stage != 3) {
    return InvalidArgument("--plan ", file, ": the benchmark plays stage 3 of ZeRO, found ",
                           plan->zero_stage);
  }
  plan->hosts.clear();  // here all messages have payload
  RZ_RETURN_IF_ERROR(Annotate(CheckPlan(*plan), absl::StrCat("--plan ", file)));
  const absl::StatusOr<int> window = ChooseWindow(*plan);
  RZ_RETURN_IF_ERROR(Annotate(window.status(), absl::StrCat("--plan ", file)));
  plan->window = *window;
  return plan;
}

absl::StatusOr<size_t> BytesPerIteration(const Plan& plan) {
  Plan longer = plan;
  longer.iterations = 5;
  size_t bytes = 0;
  for (int w = 0; w < plan.workers; ++w) {
    RZ_ASSIGN_OR_RETURN(const Program program,
                        MakeProgram(longer, WorkerId(w), {Iteration(2), Iteration(3)}));
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::kSend) continue;
      bytes += static_cast<size_t>(MessageBytes(plan, op, kTrainMetrics));
    }
  }
  return bytes;
}

TransportOptions TrainNeeds(const Plan& plan, WorkerId self) {
  absl::StatusOr<TransportOptions> needs = TransportNeeds(plan, self, kTrainMetrics);
  RZ_CHECK(needs.ok(), needs.status().ToString());  // the plan is verified
  return *std::move(needs);
}

}  // namespace ringzero
