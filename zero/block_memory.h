// BlockMemory: the memory of the blocks that a worker has from the start of a run to its end.
//
//   RZ_RETURN_IF_ERROR(memory.Allocate(table, allocate));    // BlockTable's
//   const std::byte* sum = memory.Read(block);
//   SharedBuffer copy = memory.Lend(block);                   // for the computing side
//
// Who may read or write a block when is the program's: its operations name the blocks.
// Thread-safety: the engine's mutex guards all calls; the memory itself is used without it.
#ifndef RINGZERO_ZERO_BLOCK_MEMORY_H_
#define RINGZERO_ZERO_BLOCK_MEMORY_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/status.h"
#include "p2p/transport.h"
#include "sharding/memory/block_table.h"
#include "sharding/op.h"
#include "sharding/plan.h"
#include "sharding/program/loans.h"

namespace ringzero {

// What a lent block holds, written behind its bytes, where all who map the block see it.
//
//   stamp.Set(Stamp::kBeingWritten);  …;  stamp.Set(StampOf(Version(5)));   // its writer
//   RZ_RETURN_IF_ERROR(stamp.Check(StampOf(Version(5))));         // a reader, before and after
//
// Borrowers are not counted: the plan proves that a block is written only when no worker reads it
// (sharding/check/wait_graph.h). Were the proof wrong, training would go on with wrong numbers. A
// stamp makes that an error. It is a second net: on processors that reorder more than x86 does it
// may miss an overlap. Thread-safe.
class Stamp {
 public:
  static constexpr int64_t kBeingWritten = -1;

  // None: what is not lent. Checks pass.
  Stamp() = default;
  // Of a block with `bytes` of payload; memory for another kPayloadAlignment follows them.
  Stamp(std::byte* data, size_t bytes)
      : at_(reinterpret_cast<std::atomic<int64_t>*>(data + AlignPayload(bytes))) {}

  void Set(int64_t holds) const {
    if (at_ != nullptr) at_->store(holds, std::memory_order_release);
  }
  // Internal if the block holds something else.
  absl::Status Check(int64_t wanted) const {
    const int64_t holds = at_ == nullptr ? wanted : at_->load(std::memory_order_acquire);
    if (holds == wanted) return absl::OkStatus();
    return Internal("a lent block does not hold what is read: its stamp is ", holds, ", wanted ",
                    wanted);
  }

 private:
  static_assert(std::atomic<int64_t>::is_always_lock_free);
  std::atomic<int64_t>* at_ = nullptr;
};

// θ_{-1} is θ_0, in the same memory.
inline int64_t StampOf(Version label) { return std::max(label.value, 0); }
// Of a sum's memory: the sum of iteration t may begin there; it has begun, and has `count`
// gradients.
inline int64_t StampOfFreeSum(const Plan& plan, int t) {
  return int64_t{t} * (plan.workers * plan.laps + 2);
}
inline int64_t StampOfSum(const Plan& plan, int t, int count) {
  return StampOfFreeSum(plan, t) + 1 + count;
}

class BlockMemory {
 public:
  // Memory of at least own.bytes.
  using Allocator = std::function<absl::StatusOr<Buffer>(const OwnBlock& own)>;

  // All blocks of the table. Once.
  absl::Status Allocate(std::span<const OwnBlock> table, const Allocator& allocator);

  // From now on `block` is a name for this memory.
  void Map(const MemoryBlock& block, MappedMemory memory);
  // The same for a block of another worker, with a stamp.
  void Borrow(const MemoryBlock& cell, MappedMemory memory);
  // From now on a block of ours has a stamp: behind its bytes there is memory for one.
  void AddStamp(const MemoryBlock& own);
  // None for what has none.
  Stamp StampAt(const MemoryBlock& block) const;

  bool Has(const MemoryBlock& block) const { return blocks_.contains(block); }
  // The block must be there: here and below. What holds the result keeps the memory, not its
  // contents.
  SharedBuffer Lend(const MemoryBlock& block) const { return At(block).handle; }
  const std::byte* Read(const MemoryBlock& block) const { return At(block).data; }
  std::byte* Write(const MemoryBlock& block) { return At(block).data; }
  // All of it. A slot may be larger than what comes into it.
  std::span<std::byte> Bytes(const MemoryBlock& block) const {
    return {At(block).data, At(block).handle.size()};
  }

  // Allocated bytes by category of the forecast.
  const MemoryBytes& bytes() const { return bytes_; }
  void Clear() { blocks_.clear(); }

 private:
  struct Memory {
    std::byte* data = nullptr;
    SharedBuffer handle;
    Stamp stamp;
  };
  const Memory& At(const MemoryBlock& block) const;

  std::map<MemoryBlock, Memory> blocks_;
  MemoryBytes bytes_;
};

// From which memory of a transport a block is allocated that others use.
MemoryUse UseOf(Access access);

// Where the blocks lie that other workers lend.
//
//   LentMemory lent(plan);
//   RZ_ASSIGN_OR_RETURN(const MappedMemory memory, lent.At(transport, lent.HomeOf(self, receive)));
//
// Every worker knows the block table of every other, so no message tells an address. Not
// thread-safe.
class LentMemory {
 public:
  // `plan` must outlive this.
  explicit LentMemory(const Plan& plan) : plan_(plan) {}

  // The block that `loan` is of, which worker `self` receives.
  LentBlock HomeOf(WorkerId self, const Op& loan) const { return loans_.HomeOf(self, loan); }
  // A block as this worker maps it. Internal if its owner's memory is not known yet.
  absl::StatusOr<MappedMemory> At(Transport& transport, const LentBlock& lent);
  // Internal if a lent block of this worker does not lie where the others look for it.
  absl::Status Check(Transport& transport, const MemoryBlock& own, const std::byte* data);

 private:
  struct Place {
    MemoryUse use;
    size_t offset;
    size_t bytes;
  };
  absl::StatusOr<Place> PlaceOf(const LentBlock& lent);

  const Plan& plan_;
  const Loans loans_{plan_};
  std::map<WorkerId, std::map<MemoryBlock, Place>> places_;        // by home
  std::map<std::pair<WorkerId, MemoryUse>, MappedMemory> mapped_;  // those that are known
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_BLOCK_MEMORY_H_
