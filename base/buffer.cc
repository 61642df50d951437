// Handles on counted memory, and the plain heap cell.
#include "base/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/status.h"

namespace ringzero {
namespace {

class HeapCell final : public CountedCell {
 public:
  HeapCell(std::byte* data, size_t size) : CountedCell(data, size) {}
  ~HeapCell() override { std::free(data_); }
};

class BorrowedCell final : public CountedCell {
 public:
  BorrowedCell(std::span<std::byte> memory, std::shared_ptr<const void> keeper)
      : CountedCell(memory.data(), memory.size()), keeper_(std::move(keeper)) {}

 private:
  const std::shared_ptr<const void> keeper_;
};

}  // namespace

void BufferHandle::Reset() {
  if (BufferCell* cell = Detach()) cell->DropHolder();
}

BufferCell* BufferHandle::Detach() { return std::exchange(cell_, nullptr); }

SharedBuffer Buffer::Seal() && { return SharedBuffer(Detach()); }

absl::StatusOr<Buffer> SharedBuffer::Unseal() && {
  if (const int count = holders(); count != 1) {
    return FailedPrecondition("a shared buffer of ", size(), " bytes still has ", count,
                              " holders");
  }
  return Buffer(Detach());
}

Buffer MakeHeapBuffer(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t rounded = AlignPayload(bytes == 0 ? 1 : bytes);
  const bool huge = rounded >= kHugePage;
  // Not aligned_alloc, which wants a multiple of the alignment as size.
  void* memory = nullptr;
  if (posix_memalign(&memory, huge ? kHugePage : kPayloadAlignment, rounded) != 0) {
    throw std::bad_alloc();
  }
  // Fewer faults and faster streams; a hint, so its failure is no error.
  if (huge) (void)madvise(memory, rounded / kHugePage * kHugePage, MADV_HUGEPAGE);
  std::memset(memory, 0, rounded);
  return Buffer(new HeapCell(static_cast<std::byte*>(memory), bytes));
}

Buffer BorrowBuffer(std::span<std::byte> memory, std::shared_ptr<const void> keeper) {
  return Buffer(new BorrowedCell(memory, std::move(keeper)));
}

}  // namespace ringzero
