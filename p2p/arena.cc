// Carves blocks, finds free ones of the same size, counts holders.
#include "p2p/arena.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ringzero {
namespace {

// Between blocks, so that two of them never share a cache line that a prefetcher pairs up. The stamp
// of a lent block lies there (zero/stamp.h).
constexpr size_t kGapBytes = 64;

size_t CarvedBytes(size_t bytes) { return AlignPayload(std::max<size_t>(bytes, 1)) + kGapBytes; }

size_t MaxBlocks(size_t bytes) { return bytes / CarvedBytes(1) + 1; }

}  // namespace

void ArenaCell::AddHolder() {
  arena_->users_.fetch_add(1, std::memory_order_relaxed);
  holders_->fetch_add(1, std::memory_order_relaxed);
}

void ArenaCell::DropHolder() {
  Arena* arena = arena_;
  // After the last holder's drop the owner may use the block again, so this comes after all reads.
  const int before = holders_->fetch_sub(1, std::memory_order_acq_rel);
  RZ_CHECK(before > 0, absl::StrCat("block ", block_.index, " was dropped more often than held"));
  arena->Release();
}

void ArenaCell::SendHolder() { arena_->Release(); }

size_t Arena::CountBytes(size_t bytes) { return MaxBlocks(bytes) * sizeof(HolderCount); }

Arena* Arena::Create(WorkerId owner, MemoryUse use, Mapping data, Mapping counts) {
  return new Arena(owner, use, std::move(data), std::move(counts));
}

Arena::Arena(WorkerId owner, MemoryUse use, Mapping data, Mapping counts)
    : owner_(owner), use_(use), data_(std::move(data)), counts_(std::move(counts)) {}

ArenaPtr Arena::Again() {
  users_.fetch_add(1, std::memory_order_relaxed);
  return ArenaPtr(this);
}

MappedMemory Arena::Mapped() { return {memory(), std::shared_ptr<const void>(Again())}; }

void Arena::Release() {
  if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

HolderCount* Arena::CountAt(uint32_t index) const {
  // The mapping is page-aligned and zeroed: a valid array of counts without constructors.
  return reinterpret_cast<HolderCount*>(counts_.data()) + index;
}

ArenaCell* Arena::CellAt(const ArenaBlock& block) {
  if (block.index >= cells_.size()) cells_.resize(block.index + 1);
  std::unique_ptr<ArenaCell>& cell = cells_[block.index];
  if (cell == nullptr) {
    cell =
        std::make_unique<ArenaCell>(this, block, data_.data() + block.offset, CountAt(block.index));
  }
  return cell.get();
}

absl::StatusOr<Buffer> Arena::Allocate(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return AllocateFrom(by_size_[bytes], MaxBlocks(data_.bytes()), bytes);
}

absl::StatusOr<Buffer> Arena::AllocateNumbered(int number, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return AllocateFrom(numbered_[number], 1, bytes);
}

size_t Arena::numbered_bytes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t bytes = 0;
  for (const auto& [number, block] : numbered_) {
    for (const ArenaCell* cell : block) bytes += cell->size();
  }
  return bytes;
}

absl::StatusOr<Buffer> Arena::AllocateFrom(std::vector<ArenaCell*>& same_size, size_t most,
                                           size_t bytes) {
  for (ArenaCell* cell : same_size) {
    if (cell->holders() == 0) {  // and nobody but us can change that
      cell->AddHolder();
      return Buffer(cell);
    }
  }
  if (same_size.size() >= most) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", most, " blocks of ", bytes, " bytes are held"));
  }
  if (CarvedBytes(bytes) > data_.bytes() - carved_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", owner_.value, " has no room for ", bytes, " bytes of ",
                     use_ == MemoryUse::kParameters ? "parameters" : "sums", ": ", carved_bytes_,
                     " of ", data_.bytes(), " bytes are cut into ", cells_.size(), " blocks, ",
                     same_size.size(), " of this size and all held"));
  }
  const ArenaBlock block = {static_cast<uint32_t>(cells_.size()), carved_bytes_, bytes};
  data_.BackByHugePages(carved_bytes_, carved_bytes_ + CarvedBytes(bytes));
  carved_bytes_ += CarvedBytes(bytes);
  ArenaCell* cell = CellAt(block);
  same_size.push_back(cell);
  cell->AddHolder();
  return Buffer(cell);
}

absl::StatusOr<Buffer> Arena::Adopt(const ArenaBlock& block) {
  bool fits = block.index < MaxBlocks(data_.bytes()) && block.bytes <= data_.bytes() &&
              block.offset <= data_.bytes() - block.bytes &&
              AlignPayload(block.offset) == block.offset;
  // What travels is counted: an invented token, or one that came twice, must not be dropped later.
  fits = fits && CountAt(block.index)->load(std::memory_order_acquire) > 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  // The owner has a cell of each block that there is.
  fits = fits && (carved_bytes_ == 0 || block.index < cells_.size());
  ArenaCell* cell = fits ? CellAt(block) : nullptr;
  if (cell == nullptr || cell->block().offset != block.offset || cell->size() != block.bytes) {
    return Internal("a message names block ", block.index, " at ", block.offset, " of ",
                    block.bytes, " bytes, which worker ", owner_.value, "'s memory does not have");
  }
  users_.fetch_add(1, std::memory_order_relaxed);
  return Buffer(cell);
}

}  // namespace ringzero
