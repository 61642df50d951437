// Which blocks a plan gives to a worker.
#include "sharding/memory/block_table.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "sharding/program/loans.h"
#include "sharding/program/operands.h"
#include "sharding/program/program.h"
#include "sharding/program/requests.h"
#include "sharding/rules/schedule.h"

namespace ringzero {
namespace {

// Blocks that differ in their index alone and take turns. What comes into block i need not always
// be of the same stage: where 12 messages of a lap take turns in 8 blocks, block 0 gets what block
// 4 got before. If the messages of all parts of a program are multiples of g, a message has the
// same index modulo g in each part.
class Family {
 public:
  explicit Family(int count) : classes_(count), bytes_(static_cast<size_t>(count)) {}
  int count() const { return static_cast<int>(bytes_.size()); }
  void Note(int index, int64_t bytes) {
    RZ_CHECK(index < count(), absl::StrCat("block ", index, " of ", count()));
    int64_t& most = bytes_[static_cast<size_t>(index)];
    most = std::max(most, bytes);
  }
  // A part of the program ends, in which so many have taken their turn.
  void EndTurn(int turns) { classes_ = std::gcd(classes_, turns); }
  int64_t BytesOf(int index) const {
    int64_t most = 0;
    for (int i = index % classes_; i < count(); i += classes_) {
      most = std::max(most, bytes_[static_cast<size_t>(i)]);
    }
    return most;
  }

 private:
  int classes_;
  std::vector<int64_t> bytes_;  // by index, as far as was seen
};

// The blocks of one worker, stage by stage.
class TableWriter {
 public:
  TableWriter(const Plan& plan, WorkerId self, std::span<const int64_t> moment_bytes)
      : plan_(plan), self_(self), moment_bytes_(moment_bytes) {}

  std::vector<OwnBlock> Write() {
    for (int j = 0; j < plan_.stage_count(); ++j) {
      if (plan_.has_masters(self_, StageId(j))) Owned(StageId(j));
      Sum(StageId(j));
      Kept(StageId(j));
    }
    Begun();
    Add({.kind = BlockKind::kMasters}, shown_masters_, OfParameters(), &MemoryBytes::masters);
    // What streamed states come through, whatever their stage.
    Add({.kind = BlockKind::kStaging}, streams_ ? plan_.staging_bytes : 0, Access::kPrivate,
        &MemoryBytes::moments);
    Resident();
    return std::move(blocks_);
  }

 private:
  void Add(const MemoryBlock& block, int64_t bytes, Access access, int64_t MemoryBytes::*category) {
    if (LiesInFile(plan_, block)) {
      int64_t& most = made_[block.kind];
      most = std::max(most, ImageBytes(bytes));
    } else if (bytes > 0) {
      blocks_.push_back({block, bytes, access, category});
    }
  }
  bool Trains(StageId j) const { return plan_.exchange && plan_.stage(j).sum_bytes > 0; }
  // Where all workers have all masters, none of them travels.
  Access OfParameters() const {
    const bool travels = plan_.exchange && plan_.zero_stage > 0 && plan_.workers > 1;
    return travels ? Access::kLentToRead : Access::kPrivate;
  }

  // What whoever has the masters of a stage keeps of it.
  void Owned(StageId j) {
    const StagePlan& stage = plan_.stage(j);
    const Access access = OfParameters();
    const bool apart = stage.master_bytes > 0;
    // An update goes from one version to the next: these two name all blocks that it uses.
    const int versions = Trains(j) ? 2 : 1;
    for (int v = 0; v < versions; ++v) {
      const MemoryBlock masters = MastersBlock(plan_, j, Version(v));
      if (v > 0 && masters == MastersBlock(plan_, j, Version(0))) continue;  // in place
      if (stage.streams_masters) {
        shown_masters_ = std::max(shown_masters_, stage.master_bytes);
        continue;
      }
      Add(masters, stage.collected_bytes(), access,
          v == 0 ? &MemoryBytes::masters : &MemoryBytes::versions);
    }
    for (int v = 0; v < versions && apart; ++v) {
      const MemoryBlock version = VersionBlock(plan_, j, Version(v));
      if (v > 0 && version == VersionBlock(plan_, j, Version(0))) continue;
      Add(version, stage.parameter_bytes, access, &MemoryBytes::versions);
    }
    for (int t = 0; t < 2 && IsPredicted(plan_, j); ++t) {
      Add(VersionBlock(plan_, j, Prediction(t)), stage.parameter_bytes, access,
          &MemoryBytes::versions);
    }
    if (!Trains(j)) return;
    streams_ = streams_ || stage.streams();
    const int64_t moments = moment_bytes_.empty() ? 0 : moment_bytes_[j.value];
    Add({.kind = BlockKind::kState, .stage = j}, moments, Access::kPrivate, &MemoryBytes::moments);
    if (!plan_.takes_sums()) return;
    Add({.kind = BlockKind::kTaken, .stage = j}, stage.sum_bytes, Access::kPrivate,
        &MemoryBytes::taken);
  }

  // What versions in files come through: of the largest stage.
  void Resident() {
    int64_t read = 0;
    for (const StagePlan& stage : plan_.stages) {
      if (stage.streams_parameters) read = std::max(read, ImageBytes(stage.parameter_bytes));
    }
    for (int slot = 0; slot < plan_.resident_slots; ++slot) {
      Add({.kind = BlockKind::kResident, .index = slot}, read, Access::kPrivate,
          &MemoryBytes::versions);
    }
    for (const auto& [kind, bytes] : made_) {
      Add(MadeSlot(plan_, kind), bytes, Access::kPrivate, &MemoryBytes::versions);
    }
    const bool tells = !made_.empty() && plan_.lends();
    Add({.kind = BlockKind::kVersionFile}, tells ? kFileNameBytes : 0, Access::kLentToRead,
        &MemoryBytes::versions);
  }

  // A lone worker's sum, and what sums that are lent lie in.
  void Sum(StageId j) {
    const bool lends = loans_.HasSums(self_);
    if (!Trains(j) || !(lends || plan_.workers == 1)) return;
    Add({.kind = BlockKind::kSum, .stage = j}, plan_.stage(j).sum_bytes,
        lends ? Access::kLentToWrite : Access::kPrivate, &MemoryBytes::sums);
  }

  // Otherwise worker 0 begins all sums of an iteration, in the order of backwards, in a few blocks.
  void Begun() {
    if (self_.value > 0 || plan_.workers == 1 || loans_.HasSums(self_)) return;
    Family family(BlocksOf(plan_, BlockKind::kBegun, Channel::kNone));
    int begun = 0;
    for (int j = plan_.stage_count() - 1; j >= 0; --j) {
      if (Trains(StageId(j))) family.Note(begun++ % family.count(), plan_.stages[j].sum_bytes);
    }
    family.EndTurn(begun);
    for (int b = 0; b < family.count(); ++b) {
      Add({.kind = BlockKind::kBegun, .index = b}, family.BytesOf(b), Access::kExchanged,
          &MemoryBytes::sums);
    }
  }

  // What is kept for collections: of two at once, as the program names it.
  void Kept(StageId j) {
    const bool collects = plan_.collection.any() && !plan_.collection.parameters_only;
    if (!collects || !Trains(j) || KeepsFor(plan_, plan_.collection.worker, j) != self_) return;
    for (const auto& [part, bytes] : {std::pair(Copy::kGradient, plan_.stage(j).sum_bytes),
                                      std::pair(Copy::kState, plan_.stage(j).state_bytes)}) {
      for (int index = 0; index < 2; ++index) {
        Add({.kind = BlockKind::kKept, .copy = part, .stage = j, .index = index}, bytes,
            plan_.workers > 1 ? Access::kExchanged : Access::kPrivate, nullptr);
      }
    }
  }

  const Plan& plan_;
  const Loans loans_{plan_};
  const WorkerId self_;
  const std::span<const int64_t> moment_bytes_;
  bool streams_ = false;       // whether a stage does that it owns
  int64_t shown_masters_ = 0;  // of the largest such stage whose masters do
  // Of the largest version, and the largest prediction, that this worker makes for its file.
  std::map<BlockKind, int64_t> made_;
  std::vector<OwnBlock> blocks_;
};

int64_t NumbersBytes(int count) { return int64_t{count} * static_cast<int64_t>(sizeof(double)); }

// What `op` needs of a block that StateBlocks does not have. 0: another operation says it, or it
// has no bytes.
int64_t BytesFor(const Plan& plan, const Instruction& op, const MemoryBlock& block,
                 int metrics_count) {
  const bool is_received =
      block.kind >= BlockKind::kCell && block.kind <= BlockKind::kHeldPrediction;
  if (IsWord(op) || (is_received && op.kind != OpKind::kReceive)) return 0;
  if (IsMessage(op.kind)) return MessageBytes(plan, op, metrics_count);
  switch (block.kind) {
    case BlockKind::kStatistics:
    case BlockKind::kSnapshot: return plan.stage(op.stage).buffer_bytes;
    case BlockKind::kMetrics:
    case BlockKind::kReport: return NumbersBytes(NumbersInFold(plan, metrics_count));
    case BlockKind::kSquares: return NumbersBytes(plan.stage(block.stage).trained_parameters);
    case BlockKind::kNorm: return NumbersBytes(1);
    case BlockKind::kReceipt: return kReceiptBytes;
    default: return 0;
  }
}

// What a program's messages use, by the block with index 0; but for the states.
class MessageFamilies {
 public:
  MessageFamilies(const Plan& plan, WorkerId self, int metrics_count)
      : plan_(plan), metrics_count_(metrics_count) {
    for (const OwnBlock& own : StateBlocks(plan, self, {})) states_.insert(own.block);
  }

  void NotePart(const std::vector<Instruction>& part) {
    std::map<MemoryBlock, int> turns;
    for (const Instruction& op : part) {
      for (const Use& use : op.uses) NoteUse(op, use, turns);
      // What is lent has taken a turn, too, before it was named anew (loans.h).
      const bool renamed = op.kind == OpKind::kReceive && op.loan;
      if (renamed && op.uses[0].block.kind == BlockKind::kCell) {
        ++turns[{.kind = BlockKind::kSlot, .channel = op.channel}];
      }
    }
    for (const auto& [first, count] : turns) {
      const auto used = families_.find(first);
      if (used != families_.end()) used->second.family.EndTurn(count);
    }
  }

  std::vector<OwnBlock> Blocks() const {
    std::vector<OwnBlock> blocks;
    for (const auto& [first, used] : families_) {
      OwnBlock own{.block = first,
                   .access = first.kind == BlockKind::kLent ? Access::kLentToRead
                             : used.exchanged               ? Access::kExchanged
                                                            : Access::kPrivate};
      for (; own.block.index < used.family.count(); ++own.block.index) {
        own.bytes = used.family.BytesOf(own.block.index);
        if (own.bytes > 0) blocks.push_back(own);
      }
    }
    std::ranges::stable_partition(blocks, IsLent, &OwnBlock::access);
    return blocks;
  }

 private:
  struct Used {
    Family family;
    bool exchanged = false;
  };

  void NoteUse(const Instruction& op, const Use& use, std::map<MemoryBlock, int>& turns) {
    const int64_t bytes = BytesFor(plan_, op, use.block, metrics_count_);
    if (bytes == 0 || states_.contains(use.block)) return;
    MemoryBlock first = use.block;
    first.index = 0;
    const auto [at, is_new] =
        families_.try_emplace(first, Used{Family(BlocksOf(plan_, first.kind, first.channel))});
    Used& used = at->second;
    used.family.Note(use.block.index, bytes);
    used.exchanged = used.exchanged || IsMessage(op.kind);
    const bool is_slot = first.kind == BlockKind::kSlot;
    if (is_slot && use.how == How::kWrite) ++turns[first];
    if (!is_slot && is_new) used.family.EndTurn(1);  // all have one size
  }

  const Plan& plan_;
  const int metrics_count_;
  std::set<MemoryBlock> states_;
  std::map<MemoryBlock, Used> families_;
};

// Gradients of at most pending + 1 backwards, one after the other, wait or are being made; after
// stage 0's comes the last stage's of the next lap. Without exchange they are dropped at once.
int64_t PendingGradients(const Plan& plan, const std::vector<int64_t>& gradient_bytes) {
  std::vector<int64_t> sums;
  for (int j = plan.stage_count() - 1; j >= 0; --j) {
    const int64_t bytes = gradient_bytes.empty() ? plan.stages[j].sum_bytes : gradient_bytes[j];
    if (plan.stages[j].sum_bytes > 0) sums.push_back(bytes);
  }
  const int64_t stages = static_cast<int64_t>(sums.size());
  const int64_t backwards = stages * plan.laps * (plan.iterations - plan.first_iteration);
  const int64_t together = plan.exchange ? plan.pending + int64_t{1} : 1;
  int64_t most = 0;
  for (int64_t first = 0; first < stages; ++first) {
    int64_t held = 0;
    for (int64_t i = first; i < std::min(first + together, backwards); ++i)
      held += sums[i % stages];
    most = std::max(most, held);
  }
  return most;
}

MemoryBytes BytesOf(const Plan& plan, const MemoryOptions& options, int worker) {
  MemoryBytes bytes;
  int64_t scratch = 0;
  for (const OwnBlock& own : StateBlocks(plan, WorkerId(worker), options.moment_bytes)) {
    if (own.category != nullptr) bytes.*own.category += own.bytes;
  }
  for (size_t j = 0; j < options.scratch_bytes.size(); ++j) {
    const bool updates = plan.has_masters(WorkerId(worker), StageId(static_cast<int>(j))) &&
                         plan.exchange && plan.stages[j].sum_bytes > 0;
    if (updates) scratch = std::max(scratch, options.scratch_bytes[j]);
  }
  bytes.moments += scratch;
  const bool begins_all = worker == 0 && plan.laps == 1 && plan.exchange;
  if (!(options.gradients_join_sums && begins_all)) {
    bytes.gradients = PendingGradients(plan, options.gradient_bytes);
  }
  return bytes;
}

// "masters"; "pools" for a block that the forecast does not count.
std::string CategoryName(const OwnBlock& own) {
  for (const MemoryCategory& category : MemoryCategories()) {
    if (category.bytes == own.category) return category.name;
  }
  return "pools";
}

}  // namespace

std::string ToString(Access access) {
  constexpr const char* kNames[] = {"private", "lent to read", "lent to write", "exchanged"};
  return kNames[static_cast<size_t>(access)];
}

std::vector<OwnBlock> StateBlocks(const Plan& plan, WorkerId self,
                                  std::span<const int64_t> moment_bytes) {
  return TableWriter(plan, self, moment_bytes).Write();
}

absl::StatusOr<std::vector<OwnBlock>> MessageBlocks(const Plan& plan, WorkerId self,
                                                    int metrics_count) {
  if (!plan.exchange) return std::vector<OwnBlock>();
  MessageFamilies families(plan, self, metrics_count);
  // All kinds of parts are in a short run.
  const Plan shortened = ShortenedPlan(plan);
  RZ_ASSIGN_OR_RETURN(const auto writer,
                      ProgramWriter::Create(shortened, self, WholeRun(shortened).begin));
  while (writer->part().has_value()) families.NotePart(writer->Next());
  return families.Blocks();
}

absl::StatusOr<std::vector<OwnBlock>> BlockTable(const Plan& plan, WorkerId self,
                                                 const BlockSizes& sizes) {
  std::vector<OwnBlock> table = StateBlocks(plan, self, sizes.moment_bytes);
  RZ_ASSIGN_OR_RETURN(const std::vector<OwnBlock> more,
                      MessageBlocks(plan, self, sizes.metrics_count));
  table.insert(table.end(), more.begin(), more.end());
  return table;
}

absl::StatusOr<std::vector<std::pair<WorkerId, WorkerId>>> PayloadPairs(const Plan& plan) {
  std::set<std::pair<WorkerId, WorkerId>> pairs;
  const Plan shortened = ShortenedPlan(plan);
  for (int w = 0; w < plan.workers; ++w) {
    const WorkerId self(w);
    RZ_ASSIGN_OR_RETURN(const Program program, MakeProgram(shortened, self, WholeRun(shortened)));
    for (const Instruction& op : program.ops) {
      const bool carries = op.kind == OpKind::kSend && op.channel != Channel::kToken;
      if (carries && !IsWord(op)) pairs.insert({self, op.peer});
    }
  }
  return std::vector<std::pair<WorkerId, WorkerId>>(pairs.begin(), pairs.end());
}

int64_t MessageBytes(const Plan& plan, const Op& message, int metrics_count) {
  switch (message.channel) {
    case Channel::kForwardCopy:
    case Channel::kBackwardCopy:
    case Channel::kInject:
    case Channel::kEvaluation: return plan.stage(message.stage).parameter_bytes;
    case Channel::kCollection: return plan.stage(message.stage).collected_bytes();
    case Channel::kStates:
      if (message.copy == Copy::kState) return plan.stage(message.stage).state_bytes;
      [[fallthrough]];
    case Channel::kSum:
    case Channel::kRetire:
    case Channel::kFinished: return plan.stage(message.stage).sum_bytes;
    case Channel::kBuffers:
    case Channel::kSnapshots: return plan.stage(message.stage).buffer_bytes;
    case Channel::kMetrics:
    case Channel::kReports: return NumbersBytes(NumbersInFold(plan, metrics_count));
    case Channel::kNorms:
      return NumbersBytes(message.stage == kNoStage ? 1
                                                    : plan.stage(message.stage).trained_parameters);
    case Channel::kReceipts: return kReceiptBytes;
    case Channel::kToken:
    case Channel::kReturn:
    case Channel::kReturnCopy:
    case Channel::kNone: break;
  }
  return static_cast<int64_t>(kPayloadAlignment);
}

std::string DescribeBlocks(WorkerId self, std::span<const OwnBlock> blocks) {
  std::string text = absl::StrCat("blocks of worker ", self.value, "\n");
  const auto row = [&](const std::string& name, const std::string& bytes,
                       const std::string& category, const std::string& access) {
    absl::StrAppendFormat(&text, "%-26s  %14s  %-10s  %s\n", name, bytes, category, access);
  };
  row("block", "bytes", "category", "access");
  int64_t total = 0;
  for (const OwnBlock& own : blocks) {
    row(ToString(own.block), absl::StrCat(own.bytes), CategoryName(own), ToString(own.access));
    total += own.bytes;
  }
  absl::StrAppendFormat(&text, "%-26s  %14d\n", "total", total);
  return text;
}

MemoryBytes& MemoryBytes::operator+=(const MemoryBytes& other) {
  for (const MemoryCategory& category : MemoryCategories()) {
    this->*category.bytes += other.*category.bytes;
  }
  return *this;
}

int64_t MemoryBytes::total() const {
  int64_t bytes = 0;
  for (const MemoryCategory& category : MemoryCategories()) bytes += this->*category.bytes;
  return bytes;
}

std::span<const MemoryCategory> MemoryCategories() {
  static constexpr MemoryCategory kCategories[] = {
      {"masters", &MemoryBytes::masters}, {"versions", &MemoryBytes::versions},
      {"moments", &MemoryBytes::moments}, {"sums", &MemoryBytes::sums},
      {"taken", &MemoryBytes::taken},     {"gradients", &MemoryBytes::gradients}};
  return kCategories;
}

MemoryBytes MemoryForecast::host() const {
  MemoryBytes all;
  for (const MemoryBytes& worker : workers) all += worker;
  return all;
}

absl::StatusOr<MemoryForecast> ForecastMemory(const Plan& plan, const MemoryOptions& options) {
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  for (const auto& [name, bytes] : {std::pair("moment_bytes", &options.moment_bytes),
                                    std::pair("scratch_bytes", &options.scratch_bytes),
                                    std::pair("gradient_bytes", &options.gradient_bytes)}) {
    if (bytes->empty() || static_cast<int>(bytes->size()) == plan.stage_count()) continue;
    return InvalidArgument("memory: wanted ", name, " of ", plan.stage_count(), " stages, found ",
                           bytes->size());
  }
  MemoryForecast memory;
  for (int w = 0; w < plan.workers; ++w) memory.workers.push_back(BytesOf(plan, options, w));
  return memory;
}

std::string DescribeMemory(const MemoryForecast& memory, int64_t parameter_count) {
  const MemoryBytes host = memory.host();
  const double parameters = static_cast<double>(std::max<int64_t>(parameter_count, 1));
  std::string text =
      absl::StrFormat("\n%-10s  %14s  %15s\n", "memory", "bytes, host", "bytes/parameter");
  const auto line = [&](const char* name, int64_t bytes) {
    absl::StrAppendFormat(&text, "%-10s  %14d  %15.2f\n", name, bytes,
                          static_cast<double>(bytes) / parameters);
  };
  for (const MemoryCategory& category : MemoryCategories()) {
    line(category.name, host.*category.bytes);
  }
  line("total", host.total());
  return text;
}

}  // namespace ringzero
