// LentMemory: where the blocks lie that other workers lend.
//
//   LentMemory lent(plan);
//   RZ_ASSIGN_OR_RETURN(const MappedMemory memory, lent.Of(transport, receive));
//
// Every worker knows the block table of every other, so no message tells an address. Not
// thread-safe.
#ifndef RINGZERO_ZERO_LENT_MEMORY_H_
#define RINGZERO_ZERO_LENT_MEMORY_H_

#include <cstddef>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "p2p/transport.h"
#include "sharding/block_table.h"
#include "sharding/loans.h"

namespace ringzero {

// From which memory of a transport a block is allocated that others use.
MemoryUse UseOf(Access access);

class LentMemory {
 public:
  // `plan` must outlive this.
  explicit LentMemory(const Plan& plan) : plan_(plan) {}

  // The block that `loan` is of, as this worker maps it. Internal if its owner's memory is not known
  // yet.
  absl::StatusOr<MappedMemory> Of(Transport& transport, const Op& loan);
  // Internal if a lent block of this worker does not lie where the others look for it.
  absl::Status Check(Transport& transport, const MemoryBlock& own, const std::byte* data);

 private:
  struct Place {
    MemoryUse use;
    size_t offset;
    size_t bytes;
  };
  absl::StatusOr<MappedMemory> At(Transport& transport, const LentBlock& lent);
  const Place& PlaceOf(const LentBlock& lent);

  const Plan& plan_;
  std::map<WorkerId, std::map<MemoryBlock, Place>> places_;        // by home
  std::map<std::pair<WorkerId, MemoryUse>, MappedMemory> mapped_;  // those that are known
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_LENT_MEMORY_H_
