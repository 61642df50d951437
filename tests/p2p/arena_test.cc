// Blocks: alignment, reuse by exact size, the promised capacity, other views.
#include "p2p/arena.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

ShmArena Make(size_t bytes) {
  auto made = MakeShmArenas(WorkerId(1), {.sum_bytes = bytes});
  EXPECT_TRUE(made.ok()) << made.status();
  return std::move((*made)[static_cast<size_t>(MemoryUse::kSums)]);
}

TEST(Arena, HoldsWhatItsSizePromises) {
  const std::vector<size_t> sizes = {1, 64, 65, 1000, 0, 4096};
  size_t bytes = 0;
  for (const size_t size : sizes) bytes += AlignPayload(size == 0 ? 1 : size) + 64;
  const ShmArena made = Make(bytes);
  std::vector<Buffer> held;
  for (const size_t size : sizes) {
    RZ_ASSIGN(Buffer buffer, made.arena->Allocate(size));
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kPayloadAlignment, 0u);
    held.push_back(std::move(buffer));
  }
  EXPECT_EQ(made.arena->Allocate(1).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Arena, UsesAFreeBlockOfTheSameSizeAgain) {
  const ShmArena made = Make(2 * 128);
  RZ_ASSIGN(Buffer first, made.arena->Allocate(64));
  RZ_ASSIGN(const Buffer second, made.arena->Allocate(64));
  const std::byte* const place = first.data();
  first.Reset();
  EXPECT_FALSE(made.arena->Allocate(32).ok());
  RZ_ASSIGN(const Buffer again, made.arena->Allocate(64));
  EXPECT_EQ(again.data(), place);
}

TEST(Arena, AnotherViewSeesTheBytes) {
  const ShmArena made = Make(4096);
  RZ_ASSIGN(const MappedMemory view, MapShmArena(MemoryUse::kSums, 4096, made.file));
  RZ_ASSIGN(const Buffer buffer, made.arena->Allocate(64));
  buffer.as<int>()[0] = 42;
  const auto offset = buffer.data() - made.arena->memory().data();
  EXPECT_EQ(*reinterpret_cast<const int*>(view.bytes.data() + offset), 42);
  EXPECT_TRUE(made.arena->Contains(buffer.as<std::byte>()));
  EXPECT_FALSE(made.arena->Contains(view.bytes));
}

TEST(Arena, MappedMemoryOutlivesTheArena) {
  MappedMemory mapped;
  {
    const ShmArena made = Make(4096);
    mapped = made.arena->Mapped();
  }
  ASSERT_EQ(mapped.bytes.size(), 4096u);
  mapped.bytes.back() = std::byte{7};
}

TEST(Arena, ATooSmallFileIsRefused) {
  const ShmArena made = Make(4096);
  EXPECT_FALSE(MapShmArena(MemoryUse::kSums, 1 << 20, made.file).ok());
}

}  // namespace
}  // namespace ringzero
