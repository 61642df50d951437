// One anonymous shared mapping: words first, then every worker's part.
#include "bench/ring/shared_area.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;

size_t Round(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

absl::StatusOr<std::shared_ptr<SharedArea>> SharedArea::Create(const SharedAreaOptions& options) {
  const size_t workers = static_cast<size_t>(options.workers);
  const size_t bytes = Round(workers * kLine) + workers * Round(options.bytes_each);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mmap of ", bytes, " bytes: ", std::strerror(errno)));
  }
  return std::shared_ptr<SharedArea>(
      new SharedArea(options, static_cast<std::byte*>(memory), bytes));
}

SharedArea::~SharedArea() { munmap(memory_, bytes_); }

std::span<std::byte> SharedArea::BytesOf(WorkerId worker) const {
  const size_t words = Round(static_cast<size_t>(options_.workers) * kLine);
  return {memory_ + words + static_cast<size_t>(worker.value) * Round(options_.bytes_each),
          options_.bytes_each};
}

std::atomic<uint32_t>& SharedArea::WordOf(WorkerId worker) const {
  return *reinterpret_cast<std::atomic<uint32_t>*>(memory_ +
                                                   static_cast<size_t>(worker.value) * kLine);
}

}  // namespace ringzero
