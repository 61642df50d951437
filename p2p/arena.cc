// Carves blocks, and keeps those that were given back.
#include "p2p/arena.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

// Between blocks, so that two of them never share a cache line that a prefetcher pairs up. The stamp
// of a lent block lies there (zero/block_memory.h).
constexpr size_t kGapBytes = 64;

size_t CarvedBytes(size_t bytes) { return AlignPayload(std::max<size_t>(bytes, 1)) + kGapBytes; }

}  // namespace

absl::StatusOr<Buffer> Arena::Allocate(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::byte*>& free = free_[bytes];
  std::byte* block = nullptr;
  if (!free.empty()) {
    block = free.back();
    free.pop_back();
  } else if (CarvedBytes(bytes) <= data_.bytes() - carved_bytes_) {
    block = data_.data() + carved_bytes_;
    data_.BackByHugePages(carved_bytes_, carved_bytes_ + CarvedBytes(bytes));
    carved_bytes_ += CarvedBytes(bytes);
  } else {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", owner_.value, " has no room for ", bytes, " bytes of ",
                     use_ == MemoryUse::kParameters ? "parameters" : "sums", ": ", carved_bytes_,
                     " of ", data_.bytes(), " bytes are cut into blocks"));
  }
  const auto give_back = [arena = shared_from_this(), bytes](std::byte* each) {
    arena->Free(each, bytes);
  };
  return BorrowBuffer({block, bytes}, std::shared_ptr<std::byte>(block, give_back));
}

void Arena::Free(std::byte* block, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  free_[bytes].push_back(block);
}

}  // namespace ringzero
