// Every small change of a program is refused; what may be reordered without a difference is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sharding/check/verify.h"
#include "sharding/study/simulate.h"
#include "tests/sharding/given_programs.h"
#include "tests/sharding/test_plans.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

// Small plans in which every kind of operation and channel occurs.
std::vector<PlanShape> Shapes() {
  return {
      Shape("2x2 dp iterations=2"),
      Shape("3x3 cdp_v1 stagger iterations=3"),
      Shape("3x4 cdp_v2 laps=2 iterations=2 evaluate=1 evaluation_laps=2 statistics tied retain=1"),
      Shape("1x3 laps=2 iterations=2 evaluate=1 statistics"),
      Shape("4x3 cdp_v2 slack=0 iterations=2 frozen_prefix"),
      Shape("3x4 cdp_v2 iterations=3 evaluate=2 collect=1 collector=1 statistics tied"),
      Shape("2x3 dp laps=2 iterations=3 versions=1,3 collector=0 statistics frozen_prefix"),
      Shape("1x2 cdp_v1 iterations=3 collect=2"),
      // Held copies, and sums that go around once more.
      Shape("3x4 cdp_v2 zero=2 iterations=3 evaluate=2 evaluation_laps=2 statistics tied"),
      Shape("3x3 dp zero=1 laps=2 iterations=3 evaluate=2 frozen_prefix"),
      Shape("3x3 cdp_v2 zero=0 laps=2 iterations=3 collect=2 collector=1"),
      // Predictions, and θ in place.
      Shape("3x3 cdp_v2 laps=2 predict iterations=3 evaluate=2 collect=2 collector=1 tied"),
      Shape("3x4 cdp_v1 predict iterations=4"),
      Shape("2x3 cdp_v1 zero=2 laps=2 predict iterations=3"),
      // Clipping: sums that are taken, squares and norms.
      Shape("3x4 cdp_v1 iterations=3 collect=1 collector=1 clip_exact"),
      Shape("2x3 dp zero=0 laps=2 iterations=2 clip_exact"),
      Shape("3x3 cdp_v2 slack=0 iterations=3 frozen_prefix clip_previous"),
      Shape("2x2 cdp_v2 slack=0 iterations=2 clip_per_stage strict"),
      // Overflows: all workers wait for norms, those of stages that are clipped alone, too.
      Shape("3x3 cdp_v1 iterations=4 clip_per_stage skip_overflows"),
      Shape("2x2 dp laps=2 iterations=2 owners_last skip_overflows"),
      // Loans: with words that bring sums back, and without.
      Shape("2x2 dp laps=2 iterations=3 one_host"),
      Shape("3x4 cdp_v2 iterations=3 evaluate=1 collect=2 collector=1 statistics tied one_host"),
      Shape("3x3 cdp_v1 zero=2 iterations=3 evaluate=2 one_host"),
      Shape("2x3 cdp_v1 iterations=3 clip_exact retain=1 one_host"),
      // A warm-up, and runs that do not begin with θ_0.
      Shape("3x3 cdp_v1 laps=2 iterations=4 warmup_updates=2 evaluate=2 skip_overflows"),
      Shape("2x3 cdp_v2 stagger predict iterations=4 warmup_updates=2"),
      Shape("3x4 cdp_v1 first_iteration=2 iterations=4 evaluate=2 statistics clip_previous tied"),
      Shape("2x3 cdp_v2 predict first_iteration=3 iterations=6 warmup_updates=4 one_host"),
      Shape(
          "3x4 cdp_v2 first_iteration=3 iterations=3 statistics"),  // an end that was reached before
      Shape("4x4 cdp_v2 iterations=3 evaluate=2 hosts=2"),
      Shape("4x3 dp laps=2 iterations=2 hosts=2"),
      Shape("5x5 cdp_v1 iterations=3 tied retain=1 clip_exact hosts=2"),
      // Versions in files: the last kInFiles.
      Shape("1x5 cdp_v1 iterations=3 parameters masters evaluate=2 save=2"),
      Shape("2x4 dp laps=2 iterations=2 one_host parameters collect=2"),
      Shape("3x4 cdp_v2 iterations=3 one_host parameters evaluate=2"),
  };
}

constexpr int kInFiles = 3;

// All changes of one field of an operation.
std::vector<Op> FieldMutations(const Plan& plan, const Op& op) {
  std::vector<Op> mutants;
  const auto numbers = [&](auto field, int none, int most) {
    for (const int value :
         {none, -1, 0, 1, 2, (op.*field).value - 1, (op.*field).value + 1, most}) {
      Op mutant = op;
      (mutant.*field).value = value;
      if (mutant != op) mutants.push_back(mutant);
    }
  };
  numbers(&Op::stage, kNoStage.value, plan.stage_count());
  numbers(&Op::iteration, kNoIteration.value, plan.iterations + 1);
  numbers(&Op::lap, kNoLap.value, plan.laps);
  numbers(&Op::version, kNoVersion.value, plan.iterations + 1);
  numbers(&Op::peer, kNoWorker.value, plan.workers);
  if (op.version != kNoVersion) {
    const int t = LabelNumber(op.version);
    for (const Version version : {Version(t), Prediction(std::max(t, 0)), Prediction(t + 2)}) {
      Op mutant = op;
      mutant.version = version;
      if (mutant != op) mutants.push_back(mutant);
    }
  }
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    Op mutant = op;
    mutant.kind = static_cast<OpKind>(kind);
    if (mutant != op) mutants.push_back(mutant);
  }
  for (int channel = 0; channel < kChannelCount; ++channel) {
    Op mutant = op;
    mutant.channel = static_cast<Channel>(channel);
    if (mutant != op) mutants.push_back(mutant);
  }
  for (int copy = 0; copy <= static_cast<int>(Copy::kState); ++copy) {
    Op mutant = op;
    mutant.copy = static_cast<Copy>(copy);
    if (mutant != op) mutants.push_back(mutant);
  }
  std::sort(mutants.begin(), mutants.end());
  mutants.erase(std::unique(mutants.begin(), mutants.end()), mutants.end());
  return mutants;
}

class MutationTest : public testing::TestWithParam<int> {
 protected:
  MutationTest() : plan_(MakeResolvedPlan(Shapes()[GetParam()])), programs_(ProgramsOf(plan_)) {}

  void SetUp() override { ASSERT_EQ(Verify(plan_, programs_), absl::OkStatus()); }

  void ExpectRefused(int worker, std::vector<Instruction> mutated, const std::string& what) {
    std::swap(programs_[worker].ops, mutated);
    const absl::Status status = Verify(plan_, programs_);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << what;
    EXPECT_FALSE(status.message().empty());
    EXPECT_EQ(CheckMeaning(plan_, programs_).code(), absl::StatusCode::kFailedPrecondition) << what;
    std::swap(programs_[worker].ops, mutated);
    ++refused_;
  }

  // Whether it is accepted.
  bool ExpectRefusedOrSame(int worker, std::vector<Instruction> mutated, const std::string& what) {
    std::vector<Program> programs = programs_;
    programs[worker].ops = mutated;
    const bool accepted = Verify(plan_, programs).ok();
    if (accepted) ExpectRunsRight(programs, what);
    if (!accepted) ExpectRefused(worker, std::move(mutated), what);
    return accepted;
  }
  // A Load of what is there moves nothing: it may not be missed, nor its name.
  void ExpectChangeRefused(int worker, size_t at, std::vector<Instruction> mutated,
                           const std::string& what) {
    const bool loads = programs_[worker].ops[at].kind == OpKind::kLoad;
    if (!loads) return ExpectRefused(worker, std::move(mutated), what);
    ExpectRefusedOrSame(worker, std::move(mutated), what);
  }

  // In other orders, and at several speeds.
  void ExpectRunsRight(const std::vector<Program>& programs, const std::string& what) {
    RZ_ASSIGN(auto ring, Joined(plan_, programs));
    ASSERT_EQ(Link(plan_, ring), absl::OkStatus());
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      EXPECT_EQ(CheckMeaning(plan_, programs, seed), absl::OkStatus()) << what;
      const auto times =
          RunTimeline(plan_, ring, {.update_ticks = 3, .more_ticks = Jitter(20, seed)});
      ASSERT_TRUE(times.ok()) << what << times.status();
      EXPECT_EQ(CheckRun(plan_, ring, *times), absl::OkStatus()) << what;
    }
  }

  Plan plan_;
  std::vector<Program> programs_;
  int refused_ = 0;
};

TEST_P(MutationTest, DeletedOrDuplicatedOperations) {
  for (int w = 0; w < plan_.workers; ++w) {
    const std::vector<Instruction> ops = programs_[w].ops;
    for (size_t i = 0; i < ops.size(); ++i) {
      std::vector<Instruction> mutated = ops;
      mutated.erase(mutated.begin() + i);
      ExpectChangeRefused(w, i, mutated, "without " + ToString(ops[i]));
      mutated = ops;
      mutated.insert(mutated.begin() + i, ops[i]);
      ExpectRefused(w, mutated, "twice " + ToString(ops[i]));
      mutated = ops;
      mutated.push_back(ops[i]);
      ExpectRefused(w, mutated, "again at the end " + ToString(ops[i]));
    }
  }
  EXPECT_GT(refused_, 0);
}

TEST_P(MutationTest, ChangedFields) {
  for (int w = 0; w < plan_.workers; ++w) {
    const std::vector<Instruction> ops = programs_[w].ops;
    for (size_t i = 0; i < ops.size(); ++i) {
      for (const Op& mutant : FieldMutations(plan_, ops[i])) {
        RZ_ASSIGN(const auto parsed, ParseOp(ToString(mutant)));
        EXPECT_EQ(parsed, mutant) << ToString(mutant);
        std::vector<Instruction> mutated = ops;
        static_cast<Op&>(mutated[i]) = mutant;
        ExpectChangeRefused(w, i, mutated, ToString(ops[i]) + " became " + ToString(mutant));
      }
    }
  }
  EXPECT_GT(refused_, 0);
}

bool SameChannel(const Op& a, const Op& b) {
  const bool messages = a.kind == OpKind::kSend || a.kind == OpKind::kReceive;
  return messages && a.kind == b.kind && a.channel == b.channel && a.peer == b.peer;
}

TEST_P(MutationTest, SwappedInOneChannelOrInComputing) {
  for (int w = 0; w < plan_.workers; ++w) {
    const std::vector<Instruction> ops = programs_[w].ops;
    for (size_t i = 0; i < ops.size(); ++i) {
      for (size_t next = i + 1; next < ops.size(); ++next) {
        const bool computing = IsCompute(ops[i].kind) && IsCompute(ops[next].kind);
        if (!computing && !SameChannel(ops[i], ops[next])) continue;
        std::vector<Instruction> mutated = ops;
        std::swap(mutated[i], mutated[next]);
        ExpectRefused(w, mutated, ToString(ops[i]) + " with " + ToString(ops[next]));
        break;  // with the next of its kind
      }
    }
  }
  EXPECT_GT(refused_, 0);
}

// Both ends may even agree on a wrong message.
TEST_P(MutationTest, ChangedAtBothEnds) {
  for (int w = 0; w < plan_.workers; ++w) {
    for (size_t i = 0; i < programs_[w].ops.size(); ++i) {
      const Op op = programs_[w].ops[i];
      if (op.kind != OpKind::kSend) continue;
      for (const Op& mutant : FieldMutations(plan_, op)) {
        if (mutant.kind != op.kind || mutant.peer != op.peer) continue;
        std::vector<Program> both = programs_;
        static_cast<Op&>(both[w].ops[i]) = mutant;
        for (Op& other : both[op.peer.value].ops) {
          Op sent = other;
          sent.kind = OpKind::kSend;
          sent.peer = op.peer;
          if (other.kind != OpKind::kReceive || other.peer.value != w || sent != op) continue;
          other = mutant;
          other.kind = OpKind::kReceive;
          other.peer = WorkerId(w);
        }
        EXPECT_EQ(Verify(plan_, both).code(), absl::StatusCode::kFailedPrecondition)
            << ToString(op) << " became " << ToString(mutant);
        EXPECT_EQ(CheckMeaning(plan_, both).code(), absl::StatusCode::kFailedPrecondition)
            << ToString(op) << " became " << ToString(mutant);
        ++refused_;
      }
    }
  }
  EXPECT_EQ(refused_ > 0, plan_.workers > 1);
}

// Operands that are missing, of another use, or other blocks.
std::vector<Uses> OperandMutations(const Uses& uses, const std::vector<MemoryBlock>& blocks,
                                   std::mt19937& random) {
  std::vector<Uses> mutants;
  for (size_t i = 0; i < uses.size(); ++i) {
    Uses without = uses;
    without.erase(without.begin() + i);
    mutants.push_back(without);
    for (const How how : {How::kRead, How::kWrite, How::kReadWrite}) {
      mutants.push_back(uses);
      mutants.back()[i].how = how;
    }
    for (const int step : {-1, 1}) {
      mutants.push_back(uses);
      mutants.back()[i].block.index += step;
    }
    for (int other = 0; other < 4; ++other) {
      mutants.push_back(uses);
      mutants.back()[i].block = blocks[random() % blocks.size()];
    }
  }
  std::erase(mutants, uses);
  return mutants;
}

// Another block may do as well. Then the program means the same, in whatever order it runs.
TEST_P(MutationTest, OtherOperandsAreRefusedOrMeanTheSame) {
  std::mt19937 random(GetParam());
  int accepted = 0;
  for (Program& program : programs_) {
    std::vector<MemoryBlock> blocks;
    for (const Instruction& op : program.ops) {
      for (const Use& use : op.uses) blocks.push_back(use.block);
    }
    std::sort(blocks.begin(), blocks.end());
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
    for (Instruction& op : program.ops) {
      const Uses uses = op.uses;
      for (Uses& mutant : OperandMutations(uses, blocks, random)) {
        op.uses = mutant;
        if (!CheckMeaning(plan_, programs_).ok()) {
          ++refused_;
          continue;
        }
        ++accepted;
        for (uint64_t order = 1; order <= 3; ++order) {
          EXPECT_EQ(CheckMeaning(plan_, programs_, order), absl::OkStatus()) << WithOperands(op);
        }
      }
      op.uses = uses;
    }
  }
  EXPECT_GT(refused_, 20 * accepted);
}

// Moving an operation in the list may change nothing: the order of the list counts only within the
// computing operations, within a channel, and between operations that name one block (link.h). Then
// the program is accepted, and it must run right; else it is refused. Both happen.
TEST_P(MutationTest, MovedOperationsAreRefusedOrRunRight) {
  std::mt19937 random(GetParam());
  const int rounds = FullTier() ? 4000 : 400;
  int accepted = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Program> moved = programs_;
    std::vector<Instruction>& ops = moved[random() % plan_.workers].ops;
    const int from = static_cast<int>(random() % ops.size());
    const int to = std::clamp<int>(from - 6 + static_cast<int>(random() % 13), 0,
                                   static_cast<int>(ops.size()) - 1);
    const Instruction op = ops[from];
    ops.erase(ops.begin() + from);
    ops.insert(ops.begin() + to, op);
    if (!Verify(plan_, moved).ok()) {
      ++refused_;
      continue;
    }
    ++accepted;
    ExpectRunsRight(moved, absl::StrCat(ToString(op), " from ", from, " to ", to));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused_, 0);
}

class FileMutationTest : public MutationTest {
 protected:
  using Ops = std::vector<Instruction>;
  enum class Wanted { kNone, kRefused, kSame, kEither };

  // `change` makes a mutant of the Load or Unload at this place.
  void Try(const std::string& what, const std::function<Wanted(Ops& ops, size_t at)>& change) {
    int tried = 0;
    for (int w = 0; w < plan_.workers && !HasFatalFailure(); ++w) {
      for (size_t i = 0; i < programs_[w].ops.size(); ++i) {
        const Instruction op = programs_[w].ops[i];
        if (op.kind != OpKind::kLoad && op.kind != OpKind::kUnload) continue;
        Ops mutated = programs_[w].ops;
        const Wanted wanted = change(mutated, i);
        if (wanted == Wanted::kNone) continue;
        ++tried;
        const std::string words = absl::StrCat(what, ": ", WithOperands(op));
        const bool accepted = ExpectRefusedOrSame(w, mutated, words);
        EXPECT_TRUE(wanted == Wanted::kEither || accepted == (wanted == Wanted::kSame)) << words;
        if (wanted == Wanted::kRefused) ExpectOracleRefuses(w, std::move(mutated), words);
      }
    }
    EXPECT_GT(tried, 0) << what;
  }

  // The oracle sees it, too, if it runs at all.
  void ExpectOracleRefuses(int worker, Ops mutated, const std::string& what) {
    std::vector<Program> programs = programs_;
    programs[worker].ops = std::move(mutated);
    RZ_ASSIGN(auto ring, Joined(plan_, programs));
    if (!Link(plan_, ring).ok()) return;
    const auto times = RunTimeline(plan_, ring, {.more_ticks = Jitter(20, 1)});
    if (!times.ok()) return;
    EXPECT_NE(CheckRun(plan_, ring, *times), absl::OkStatus()) << what;
    ++seen_;
  }

  // A Load of what is there moves nothing; and what an update starts from may be there, as its last
  // one has left it in the slot that is theirs alone.
  static Wanted IfItMoves(const Instruction& op) {
    if (op.kind != OpKind::kLoad) return Wanted::kNone;
    const bool moves = op.uses[1].how == How::kWrite && op.copy != Copy::kNone;
    return moves ? Wanted::kRefused : Wanted::kEither;
  }

  int seen_ = 0;  // by the oracle
};

TEST_P(FileMutationTest, LoadsAndUnloads) {
  Try("dropped", [](Ops& ops, size_t i) {
    const Wanted wanted = IfItMoves(ops[i]);
    ops.erase(ops.begin() + i);
    return wanted;
  });
  Try("taken to be there", [](Ops& ops, size_t i) {
    const Wanted wanted = IfItMoves(ops[i]);
    const How how = std::exchange(ops[i].uses[1].how, How::kReadWrite);
    return how == How::kWrite ? wanted : Wanted::kNone;
  });
  Try("loaded again", [](Ops& ops, size_t i) {
    const How how = std::exchange(ops[i].uses[1].how, How::kWrite);
    return how == How::kWrite ? Wanted::kNone : Wanted::kSame;
  });
  for (int step = 1; step <= plan_.resident_slots; ++step) {
    const auto move = [&](Instruction& load) {
      int& index = load.uses[1].block.index;
      index = (index + step) % (plan_.resident_slots + 1);
    };
    Try("into another slot", [&](Ops& ops, size_t i) {
      const Wanted wanted = IfItMoves(ops[i]);
      move(ops[i]);
      return wanted;
    });
    Try("with its reader in another slot", [&](Ops& ops, size_t i) {
      if (ops[i].kind == OpKind::kUnload) return Wanted::kNone;
      const MemoryBlock slot = ops[i].uses[1].block;
      move(ops[i]);
      for (Use& use : ops[i + 1].uses) {
        if (use.block == slot) use.block = ops[i].uses[1].block;
      }
      return Wanted::kEither;
    });
  }
  Try("before its update", [](Ops& ops, size_t i) {
    size_t update = i;
    while (update > 0 && ops[update].kind != OpKind::kUpdate) --update;
    if (ops[i].kind == OpKind::kLoad) return Wanted::kNone;
    std::rotate(ops.begin() + update, ops.begin() + i, ops.begin() + i + 1);
    return Wanted::kRefused;
  });
  Try("behind the iteration's last add", [](Ops& ops, size_t i) {
    const auto adds = [&](const Op& op) {
      return op.kind == OpKind::kAdd && op.iteration == ops[i].iteration;
    };
    const auto last = std::find_if(ops.rbegin(), ops.rend() - i, adds).base();
    const Wanted wanted = last > ops.begin() + i ? IfItMoves(ops[i]) : Wanted::kNone;
    if (wanted != Wanted::kNone) std::rotate(ops.begin() + i, ops.begin() + i + 1, last);
    return wanted;
  });
  Try("of the other buffer", [](Ops& ops, size_t i) {
    MemoryBlock& file = ops[i].uses[ops[i].kind == OpKind::kLoad ? 0 : 1].block;
    file.index = 1 - file.index;
    // Two that were lent may be of one version, under two names.
    return file.kind == BlockKind::kVersion ? Wanted::kRefused : Wanted::kEither;
  });
  EXPECT_GT(seen_, 0);
}

// The oracle goes by the clock, too: a slot is still used, or has nothing yet to unload.
TEST_P(FileMutationTest, TheOracleSeesWhatBeginsTooEarly) {
  RZ_ASSIGN(auto ring, Joined(plan_, programs_));
  ASSERT_EQ(Link(plan_, ring), absl::OkStatus());
  RZ_ASSIGN(const Timeline times, RunTimeline(plan_, ring, {.more_ticks = Jitter(20, 1)}));
  std::set<std::pair<int, int>> used;  // by worker, slots
  for (int i = 0; i < ring.count(); ++i) {
    const RingOp& op = ring.ops[i];
    const bool loads = op.kind == OpKind::kLoad && op.uses[1].how == How::kWrite;
    const bool again = loads && !used.emplace(op.worker, op.uses[1].block).second;
    if (!again && op.kind != OpKind::kUnload) continue;
    Timeline early = times;
    early.start[i] = 0;
    EXPECT_NE(CheckRun(plan_, ring, early), absl::OkStatus()) << ring.Describe(i);
  }
  EXPECT_EQ(CheckRun(plan_, ring, times), absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(Plans, FileMutationTest,
                         testing::Range(static_cast<int>(Shapes().size()) - kInFiles,
                                        static_cast<int>(Shapes().size())));
INSTANTIATE_TEST_SUITE_P(Plans, MutationTest, testing::Range(0, static_cast<int>(Shapes().size())));

}  // namespace
}  // namespace ringzero
