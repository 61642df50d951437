// Block table: the memory that a worker has from the start of a run to its end, block by block.
//
//   RZ_ASSIGN_OR_RETURN(const std::vector<OwnBlock> table,
//                       BlockTable(plan, self, {.moment_bytes = moments, .metrics_count = 1}));
//   for (const OwnBlock& own : table) Allocate(own.block, own.bytes, own.access);
//
// The engine allocates what this table says, once, at the start. The forecast, the certificate and
// what a transport needs are sums over the same table. Gradients, activations, losses and
// statistics of a micro-batch are not in it: the model's library allocates them. Names:
// docs/blocks.md. Pure.
#ifndef RINGZERO_SHARDING_BLOCK_TABLE_H_
#define RINGZERO_SHARDING_BLOCK_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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
  kExchanged,    // its payload leaves, or comes, in messages
};
std::string ToString(Access access);  // "private", "lent to read", …
inline bool IsLent(Access access) {
  return access == Access::kLentToRead || access == Access::kLentToWrite;
}

struct OwnBlock {
  MemoryBlock block;
  int64_t bytes = 0;
  Access access = Access::kPrivate;
  // Where the forecast counts it; null: among the certificate's pools.
  int64_t MemoryBytes::*category = nullptr;
};

// The states of `self` and the sums that it begins, by stage: what the forecast counts, and what is
// lent. `moment_bytes`: by stage, what its optimizer keeps (zero/optimizer_state.h); empty: nothing.
std::vector<OwnBlock> StateBlocks(const Plan& plan, WorkerId self,
                                  std::span<const int64_t> moment_bytes);

// What messages come into and leave from besides, and statistics, metrics and norms. The errors of
// ProgramWriter.
absl::StatusOr<std::vector<OwnBlock>> MessageBlocks(const Plan& plan, WorkerId self,
                                                    int metrics_count);

struct BlockSizes {
  std::span<const int64_t> moment_bytes;
  int metrics_count = 1;  // numbers that a micro-batch reports
};
// Both, in this order. The errors of MessageBlocks.
absl::StatusOr<std::vector<OwnBlock>> BlockTable(const Plan& plan, WorkerId self,
                                                 const BlockSizes& sizes);

// A message's payload.
int64_t MessageBytes(const Plan& plan, const Op& message, int metrics_count);

// One line per block, and the sum: name, bytes, category, access.
std::string DescribeBlocks(WorkerId self, std::span<const OwnBlock> blocks);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_BLOCK_TABLE_H_
