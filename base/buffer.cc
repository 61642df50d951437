// The plain heap.
#include "base/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace ringzero {

Buffer MakeHeapBuffer(size_t bytes) {
  constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;
  const size_t rounded = AlignPayload(bytes == 0 ? 1 : bytes);
  const bool huge = rounded >= kHugePage;
  // Not aligned_alloc, which wants a multiple of the alignment as size.
  void* memory = nullptr;
  const size_t alignment = huge ? kHugePage : rounded % kPage == 0 ? kPage : kPayloadAlignment;
  if (posix_memalign(&memory, alignment, rounded) != 0) throw std::bad_alloc();
  // Fewer faults and faster streams; a hint, so its failure is no error.
  if (huge) (void)madvise(memory, rounded / kHugePage * kHugePage, MADV_HUGEPAGE);
  std::memset(memory, 0, rounded);
  return Buffer({static_cast<std::byte*>(memory), bytes}, std::shared_ptr<void>(memory, std::free));
}

}  // namespace ringzero
