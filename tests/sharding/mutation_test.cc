// Every small change of a program is refused; what may be reordered without a difference is right.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

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
  };
}

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
      ExpectRefused(w, mutated, "without " + ToString(ops[i]));
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
        ExpectRefused(w, mutated, ToString(ops[i]) + " became " + ToString(mutant));
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
    RZ_ASSIGN(auto ring, Joined(plan_, moved));
    ASSERT_EQ(Link(plan_, ring), absl::OkStatus());
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const auto times =
          RunTimeline(plan_, ring, {.update_ticks = 3, .more_ticks = Jitter(20, seed)});
      ASSERT_TRUE(times.ok()) << ToString(op) << " from " << from << " to " << to << times.status();
      EXPECT_EQ(CheckRun(plan_, ring, *times), absl::OkStatus())
          << ToString(op) << " from " << from << " to " << to;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused_, 0);
}

INSTANTIATE_TEST_SUITE_P(Plans, MutationTest, testing::Range(0, static_cast<int>(Shapes().size())));

}  // namespace
}  // namespace ringzero
