// Runs programs on symbols.
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/check/definitions.h"
#include "sharding/check/verify.h"
#include "sharding/check/wait_graph.h"
#include "sharding/program/kinds.h"
#include "sharding/program/link.h"
#include "sharding/program/linked_ring.h"
#include "sharding/program/loans.h"
#include "sharding/program/operands.h"

namespace ringzero {
namespace {

// A block's symbol; and of what was received the message's name, until an operation has used it.
struct Cell {
  Symbol symbol;
  BlockPlace lent;                // of what was lent: where it lies, and has its symbol
  Op came = {};                   // the receive that brought it
  Op name{.kind = OpKind::kEnd};  // kReceive, kLoad: not used yet
  Iteration last_read = kNoIteration;
};

struct Message {
  BlockPlace from;  // what a word is of
  Symbol symbol;
};

class SymbolicRun {
 public:
  SymbolicRun(const Plan& plan, const LinkedRing& ring, uint64_t order)
      : plan_(plan),
        ring_(ring),
        loans_(plan),
        order_(order),
        labels_(plan),
        memory_(plan.workers) {
    if (plan.stagger && plan.workers > 1) waits_ = StaggerWaits(plan);
  }

  absl::Status Check() {
    RZ_RETURN_IF_ERROR(CheckForms());
    RZ_RETURN_IF_ERROR(CheckComputing(plan_, labels_, ring_));
    Begin();
    RZ_RETURN_IF_ERROR(RunAll());
    RZ_RETURN_IF_ERROR(uses_.Check(done_, before_, [this](int op) { return ring_.Describe(op); }));
    return CheckEnd();
  }

 private:
  using Of = Symbol::Of;

  // --- before the run ----------------------------------------------------------------------------
  absl::Status CheckForms() const {
    std::vector<Op> ops;  // of one worker
    for (int w = 0; w < plan_.workers; ++w) {
      ops.clear();
      for (int i = ring_.begin[w]; i < ring_.begin[w + 1]; ++i) {
        const Instruction op = ring_.InstructionOf(i);
        ops.push_back(op);
        absl::Status form = CheckInstruction(op);
        if (form.ok() && op.stage != kNoStage && !IsStage(op.stage.value))
          form = FailedPrecondition("the plan has no such stage");
        if (form.ok() && op.loan != loans_.IsLent(WorkerId(w), op)) {
          form = FailedPrecondition("is lent, or is not");
        }
        if (!form.ok()) return Annotate(form, ring_.Describe(i));
      }
      std::sort(ops.begin(), ops.end());
      const auto twice = std::adjacent_find(ops.begin(), ops.end());
      if (twice != ops.end()) {
        return FailedPrecondition("worker ", w, ": \"", ToString(*twice), "\" is there twice");
      }
    }
    return absl::OkStatus();
  }

  // The first version, what iteration f reads in its place, states, and statistics at worker 0.
  void Begin() {
    for (int w = 0; w < plan_.workers; ++w) {
      for (const MemoryBlock& block : ring_.blocks[w]) {
        memory_[w].push_back({.symbol = AtTheStart(w, block), .lent = {}});
      }
    }
  }
  Symbol AtTheStart(int w, const MemoryBlock& block) const {
    const StageId j = block.stage;
    const int i = j.value;
    if (block.kind == BlockKind::kNorm) return FirstNorm(block);
    if (!IsStage(i)) return {};
    const bool statistics = block == MemoryBlock{.kind = BlockKind::kStatistics, .stage = j};
    if (statistics && w == 0) return {Of::kStatistics, i, 0, first_ * per_iteration()};
    if (!Owns(w, i)) return {};
    const int newest = Newest(i, first_);
    if (block == VersionBlock(plan_, j, Version(newest))) return Theta(i, newest);
    if (block == MastersBlock(plan_, j, Version(newest))) return Masters(i, newest);
    if (block == StateBlock(i) || block == TierBlock(i)) return {Of::kState, i, first_};
    for (int t = first_; t < first_ + 2 && plan_.predict; ++t) {
      if (!IsOfDp(plan_, t) && block == VersionBlock(plan_, j, Prediction(t)))
        return {Of::kPrediction, i, t};
    }
    const bool before = !plan_.predict && newest > 0 && !IsOfDp(plan_, first_);
    if (before && block == VersionBlock(plan_, j, Version(newest - 1))) return Theta(i, newest - 1);
    return {};
  }
  // The norms of the last iterations before the run are known.
  Symbol FirstNorm(const MemoryBlock& block) const {
    const int blocks = BlocksOf(plan_, BlockKind::kNorm, Channel::kNone);
    const bool last = first_ > 0 && block.index == (first_ - 1) % blocks;
    const bool before = first_ > 1 && block.index == (first_ - 2) % blocks;
    if (!last && !before) return {};
    return {Of::kNorm, -1, last ? first_ - 1 : first_ - 2};
  }
  static MemoryBlock TierBlock(int j) { return {.kind = BlockKind::kTier, .stage = StageId(j)}; }
  static MemoryBlock StateBlock(int j) { return {.kind = BlockKind::kState, .stage = StageId(j)}; }

  // --- the order ---------------------------------------------------------------------------------
  absl::Status RunAll() {
    before_.resize(ring_.count());
    for (int w = 0; w < plan_.workers; ++w) {
      Hazards hazards;
      const int base = ring_.begin[w];
      for (int i = base; i < ring_.begin[w + 1]; ++i) {
        const Before waits = hazards.Append(ring_.op(i), ring_.ops[i].uses);
        for (const int64_t before : waits.after) {
          before_[i].push_back(base + static_cast<int>(before));
        }
        if (waits.behind >= 0) before_[i].push_back(base + static_cast<int>(waits.behind));
        if (ring_.op(i).kind == OpKind::kReceive) before_[i].push_back(ring_.partner[i]);
      }
    }
    const Reverse next(
        ring_.count(), [this](int i) -> auto& { return before_[i]; });
    std::vector<int> missing, ready;
    for (int i = 0; i < ring_.count(); ++i) {
      missing.push_back(static_cast<int>(before_[i].size()));
      if (missing[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      std::swap(ready[Draw(ready.size())], ready.back());
      const int i = ready.back();
      ready.pop_back();
      RZ_RETURN_IF_ERROR(Do(i));
      done_.push_back(i);
      for (const int after : next[i]) {
        if (--missing[after] == 0) ready.push_back(after);
      }
    }
    if (static_cast<int>(done_.size()) == ring_.count()) return absl::OkStatus();
    const auto stuck = std::find_if(missing.begin(), missing.end(), [](int m) { return m > 0; });
    return FailedPrecondition(ring_.Describe(static_cast<int>(stuck - missing.begin())),
                              ": waits in a circle of blocks and messages");
  }

  // Which of so many that are ready is next.
  size_t Draw(size_t ready) { return order_ == 0 ? ready - 1 : random_() % ready; }

  // --- symbols -----------------------------------------------------------------------------------
  int64_t per_iteration() const { return int64_t{plan_.workers} * plan_.laps; }
  bool Replicated() const { return plan_.zero_stage == 0 || !plan_.exchange; }
  bool Owns(int w, int j) const { return plan_.stages[j].owner.value == w || Replicated(); }
  bool IsStage(int j) const { return j >= 0 && j < plan_.stage_count(); }
  bool Trains(int j) const { return plan_.stages[j].sum_bytes > 0; }
  static Symbol Theta(int j, int version) { return {Of::kTheta, j, std::max(version, 0)}; }
  // What a label stands for: θ_{-1} is θ_0.
  static Symbol Labelled(int j, Version label) {
    if (IsPrediction(label)) return {Of::kPrediction, j, LabelNumber(label)};
    return Theta(j, label.value);
  }
  bool Apart(int j) const { return plan_.stages[j].master_bytes > 0; }
  bool Files(int j) const { return plan_.stages[j].streams_parameters; }
  bool IsResident(int block) const {
    return ring_.blocks[worker_][block].kind == BlockKind::kResident;
  }
  bool InState(int j) const { return plan_.stages[j].streams_masters; }  // its masters
  Symbol Masters(int j, int version) const {
    Symbol masters = Theta(j, version);
    if (Apart(j)) masters.of = Of::kMasters;
    return masters;
  }
  int Newest(int j, int version) const { return Trains(j) ? version : 0; }
  Symbol CompleteSum(int j, int iteration) const {
    return {Of::kSum, j, iteration * per_iteration(), (iteration + 1) * per_iteration()};
  }
  Symbol Snapshot(int j, int version) const {
    return {Of::kStatistics, j, 0, version * per_iteration()};
  }
  // Within its iteration or evaluation.
  int64_t PlaceInFold() const { return int64_t{place_.lap} * plan_.workers + worker_; }

  absl::Status Wrong(const std::string& what) const {
    return FailedPrecondition(ring_.Describe(at_), ": ", what);
  }
  absl::Status Expect(const Symbol& found, const Symbol& wanted) const {
    if (found == wanted) return absl::OkStatus();
    return Wrong(absl::StrCat("finds ", SymbolText(found), ", not ", SymbolText(wanted)));
  }

  const NumberedUse* Find(Role role) const {
    const auto at = std::ranges::find(op_->uses, role, &NumberedUse::role);
    return at == op_->uses.end() ? nullptr : &*at;
  }
  Cell& CellOf(int block) { return memory_[worker_][block]; }
  // Through loans.
  BlockPlace Where(int block) {
    const BlockPlace lent = CellOf(block).lent;
    return lent == BlockPlace() ? BlockPlace{worker_, block} : lent;
  }
  Cell& At(const BlockPlace& place) { return memory_[place.home][place.block]; }
  const MemoryBlock& NameOf(const BlockPlace& place) const {
    return ring_.blocks[place.home][place.block];
  }
  const Symbol& Read(int block) {
    const BlockPlace place = Where(block);
    Touch(place, false);
    return At(place).symbol;
  }
  // A use that several workers may overlap in. Of a large ring not those of versions, since that
  // takes long: Verify proves besides that versions are not overwritten
  // (WaitGraph::CheckOverwrites).
  void Touch(const BlockPlace& place, bool writes) {
    if (!plan_.lends()) return;
    const BlockKind kind = NameOf(place).kind;
    const bool shows = kind == BlockKind::kMasters && NameOf(place).stage == kNoStage;
    const bool always = kind == BlockKind::kSum || kind == BlockKind::kLent || shows;
    if (ring_.count() > kSmallRing && !always) return;
    uses_.Note(place, {at_, worker_, writes, IsCompute(op_->kind)});
  }

  // That the operand is there, or that it is not.
  absl::Status ExpectThere(Role role, bool wanted) const {
    if ((Find(role) != nullptr) == wanted) return absl::OkStatus();
    return Wrong(
        absl::StrCat(wanted ? "lacks" : "has no use for", " the operand \"", ToString(role), "\""));
  }
  absl::Status ExpectRead(Role role, const Symbol& wanted) {
    RZ_RETURN_IF_ERROR(ExpectThere(role, true));
    return Expect(Read(Find(role)->block), wanted);
  }
  absl::Status ExpectReadIf(bool condition, Role role, const Symbol& wanted) {
    return condition ? ExpectRead(role, wanted) : ExpectThere(role, false);
  }
  void Put(const NumberedUse& use, const Symbol& symbol) {
    const bool anew = use.how == How::kWrite;
    const BlockPlace place = anew ? BlockPlace{worker_, use.block} : Where(use.block);
    Touch(place, true);
    At(place) = {.symbol = symbol, .lent = {}};
  }
  absl::Status PutIf(bool condition, Role role, const Symbol& symbol) {
    RZ_RETURN_IF_ERROR(ExpectThere(role, condition));
    if (condition) Put(*Find(role), symbol);
    return absl::OkStatus();
  }

  // --- operations --------------------------------------------------------------------------------
  absl::Status Do(int i) {
    at_ = i;
    worker_ = ring_.worker_of(i);
    op_ = &ring_.ops[i];
    j_ = op_->stage.value;
    t_ = op_->iteration.value;
    place_ = {worker_, t_, op_->lap.value};
    m_ = NumberOf(plan_, place_);
    switch (op_->kind) {
      case OpKind::kForward: return Forward();
      case OpKind::kBackward: return Backward();
      case OpKind::kEvaluate: return Evaluate();
      case OpKind::kEnd:
        return PutIf(plan_.exchange, Role::kLosses,
                     {Of::kLosses, -1, t_, PlaceInFold(), op_->copy});
      case OpKind::kCollect: return Collect();
      case OpKind::kReceive: return Receive();
      case OpKind::kSend: return Send();
      case OpKind::kAdd: return Add();
      case OpKind::kUpdate: return Update();
      case OpKind::kApply: return Apply();
      case OpKind::kSnapshot: return Move(Role::kStatistics, Role::kSnapshot, Snapshot(j_, t_));
      case OpKind::kFold: return Fold();
      case OpKind::kReport:
        if (worker_ == 0) ++reports_;
        return ExpectRead(Role::kFold, {Of::kFold, -1, t_, FoldSize(), op_->copy});
      case OpKind::kKeep: return Keep();
      case OpKind::kRelease: return Release();
      case OpKind::kSquares: return Squares();
      case OpKind::kNorm: return Norm();
      case OpKind::kSave: return Save();
      case OpKind::kCommit: return Commit();
      case OpKind::kFetch: return Move(Role::kTier, Role::kStaged, {Of::kState, j_, t_});
      case OpKind::kStore: return Move(Role::kStaged, Role::kTier, {Of::kState, j_, t_ + 1});
      case OpKind::kLoad: return Load();
      case OpKind::kUnload:
        RZ_RETURN_IF_ERROR(ExpectInFile(Role::kTarget));
        return Move(Role::kSource, Role::kTarget, Labelled(j_, op_->version));
    }
    return absl::OkStatus();
  }

  // Reads its stage's parameters and those of tied stages. What came for it bears its name.
  template <typename SymbolOf>
  absl::Status ReadParameters(Copy copy, SymbolOf symbol_of) {
    std::vector<int> stages = {j_};
    for (int i = 0; i < j_; ++i) {
      if (plan_.stages[i].last_use == op_->stage) stages.push_back(i);
    }
    size_t at = 0;
    for (const int j : stages) {
      if (plan_.stages[j].parameter_bytes == 0) continue;
      while (at < op_->uses.size() && op_->uses[at].role != Role::kParameters) ++at;
      if (at == op_->uses.size()) return Wrong(absl::StrCat("lacks the parameters of stage ", j));
      if (Files(j) != IsResident(op_->uses[at].block)) return Wrong("reads where nothing computes");
      Cell& cell = CellOf(op_->uses[at].block);
      const Symbol wanted = symbol_of(j);
      RZ_RETURN_IF_ERROR(Expect(Read(op_->uses[at++].block), wanted));
      cell.last_read = op_->iteration;
      RZ_RETURN_IF_ERROR(CheckUse(cell, copy, wanted));
    }
    const auto more = std::ranges::find(op_->uses.begin() + at, op_->uses.end(), Role::kParameters,
                                        &NumberedUse::role);
    return more == op_->uses.end() ? absl::OkStatus() : Wrong("reads parameters of another stage");
  }
  // What came for a use bears its name: its first, where there are several.
  absl::Status CheckUse(Cell& cell, Copy copy, const Symbol& symbol) const {
    const Op name = std::exchange(cell.name, Op{.kind = OpKind::kEnd});
    if (name.kind == OpKind::kEnd) return absl::OkStatus();
    const bool shown = copy == Copy::kEvaluation || copy == Copy::kCollection;
    if (name.copy == copy && name.iteration == op_->iteration && name.lap == op_->lap &&
        (!shown || name.version.value == symbol.first)) {
      return absl::OkStatus();
    }
    return Wrong(absl::StrCat("uses what came as \"", ToString(name), "\""));
  }

  absl::Status ReadLabelled(Copy copy) {
    return ReadParameters(copy, [&](int j) { return Labelled(j, Version(labels_.Of(place_, j))); });
  }

  absl::Status Forward() {
    RZ_RETURN_IF_ERROR(ReadLabelled(Copy::kForward));
    const int norm = t_ - (IsOfDp(plan_, t_) ? 1 : 2);
    const bool scales =
        plan_.skip_overflows && plan_.exchange && j_ == 0 && place_.lap == 0 && norm >= 0;
    RZ_RETURN_IF_ERROR(ExpectReadIf(scales, Role::kNorm, {Of::kNorm, -1, norm}));
    RZ_RETURN_IF_ERROR(PassTokens(Of::kForwardDone));
    const bool counts = plan_.exchange && plan_.stages[j_].buffer_bytes > 0;
    return PutIf(counts, Role::kBatchStatistics, {Of::kBatch, j_, m_});
  }

  absl::Status Backward() {
    RZ_RETURN_IF_ERROR(ReadLabelled(Copy::kBackward));
    RZ_RETURN_IF_ERROR(PassTokens(Of::kBackwardDone));
    return PutIf(plan_.exchange && Trains(j_), Role::kGradient, {Of::kGradient, j_, m_});
  }

  // Waits for the token that the stagger wants, and leaves those of its own.
  absl::Status PassTokens(Of done) {
    std::optional<Symbol> wanted;
    for (const StaggerWait& wait : waits_) {
      if (wait.begins.kind != op_->kind || wait.begins.stage != op_->stage) continue;
      if (!HasStaggerToken(plan_, wait, m_)) continue;
      const bool forward = wait.finished.kind == OpKind::kForward;
      wanted = Symbol{forward ? Of::kForwardDone : Of::kBackwardDone, wait.finished.stage.value,
                      wait.in_next_lap ? m_ - 1 + plan_.workers : m_ - 1};
    }
    RZ_RETURN_IF_ERROR(ExpectReadIf(wanted.has_value(), Role::kToken, wanted.value_or(Symbol())));
    if (wanted.has_value()) {
      Cell& cell = CellOf(Find(Role::kToken)->block);
      if (cell.name.stage != op_->stage) return Wrong("waits for the token of another stage");
      RZ_RETURN_IF_ERROR(CheckUse(
          cell, op_->kind == OpKind::kForward ? Copy::kForward : Copy::kBackward, *wanted));
    }
    for (const NumberedUse& use : op_->uses) {
      if (use.role == Role::kClock) Put(use, {done, j_, m_});
    }
    return absl::OkStatus();
  }

  absl::Status Evaluate() {
    RZ_RETURN_IF_ERROR(
        ReadParameters(Copy::kEvaluation, [&](int i) { return Theta(i, Newest(i, t_)); }));
    const bool has = plan_.stages[j_].buffer_bytes > 0 && t_ > first_;
    return ExpectReadIf(has, Role::kSnapshot, Snapshot(j_, t_));
  }

  absl::Status Collect() {
    const bool parameters = op_->copy == Copy::kNone;
    if (parameters) {
      RZ_RETURN_IF_ERROR(ReadOwnParameters(Masters(j_, Newest(j_, t_))));
    } else {
      RZ_RETURN_IF_ERROR(ExpectThere(Role::kParameters, false));
      RZ_RETURN_IF_ERROR(ExpectRead(Role::kKept, KeptPart()));
    }
    const bool has = parameters && plan_.stages[j_].buffer_bytes > 0 && t_ > first_;
    return ExpectReadIf(has, Role::kSnapshot, Snapshot(j_, t_));
  }

  // Without those of tied stages.
  absl::Status ReadOwnParameters(const Symbol& wanted) {
    const bool there = plan_.stage(op_->stage).parameter_bytes > 0;
    RZ_RETURN_IF_ERROR(ExpectReadIf(there, Role::kParameters, wanted));
    if (!there) return absl::OkStatus();
    return CheckUse(CellOf(Find(Role::kParameters)->block), Copy::kCollection, wanted);
  }

  absl::Status Add() {
    const int64_t first = t_ * per_iteration();
    RZ_RETURN_IF_ERROR(ExpectRead(Role::kGradient, {Of::kGradient, j_, m_}));
    const NumberedUse& sum = *Find(Role::kSum);
    if ((m_ == first) != (sum.how == How::kWrite)) return Wrong("begins a sum, or does not");
    if (m_ > first) RZ_RETURN_IF_ERROR(ExpectRead(Role::kSum, {Of::kSum, j_, first, m_}));
    Put(sum, {Of::kSum, j_, first, m_ + 1});
    return absl::OkStatus();
  }

  absl::Status Squares() {
    ++squares_;
    const Symbol sum = CompleteSum(j_, t_);
    RZ_RETURN_IF_ERROR(ExpectRead(Role::kSum, sum));
    Put(*Find(Role::kSquares), {Of::kSquares, j_, t_});
    if (const NumberedUse* taken = Find(Role::kTaken)) {
      Put(*taken, sum);
      used_[Where(Find(Role::kSum)->block)] = op_->iteration;
    }
    return absl::OkStatus();
  }

  absl::Status Norm() {
    ++norms_;
    std::vector<int> found;
    for (const NumberedUse& use : op_->uses) {
      if (use.role != Role::kSquares) continue;
      const Symbol squares = Read(use.block);
      RZ_RETURN_IF_ERROR(Expect(squares, {Of::kSquares, squares.stage, t_}));
      found.push_back(squares.stage);
    }
    std::sort(found.begin(), found.end());
    std::vector<int> wanted;
    for (int j = 0; j < plan_.stage_count(); ++j) {
      if (Trains(j)) wanted.push_back(j);
    }
    if (found != wanted) return Wrong("does not fold the squares of every stage once");
    Put(*Find(Role::kNorm), {Of::kNorm, -1, t_});
    return absl::OkStatus();
  }

  bool counts_squares() const { return plan_.skip_overflows || plan_.clipping != Clipping::kOff; }
  bool has_norm() const {
    return plan_.skip_overflows || (counts_squares() && plan_.clipping != Clipping::kPerStage);
  }

  absl::Status Update() {
    if (op_->version.value != t_ + 1) return Wrong("makes another version");
    for (const NumberedUse& use : op_->uses) {
      const bool makes = use.role == Role::kMade || use.role == Role::kPrediction;
      if (makes && Files(j_) != IsResident(use.block)) return Wrong("makes it elsewhere");
    }
    RZ_RETURN_IF_ERROR(ExpectRead(Role::kSum, CompleteSum(j_, t_)));
    RZ_RETURN_IF_ERROR(ExpectRead(Role::kState, {Of::kState, j_, t_}));
    RZ_RETURN_IF_ERROR(
        ExpectReadIf(plan_.stages[j_].streams(), Role::kStaged, {Of::kState, j_, t_}));
    RZ_RETURN_IF_ERROR(ReadMasters());
    RZ_RETURN_IF_ERROR(CheckUse(CellOf(Find(Role::kMade)->block), Copy::kNone, {}));
    const int norm = plan_.clipping == Clipping::kPrevious ? t_ - 1 : t_;
    RZ_RETURN_IF_ERROR(ExpectReadIf(has_norm() && norm >= 0, Role::kNorm, {Of::kNorm, -1, norm}));
    RZ_RETURN_IF_ERROR(
        ExpectReadIf(counts_squares() && !has_norm(), Role::kSquares, {Of::kSquares, j_, t_}));
    const NumberedUse& used = *Find(Role::kSum);
    used_[Where(used.block)] = op_->iteration;
    if (used.how != How::kRead) Put(used, {});
    Put(*Find(Role::kState), {Of::kState, j_, t_ + 1});
    if (const NumberedUse* staged = Find(Role::kStaged)) Put(*staged, {Of::kState, j_, t_ + 1});
    Put(*Find(Role::kMade), Theta(j_, t_ + 1));
    if (Apart(j_) && !InState(j_)) Put(*Find(Role::kMasters), Masters(j_, t_ + 1));
    if (const NumberedUse* made = Find(Role::kPrediction))
      Put(*made, {Of::kPrediction, j_, t_ + 2});
    return absl::OkStatus();
  }

  // Of an update: those that it starts from, unless they are a part of the state.
  absl::Status ReadMasters() {
    RZ_RETURN_IF_ERROR(ExpectThere(Role::kMasters, Apart(j_) && !InState(j_)));
    if (InState(j_)) return ExpectThere(Role::kBefore, false);
    const Role masters = Apart(j_) ? Role::kMasters : Role::kMade;
    const bool in_place = Find(masters)->how == How::kReadWrite;
    RZ_RETURN_IF_ERROR(ExpectThere(Role::kBefore, !in_place));
    return ExpectRead(in_place ? masters : Role::kBefore, Masters(j_, t_));
  }

  absl::Status Move(Role from, Role to, const Symbol& symbol) {
    RZ_RETURN_IF_ERROR(ExpectRead(from, symbol));
    Put(*Find(to), symbol);
    return absl::OkStatus();
  }

  // That a version of this stage lies in a file, and comes from there or goes there.
  absl::Status ExpectInFile(Role file) const {
    const int block = Find(file)->block;
    const bool updates = op_->copy == Copy::kNone;
    if (!Files(j_)) return Wrong("moves parameters that lie in memory");
    if (IsResident(block)) return Wrong("is not of a file");
    const bool made = op_->version == Version(t_ + 1) || op_->version == Prediction(t_ + 2);
    const bool right = op_->kind == OpKind::kUnload ? made : op_->version == Version(t_);
    return updates && !right ? Wrong("moves another version") : absl::OkStatus();
  }

  absl::Status Load() {
    RZ_RETURN_IF_ERROR(ExpectInFile(Role::kSource));
    const Symbol wanted = Labelled(j_, op_->version);
    RZ_RETURN_IF_ERROR(ExpectRead(Role::kSource, wanted));
    if (op_->copy != Copy::kNone) {
      RZ_RETURN_IF_ERROR(CheckUse(CellOf(Find(Role::kSource)->block), op_->copy, wanted));
    }
    const NumberedUse& to = *Find(Role::kTarget);
    if (!IsResident(to.block)) return Wrong("loads into what is no slot");
    if (to.how == How::kReadWrite) RZ_RETURN_IF_ERROR(Expect(Read(to.block), wanted));
    Cell& slot = CellOf(to.block);
    if (slot.name.kind == OpKind::kLoad) return Wrong("loads over what nobody used");
    slot = {.symbol = wanted, .lent = {}, .name = *op_};
    return absl::OkStatus();
  }

  // Of a collection: the sum of the update that made the version, or the state behind it.
  Symbol KeptPart() const {
    return op_->copy == Copy::kGradient ? CompleteSum(j_, t_ - 1) : Symbol{Of::kState, j_, t_};
  }

  absl::Status Keep() {
    const bool gradient = op_->copy == Copy::kGradient;
    const bool masters = op_->copy == Copy::kCollection && InState(j_);
    if (!gradient && !masters && op_->copy != Copy::kState) return Wrong("keeps nothing");
    const Symbol kept = KeptPart();
    RZ_RETURN_IF_ERROR(ExpectReadIf(gradient, Role::kSum, kept));
    RZ_RETURN_IF_ERROR(ExpectReadIf(!gradient, Role::kState, kept));
    RZ_RETURN_IF_ERROR(ExpectReadIf(!gradient && plan_.stages[j_].streams(), Role::kTier, kept));
    Put(*Find(Role::kKept), masters ? Masters(j_, t_) : kept);
    return absl::OkStatus();
  }

  // What a run needs that begins with the version, and no more.
  absl::Status Save() {
    const StagePlan& stage = plan_.stages[j_];
    std::vector<Symbol> wanted;
    if (op_->copy == Copy::kCollection) {
      if (worker_ != plan_.workers - 1 || stage.buffer_bytes == 0)
        return Wrong("saves no statistics");
      wanted = {Snapshot(j_, t_)};
    } else {
      if (op_->copy != Copy::kNone || stage.owner.value != worker_)
        return Wrong("is another owner's");
      if (!InState(j_)) wanted = {Masters(j_, Newest(j_, t_))};
      const bool stale = Trains(j_) && plan_.rule != Rule::kDp;
      for (int t = t_; t < t_ + 2 && stale && plan_.predict; ++t) {
        if (!IsOfDp(plan_, t)) wanted.push_back({Of::kPrediction, j_, t});
      }
      if (stale && !plan_.predict && !IsOfDp(plan_, t_)) wanted.push_back(Theta(j_, t_ - 1));
      if (Trains(j_)) wanted.push_back({Of::kState, j_, t_});
      if (stage.streams()) wanted.push_back({Of::kState, j_, t_});
    }
    size_t at = 0;
    for (const NumberedUse& use : op_->uses) {
      if (use.role != Role::kSaved) continue;
      if (at == wanted.size()) return Wrong("saves too much");
      RZ_RETURN_IF_ERROR(Expect(Read(use.block), wanted[at++]));
    }
    if (at < wanted.size()) return Wrong(absl::StrCat("lacks ", SymbolText(wanted[at])));
    const NumberedUse& receipt = *Find(Role::kReceipt);
    Symbol before{Of::kReceipt, worker_, t_, 0};
    if (receipt.how == How::kReadWrite) {
      before.end = Read(receipt.block).end;
      RZ_RETURN_IF_ERROR(Expect(Read(receipt.block), before));
    }
    ++before.end;
    Put(receipt, before);
    return absl::OkStatus();
  }

  Symbol Receipt(int worker) const {
    return {Of::kReceipt, worker, t_, RequiredParts(plan_, worker)};
  }

  absl::Status Commit() {
    int worker = -1;
    for (const NumberedUse& use : op_->uses) {
      if (use.role != Role::kReceipt) continue;
      do ++worker;
      while (worker < plan_.workers && RequiredParts(plan_, worker) == 0);
      RZ_RETURN_IF_ERROR(Expect(Read(use.block), Receipt(worker)));
    }
    while (++worker < plan_.workers) {
      if (RequiredParts(plan_, worker) > 0) return Wrong(absl::StrCat("lacks worker ", worker));
    }
    ++commits_;
    return ExpectReadIf(has_norm(), Role::kNorm, {Of::kNorm, -1, t_ - 1});
  }

  absl::Status Apply() {
    RZ_RETURN_IF_ERROR(ExpectRead(Role::kBatchStatistics, {Of::kBatch, j_, m_}));
    RZ_RETURN_IF_ERROR(ExpectRead(Role::kStatistics, {Of::kStatistics, j_, 0, m_}));
    Put(*Find(Role::kStatistics), {Of::kStatistics, j_, 0, m_ + 1});
    return absl::OkStatus();
  }

  int64_t FoldSize() const {
    const int laps = op_->copy == Copy::kEvaluation ? plan_.evaluation.laps : plan_.laps;
    return int64_t{plan_.workers} * laps;
  }

  absl::Status Fold() {
    const int64_t place = PlaceInFold();
    RZ_RETURN_IF_ERROR(ExpectRead(Role::kLosses, {Of::kLosses, -1, t_, place, op_->copy}));
    const NumberedUse& fold = *Find(Role::kFold);
    if ((place == 0) != (fold.how == How::kWrite)) return Wrong("begins a fold, or does not");
    if (place > 0) {
      RZ_RETURN_IF_ERROR(ExpectRead(Role::kFold, {Of::kFold, -1, t_, place, op_->copy}));
    }
    Put(fold, {Of::kFold, -1, t_, place + 1, op_->copy});
    return absl::OkStatus();
  }

  absl::Status Release() {
    Cell& cell = CellOf(Find(Role::kTarget)->block);
    // What was lent may be another version by now: nobody reads it here any more.
    const bool lent = IsLoan(cell);
    if (lent && NameOf(cell.lent).stage != op_->stage) return Wrong("is of another stage");
    if (!lent) RZ_RETURN_IF_ERROR(Expect(cell.symbol, Labelled(j_, op_->version)));
    if (cell.came.version != op_->version) return Wrong("lets go of a copy with another label");
    if (cell.last_read != op_->iteration) return Wrong("lets go of a copy in another iteration");
    cell = {};
    return absl::OkStatus();
  }

  // --- messages ----------------------------------------------------------------------------------
  static bool IsLoan(const Cell& cell) { return cell.lent != BlockPlace(); }
  static bool IsFull(const Cell& cell) { return cell.symbol.of != Of::kNothing || IsLoan(cell); }
  static bool IsHeld(const MemoryBlock& block) {
    return block.kind == BlockKind::kHeld || block.kind == BlockKind::kHeldPrediction;
  }

  absl::Status Send() {
    const BlockPlace place = Where(Find(Role::kSource)->block);
    const Symbol symbol = At(place).symbol;
    under_way_[ring_.partner[at_]] = {place, symbol};
    if (op_->channel == Channel::kReturn) return GiveBack(place);
    if (op_->channel == Channel::kReturnCopy) return GiveBackCopy();
    // What goes to the next host is not used any more on this one.
    if (CarriesSums(op_->channel) && !op_->loan) used_[place] = op_->iteration;
    Touch(place, false);
    return symbol.of == Of::kNothing ? Wrong("there is nothing yet to send") : absl::OkStatus();
  }

  // A sum that is not used any more, neither here nor elsewhere.
  absl::Status GiveBack(const BlockPlace& place) {
    const auto used = used_.find(place);
    if (used == used_.end() || used->second != op_->iteration ||
        NameOf(place).stage != op_->stage) {
      return Wrong("gives back another sum");
    }
    CellOf(Find(Role::kSource)->block) = {};
    return absl::OkStatus();
  }

  // A copy that nobody here or behind reads any more.
  absl::Status GiveBackCopy() {
    Cell& cell = CellOf(Find(Role::kSource)->block);
    const bool same = cell.came.stage == op_->stage && cell.came.copy == op_->copy &&
                      cell.came.iteration == op_->iteration && cell.came.lap == op_->lap &&
                      cell.came.peer == op_->peer;
    if (!IsLoan(cell) || !same) return Wrong("gives back another copy");
    cell = {};
    return absl::OkStatus();
  }

  absl::Status Receive() {
    const Message message = under_way_.extract(at_).mapped();
    const BlockPlace& lent = message.from;
    if (BringsBack(op_->channel)) {  // it is here again, or at its lender
      const bool same = lent == Where(Find(Role::kTarget)->block);
      return same ? absl::OkStatus() : Wrong("brings back another block");
    }
    const Symbol came = op_->loan ? At(lent).symbol : message.symbol;
    RZ_RETURN_IF_ERROR(CheckName(came));
    if (op_->loan &&
        LentBlock{WorkerId(lent.home), NameOf(lent)} != loans_.HomeOf(WorkerId(worker_), *op_))
      return Wrong("lends another block");
    const BlockPlace own{worker_, Find(Role::kTarget)->block};
    Touch(op_->loan ? lent : own, !op_->loan);
    if (op_->loan && lent == own) return absl::OkStatus();  // it came home
    if (op_->loan) Touch(own, true);                        // which is a name from here on
    Cell& cell = CellOf(own.block);
    if (cell.name.kind == OpKind::kReceive) {
      return Wrong(absl::StrCat("comes over \"", ToString(cell.name), "\", which nobody used"));
    }
    if (IsHeld(NameOf(own)) && IsFull(cell)) {
      return Wrong(absl::StrCat("comes over ", SymbolText(cell.symbol), ", which is still held"));
    }
    cell = {};
    cell.came = *op_;
    if (op_->loan) {
      cell.lent = lent;
    } else {
      cell.symbol = came;
    }
    // Whoever uses it must have this name.
    if (CarriesParameters(op_->channel) || op_->channel == Channel::kToken) cell.name = *op_;
    return absl::OkStatus();
  }

  // The micro-batch that goes on with what micro-batch m - 1 has left is ours.
  absl::Status CheckNext(int64_t m) const {
    return PlaceOf(plan_, m) == place_ ? absl::OkStatus()
                                       : Wrong("brings what another micro-batch goes on with");
  }

  // That a message is what its name says.
  absl::Status CheckName(const Symbol& came) const {
    switch (op_->channel) {
      case Channel::kForwardCopy:
      case Channel::kBackwardCopy:
      case Channel::kInject:
      case Channel::kEvaluation:
        RZ_RETURN_IF_ERROR(Expect(came, Labelled(j_, op_->version)));
        return CheckSource();
      case Channel::kCollection:
        RZ_RETURN_IF_ERROR(Expect(came, Masters(j_, op_->version.value)));
        return CheckSource();
      case Channel::kSum:
        RZ_RETURN_IF_ERROR(Expect(came, {Of::kSum, j_, t_ * per_iteration(), came.end}));
        return CheckNext(came.end);
      case Channel::kRetire:
        if (op_->lap != kNoLap) return CheckParked(came);
        [[fallthrough]];
      case Channel::kFinished:
        if (Replicated() != (op_->channel == Channel::kFinished)) return Wrong("is not sent here");
        return Expect(came, CompleteSum(j_, t_));
      case Channel::kBuffers:
        RZ_RETURN_IF_ERROR(Expect(came, {Of::kStatistics, j_, 0, came.end}));
        return CheckNext(came.end);
      case Channel::kSnapshots: return Expect(came, Snapshot(j_, t_));
      case Channel::kMetrics: return Expect(came, {Of::kFold, -1, t_, PlaceInFold(), op_->copy});
      case Channel::kReports: return Expect(came, {Of::kFold, -1, t_, FoldSize(), op_->copy});
      case Channel::kToken:
        return came.of == Of::kForwardDone || came.of == Of::kBackwardDone ? absl::OkStatus()
                                                                           : Wrong("is no token");
      case Channel::kStates:
        if (op_->copy == Copy::kGradient) return Expect(came, CompleteSum(j_, t_ - 1));
        if (op_->copy == Copy::kState) return Expect(came, {Of::kState, j_, t_});
        return Wrong("brings neither a sum nor a state");
      case Channel::kReceipts: return Expect(came, Receipt(op_->peer.value));
      case Channel::kNorms:
        if (op_->stage == kNoStage) return Expect(came, {Of::kNorm, -1, t_});
        return Expect(came, {Of::kSquares, j_, t_});
      case Channel::kReturn:
      case Channel::kReturnCopy:
      case Channel::kNone: break;
    }
    return Wrong("has no channel");
  }

  // What the laps before have summed, at the owner, for the next one.
  absl::Status CheckParked(const Symbol& came) const {
    const int64_t first = t_ * per_iteration();
    const bool last = place_.lap + 1 >= plan_.laps;
    if (last || !LapsEndAtOwners(plan_, t_) || !Owns(worker_, j_)) return Wrong("is not sent here");
    return Expect(came, {Of::kSum, j_, first, first + (place_.lap + 1) * int64_t{plan_.workers}});
  }

  // A copy comes from the previous micro-batch if that one read the same, and no lap begins that
  // the owners begin. An evaluation's comes from the left. All others come from the owner.
  absl::Status CheckSource() const {
    Channel channel = Channel::kInject;
    int from = plan_.stages[j_].owner.value;
    if (op_->copy == Copy::kEvaluation) {
      if (worker_ > 0) {
        channel = Channel::kEvaluation;
        from = worker_ - 1;
      }
    } else if (op_->copy == Copy::kForward || op_->copy == Copy::kBackward) {
      const int label = labels_.Of(PlaceOf(plan_, m_), j_);
      if (label != op_->version.value) return Wrong("is not the version that is read");
      const bool ends_laps = LapsEndAtOwners(plan_, t_);
      const bool begins_lap = worker_ == 0 && place_.lap > 0 && ends_laps;
      const int64_t first = first_ * per_iteration();
      if (m_ > first && !begins_lap && labels_.Of(PlaceOf(plan_, m_ - 1), j_) == label) {
        channel = op_->copy == Copy::kForward ? Channel::kForwardCopy : Channel::kBackwardCopy;
        from = PlaceOf(plan_, m_ - 1).worker;
      }
    } else {
      channel = Channel::kCollection;
    }
    if (op_->channel == channel && op_->peer.value == from) return absl::OkStatus();
    return Wrong("comes another way than the plan says");
  }

  // --- after the run -----------------------------------------------------------------------------
  absl::Status CheckEnd() {
    int64_t masters = 0;
    for (int w = 0; w < plan_.workers; ++w) {
      std::vector<Symbol> states;
      for (int j = 0; j < plan_.stage_count(); ++j) states.push_back({Of::kState, j, first_});
      for (int n = 0; n < std::ssize(memory_[w]); ++n) {
        const Cell& cell = memory_[w][n];
        const MemoryBlock& block = ring_.blocks[w][n];
        if (cell.name.kind != OpKind::kEnd) {
          return FailedPrecondition("worker ", w, ": nobody uses \"", ToString(cell.name), "\"");
        }
        if (IsHeld(block) && IsFull(cell)) {
          return FailedPrecondition("worker ", w, ": ", SymbolText(cell.symbol),
                                    " is never let go of");
        }
        const int j = block.stage.value;
        const bool last =
            IsStage(j) && block == (plan_.stages[j].streams() ? TierBlock(j) : StateBlock(j));
        if (last) states[j] = cell.symbol;
      }
      for (int j = 0; j < plan_.stage_count() && plan_.exchange; ++j) {
        if (!Owns(w, j) || !Trains(j)) continue;
        ++masters;
        if (states[j].first == plan_.iterations) continue;
        return FailedPrecondition("worker ", w, ": stage ", j, " ends with ", SymbolText(states[j]),
                                  ", not ", plan_.iterations);
      }
    }
    const int64_t iterations = plan_.exchange ? plan_.iterations - first_ : 0;
    if (squares_ != (counts_squares() ? masters * iterations : 0)) {
      return FailedPrecondition("squares are counted ", squares_, " times");
    }
    if (norms_ != (has_norm() ? (Replicated() ? plan_.workers : 1) * iterations : 0)) {
      return FailedPrecondition("norms are folded ", norms_, " times");
    }
    if (commits_ != std::ssize(RequiredCheckpoints(plan_))) {
      return FailedPrecondition("worker 0: there are ", commits_, " checkpoints");
    }
    const int64_t wanted = iterations + static_cast<int64_t>(RequiredEvaluations(plan_).size());
    if (reports_ == wanted) return absl::OkStatus();
    return FailedPrecondition("worker 0: there are ", reports_, " reports, not ", wanted);
  }

  const Plan& plan_;
  const LinkedRing& ring_;
  const Loans loans_;
  const int first_ = plan_.first_iteration;
  const uint64_t order_;
  const RequiredLabels labels_;
  std::mt19937_64 random_{order_};
  std::vector<StaggerWait> waits_;
  std::vector<std::vector<Cell>> memory_;        // by worker and block
  absl::flat_hash_map<int, Message> under_way_;  // by their receives
  LentUses uses_;
  std::map<BlockPlace, Iteration> used_;  // sums that were updated from, or taken
  LentUses::Waits before_;
  std::vector<int> done_;  // in order
  int64_t squares_ = 0, norms_ = 0, reports_ = 0, commits_ = 0;

  int at_ = 0;  // what is being done
  int worker_ = 0;
  const RingOp* op_ = nullptr;
  int j_ = 0, t_ = 0;        // its stage and its iteration, or version
  MicroBatchPlace place_{};  // its micro-batch, if it is of one
  int64_t m_ = 0;
};

}  // namespace

absl::Status CheckMeaning(const Plan& plan, const LinkedRing& ring, uint64_t order) {
  return SymbolicRun(plan, ring, order).Check();
}

}  // namespace ringzero
