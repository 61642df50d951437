// BlockNumbers: small numbers for the blocks of one worker, counted from 0 as its program first
// names them.
//
//   BlockNumbers numbers;
//   const NumberedUses uses = numbers.Of(instruction.uses);
//   numbers.blocks()[uses[0].block];   // the block again
//
// So whatever is kept of each block is an array, and of an operand a name is looked up once.
#ifndef RINGZERO_SHARDING_BLOCK_NUMBERS_H_
#define RINGZERO_SHARDING_BLOCK_NUMBERS_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "sharding/block.h"

namespace ringzero {

// A Use, by the number of its block.
struct NumberedUse {
  Role role;
  How how;
  int block;
};
using NumberedUses = absl::InlinedVector<NumberedUse, 3>;

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
    for (const Use& use : uses) numbered.emplace_back(use.role, use.how, Of(use.block));
    return numbered;
  }
  const std::vector<MemoryBlock>& blocks() const { return blocks_; }  // by number

 private:
  absl::flat_hash_map<MemoryBlock, int> numbers_;
  std::vector<MemoryBlock> blocks_;
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_BLOCK_NUMBERS_H_
