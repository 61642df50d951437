// MemoryBlock: a piece of a worker's memory, by the name that its program gives it. Use: what an
// operation does with one.
//
//   const MemoryBlock block{.kind = BlockKind::kVersion, .stage = StageId(2), .index = 1};
//   ToString(block);                                        // "V.s2.1"
//   ToString(Use{Role::kParameters, How::kRead, block});    // "parameters r V.s2.1"
//
// A worker's program names only blocks of its own. Two operations that name the same block wait for
// each other, unless both only read it. Which operation names which block: docs/blocks.md.
#ifndef RINGZERO_SHARDING_PROGRAM_BLOCK_H_
#define RINGZERO_SHARDING_PROGRAM_BLOCK_H_

#include <compare>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "base/ids.h"
#include "sharding/op.h"

namespace ringzero {

enum class BlockKind : uint8_t {
  // At whoever has a stage's masters.
  kVersion,  // V.s: versions of its parameters as they travel, in memory or in a file; index 0 or
             // 1, in dp 0
  kVersionFile,  // VF: which file that is, for workers of the same host
  kMasters,  // MA.s: fp32 masters where versions are of another type; index 0 or 1. MA: a stage's
             // that stream, for a collection
  kPrediction,  // P.s: predictions; index t mod 2
  kState,       // O.s: optimizer state
  kTier,        // OT.s: and what is streamed of it, in the tier file
  kTaken,       // T.s: a complete sum that waits for the norm
  kSquares,     // q.s: squares of a complete sum
  kNorm,        // nr: the global norm of an iteration; index t mod 4
  kKept,  // K.grad.s, K.opt.s: sum and state for a collection; index: rank of the version mod 2
  // Sums, gradients and what the computing leaves.
  kBegun,            // B: a sum that begins here; index: its number mod the slots
  kSum,              // S.s: the sum of a lone worker, and of a host's first worker, which lends it
  kFinished,         // Z.s: a complete sum where everybody has all (stage 0 of ZeRO)
  kGradient,         // G: of a backward, until it is added; index: its number mod (pending + 1)
  kBatchStatistics,  // bs.s: of one micro-batch; index: its number mod 2
  kStatistics,       // R.s: the running ones
  kSnapshot,         // SN.s: running statistics of a version; index: rank of the version mod 2
  kLosses,           // ls, ls.eval: of one micro-batch; index: its number mod 2
  kMetrics,          // M, M.eval: the fold of an iteration
  kReport,           // RP, RP.eval: the same, come to worker 0
  kReceipt,          // RC: what this worker has written of a version
  kStaging,          // OS: state on its way between a tier file and an update
  kResident,         // VR: versions that come from files; behind them: what updates make
  // What is received.
  kCell,  // c.copy.s, c.channel.s: a name for what another worker lends, no bytes; number mod 2
  kLent,  // L.copy.s: a copy that the first worker of a host receives, and lends to the next
  kSlot,  // C.channel.w: any message of one channel; index: its number mod the slots
  kStageSlot,  // D.channel.w.copy.s: a copy that stays longer than a stage; index: number mod 2
  kHeld,       // H.s: a copy that is held; index: version mod 2, or 0 where there is one
  kHeldPrediction,  // HP.s: the same of a prediction
  // Tokens.
  kToken,  // tk: index: its number mod the slots; its stage is the operation before which it comes
  kClock,  // ck: what a sender waits for; likewise
};
inline constexpr int kBlockKindCount = static_cast<int>(BlockKind::kClock) + 1;

struct MemoryBlock {
  BlockKind kind = BlockKind::kVersion;
  Channel channel = Channel::kNone;  // of slots
  Copy copy = Copy::kNone;
  StageId stage = kNoStage;
  WorkerId from = kNoWorker;  // of slots: the sender, if they are of one sender
  int index = 0;
  auto operator<=>(const MemoryBlock&) const = default;

  template <typename H>
  friend H AbslHashValue(H hash, const MemoryBlock& block) {
    const auto kind = static_cast<uint64_t>(block.kind) << 16 |
                      static_cast<uint64_t>(block.channel) << 8 | static_cast<uint64_t>(block.copy);
    const auto place = static_cast<uint64_t>(static_cast<uint32_t>(block.stage.value)) << 32 |
                       static_cast<uint32_t>(block.from.value);
    return H::combine(std::move(hash), kind << 32 | static_cast<uint32_t>(block.index), place);
  }
};

enum class How : uint8_t { kRead, kWrite, kReadWrite };  // "r", "w", "x"

// Which argument of its operation a block is.
enum class Role : uint8_t {
  kParameters,       // what computing reads: the stage's, then those of stages tied to it
  kGradient,         // B leaves it, Add takes it
  kBatchStatistics,  // F leaves them, Apply takes them
  kStatistics,       // running ones
  kSnapshot,
  kToken,  // computing waits for it
  kClock,  // a send of a token waits for it
  kLosses,
  kFold,
  kSum,
  kTaken,  // Squares moves the sum there
  kSquares,
  kNorm,
  kState,
  kBefore,      // Update: the masters that it starts from, where it does not overwrite them
  kMade,        // the version that it makes
  kMasters,     // its masters, where they are apart
  kPrediction,  // and what it predicts
  kKept,        // for a collection
  kSaved,       // Save: what it writes to files
  kReceipt,     // and what it says of them, for Commit
  kTier,        // what Fetch reads, and Store writes
  kStaged,      // Fetch leaves it, an update changes it, Store takes it
  kSource,      // of a Send, a Load, an Unload; of a Send "w" where it gives back what was lent
  kTarget,  // of a Receive. Of a Load: where the version comes to, or is; of an Unload: the file
};
inline constexpr int kRoleCount = static_cast<int>(Role::kTarget) + 1;

struct Use {
  Role role;
  How how;
  MemoryBlock block;
  auto operator<=>(const Use&) const = default;
};
inline Use Reading(Role role, const MemoryBlock& block) { return {role, How::kRead, block}; }
inline Use Writing(Role role, const MemoryBlock& block) { return {role, How::kWrite, block}; }
inline Use Changing(Role role, const MemoryBlock& block) { return {role, How::kReadWrite, block}; }

using Uses = absl::InlinedVector<Use, 3>;

// An operation of a program with its operands.
struct Instruction : Op {
  Instruction() = default;
  Instruction(const Op& op) : Op(op) {}  // NOLINT(google-explicit-constructor): without operands
  Instruction(const Op& op, Uses operands) : Op(op), uses(std::move(operands)) {}
  Uses uses;
  bool loan = false;  // of a message: it lends its block, and copies nothing (loans.h)
  bool operator==(const Instruction&) const = default;
};

// Text: op.cc.
std::string ToString(How how);
std::string ToString(Role role);
std::string ToString(const MemoryBlock& block);
std::string ToString(const Use& use);
// "Add s1 t0 l0 | gradient r G.0, sum x C.sum.w0.1"
std::string WithOperands(const Instruction& instruction);

// A Use, by the number of its block.
struct NumberedUse {
  Role role;
  How how;
  int block;
};
using NumberedUses = absl::InlinedVector<NumberedUse, 3>;

// Small numbers for the blocks of one worker, counted from 0 as its program first names them.
//
//   BlockNumbers numbers;
//   const NumberedUses uses = numbers.Of(instruction.uses);
//   numbers.blocks()[uses[0].block];   // the block again
//
// So whatever is kept of each block is an array, and of an operand a name is looked up once.
class BlockNumbers {
 public:
  // A block without a number gets the next one.
  int Of(const MemoryBlock& block) {
    const auto [number, first] = numbers_.try_emplace(block, static_cast<int>(blocks_.size()));
    if (first) blocks_.push_back(block);
    return number->second;
  }
  NumberedUses Of(const Uses& uses) {
    NumberedUses numbered;
    for (const Use& use : uses) numbered.push_back({use.role, use.how, Of(use.block)});
    return numbered;
  }
  const std::vector<MemoryBlock>& blocks() const { return blocks_; }  // by number

 private:
  absl::flat_hash_map<MemoryBlock, int> numbers_;
  std::vector<MemoryBlock> blocks_;
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_PROGRAM_BLOCK_H_
