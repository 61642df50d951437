// Block table: the memory that a worker has from the start of a run to its end, block by block.
//
//   for (const OwnBlock& own : OwnBlocks(plan, self, moment_bytes)) {
//     Allocate(own.block, own.bytes, own.access);       // V.s2.0, 4096, lent to read
//   }
//
// The engine allocates what this table says, once, at the start. The forecast, the certificate and
// what a transport needs are sums over the same table. Slots of messages are not in it, and neither
// are gradients and activations, which are LibTorch's. Names: docs/blocks.md. Pure.
#ifndef RINGZERO_SHARDING_BLOCK_TABLE_H_
#define RINGZERO_SHARDING_BLOCK_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "sharding/block.h"
#include "sharding/memory_forecast.h"
#include "sharding/plan.h"

namespace ringzero {

// Who else may reach a block.
enum class Access : uint8_t {
  kPrivate,      // no other worker
  kLentToRead,   // other workers read it where it lies; its worker alone writes it
  kLentToWrite,  // and they write it
  kHandedOn,     // it leaves with a message: the worker that has it may write it
};
std::string ToString(Access access);  // "private", "lent to read", …

struct OwnBlock {
  MemoryBlock block;
  int64_t bytes = 0;
  Access access = Access::kPrivate;
  // Where the forecast counts it; null: among the certificate's pools.
  int64_t MemoryBytes::*category = nullptr;
};

// The blocks of `self`, by stage. `moment_bytes`: by stage, what its optimizer keeps (zero/
// optimizer_state.h); empty: nothing.
std::vector<OwnBlock> OwnBlocks(const Plan& plan, WorkerId self,
                                std::span<const int64_t> moment_bytes);

// One line per block, and the sum: name, bytes, category, access.
std::string DescribeBlocks(WorkerId self, std::span<const OwnBlock> blocks);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_BLOCK_TABLE_H_
