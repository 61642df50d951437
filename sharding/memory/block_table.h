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
#ifndef RINGZERO_SHARDING_MEMORY_BLOCK_TABLE_H_
#define RINGZERO_SHARDING_MEMORY_BLOCK_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/ids.h"
#include "sharding/plan.h"
#include "sharding/program/block.h"

namespace ringzero {

// In bytes; each page once, with the worker that allocates it.
struct MemoryBytes {
  int64_t masters = 0;  // one version of every owned stage, in fp32
  // The second one (cdp rules, stages that train) or two predictions; all that are not fp32.
  int64_t versions = 0;
  int64_t moments = 0;    // optimizer states of owned stages, and working memory of an update
  int64_t sums = 0;       // gradient sums: one per stage that trains
  int64_t taken = 0;      // memory of owners for complete sums that wait for the norm
  int64_t gradients = 0;  // the most of local ones that wait to be added to their sums
  int64_t total() const;
  MemoryBytes& operator+=(const MemoryBytes& other);
  bool operator==(const MemoryBytes&) const = default;
};

// Names as printed, in the order in which they are printed.
struct MemoryCategory {
  const char* name;
  int64_t MemoryBytes::*bytes;
};
std::span<const MemoryCategory> MemoryCategories();

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
// lent. `moment_bytes`: by stage, what its optimizer keeps (zero/optimizer/optimizer.h); empty:
// nothing.
std::vector<OwnBlock> StateBlocks(const Plan& plan, WorkerId self,
                                  std::span<const int64_t> moment_bytes);

// What messages come into and leave from besides, and statistics, metrics and norms: first what is
// lent. The errors of ProgramWriter.
absl::StatusOr<std::vector<OwnBlock>> MessageBlocks(const Plan& plan, WorkerId self,
                                                    int metrics_count);

struct BlockSizes {
  std::span<const int64_t> moment_bytes;
  int metrics_count = 1;  // numbers that a micro-batch reports
};
// Both, in this order. The errors of MessageBlocks.
absl::StatusOr<std::vector<OwnBlock>> BlockTable(const Plan& plan, WorkerId self,
                                                 const BlockSizes& sizes);

// Who sends payload to whom, ascending: what a transport needs that connects ordered pairs. The
// errors of ProgramWriter.
absl::StatusOr<std::vector<std::pair<WorkerId, WorkerId>>> PayloadPairs(const Plan& plan);

// A version in a file of its owner (StagePlan::streams_parameters) has whole pages: its values, and
// behind them a trailer that says what they are.
inline int64_t TrailerOffset(int64_t parameter_bytes) {
  return static_cast<int64_t>(AlignPayload(static_cast<size_t>(parameter_bytes)));
}
inline int64_t ImageBytes(int64_t parameter_bytes) {
  constexpr int64_t kPage = 4096;
  return TrailerOffset(parameter_bytes) / kPage * kPage + kPage;
}

// By which other workers find that file (TierFile::Handle).
inline constexpr int64_t kFileNameBytes = 64;

// What a worker says of what it has written (zero/checkpoint).
inline constexpr int64_t kReceiptBytes = 64;

// A message's payload.
int64_t MessageBytes(const Plan& plan, const Op& message, int metrics_count);

// One line per block, and the sum: name, bytes, category, access.
std::string DescribeBlocks(WorkerId self, std::span<const OwnBlock> blocks);

// --- the forecast: bytes of model states and buffers that a run will hold, told before it begins
// -----
//
//   RZ_ASSIGN_OR_RETURN(MemoryForecast memory, ForecastMemory(plan, {.moment_bytes = moments}));
//   memory.host().total();      // of the whole host, every page once
//   memory.workers[2].masters;  // in memory that worker 2 allocates
//
// The first piece of the fit certificate (docs/memory.md): sums over the table, for workers of one
// process or one host (shm), whose copies are lent and take no memory. Without activations, running
// statistics, what evaluations and collections add, and what a process takes without a model.

struct MemoryOptions {
  std::vector<int64_t> moment_bytes;    // by stage, what its optimizer keeps; empty: nothing
  std::vector<int64_t> gradient_bytes;  // by stage, of one micro-batch; empty: as its sum
  // By stage, what an update works in, and needs no more when it is done; empty: nothing. A worker
  // has memory for the stage that needs most.
  std::vector<int64_t> scratch_bytes;
  // Gradients of matrices go into a sum that is there without being stored first (a model of
  // ringzero::Linear), so whoever begins a sum keeps none.
  bool gradients_join_sums = false;
};

struct MemoryForecast {
  std::vector<MemoryBytes> workers;
  MemoryBytes host() const;
};

// InvalidArgument if moment_bytes, scratch_bytes or gradient_bytes are neither empty nor one per
// stage.
absl::StatusOr<MemoryForecast> ForecastMemory(const Plan& plan, const MemoryOptions& options);

// A table: category, bytes of the whole host, bytes per parameter; and the total.
// `parameter_count`: of the model.
std::string DescribeMemory(const MemoryForecast& memory, int64_t parameter_count);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_MEMORY_BLOCK_TABLE_H_
