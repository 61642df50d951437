// Blocks are allocated once, lent, and written only while nobody holds what was lent.
#include "zero/block_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

constexpr MemoryBlock kVersion{.kind = BlockKind::kVersion, .stage = StageId(1)};
constexpr MemoryBlock kState{.kind = BlockKind::kState, .stage = StageId(1)};
constexpr MemoryBlock kSum{.kind = BlockKind::kSum, .stage = StageId(1)};

const std::vector<OwnBlock>& Table() {
  static const auto* const table =
      new std::vector<OwnBlock>{{kVersion, 128, Access::kLentToRead, &MemoryBytes::masters},
                                {kState, 256, Access::kPrivate, &MemoryBytes::moments},
                                {kSum, 192, Access::kExchanged, &MemoryBytes::sums}};
  return *table;
}

absl::StatusOr<Buffer> OnTheHeap(const OwnBlock& own) {
  return MakeHeapBuffer(static_cast<size_t>(own.bytes));
}

TEST(BlockMemoryTest, AllocatesAndCounts) {
  BlockMemory memory;
  ASSERT_EQ(memory.Allocate(Table(), OnTheHeap), absl::OkStatus());
  EXPECT_TRUE(memory.Has(kVersion));
  EXPECT_TRUE(memory.Has(kState));
  EXPECT_EQ(memory.Bytes(kSum).size(), 192u);
  EXPECT_FALSE(memory.Has({.kind = BlockKind::kNorm}));
  EXPECT_EQ(memory.bytes(), (MemoryBytes{.masters = 128, .moments = 256, .sums = 192}));
  BlockMemory none;
  EXPECT_THAT(none.Allocate(Table(),
                            [](const OwnBlock&) -> absl::StatusOr<Buffer> {
                              return absl::ResourceExhaustedError("no memory");
                            }),
              Says("no memory"));
}

TEST(BlockMemoryTest, LendsWhereItLies) {
  BlockMemory memory;
  ASSERT_EQ(memory.Allocate(Table(), OnTheHeap), absl::OkStatus());
  memory.Write(kVersion)[5] = std::byte{7};
  const SharedBuffer copy = memory.Lend(kVersion);
  EXPECT_EQ(copy.data(), memory.Read(kVersion));
  memory.Clear();
  EXPECT_EQ(copy.data()[5], std::byte{7}) << "what is lent stays";
}

// Two workers that map one memory: what one writes, the other notices.
TEST(BlockMemoryTest, AStampTellsOfABlockThatWasOverwritten) {
  constexpr size_t kBytes = 128;
  Buffer shared = MakeHeapBuffer(kBytes + kPayloadAlignment);
  const MemoryBlock cell{.kind = BlockKind::kCell, .copy = Copy::kForward, .stage = StageId(1)};
  BlockMemory home, borrower;
  home.Borrow(kVersion, {{shared.data(), kBytes}, nullptr});
  home.AddStamp(kVersion);
  borrower.Borrow(cell, {{shared.data(), kBytes}, nullptr});
  EXPECT_EQ(borrower.Read(cell), home.Read(kVersion));
  EXPECT_EQ(borrower.StampAt(cell).Check(StampOf(Version(0))), absl::OkStatus());
  EXPECT_EQ(borrower.StampAt(cell).Check(StampOf(Version(-1))), absl::OkStatus());
  home.StampAt(kVersion).Set(Stamp::kBeingWritten);
  EXPECT_THAT(borrower.StampAt(cell).Check(StampOf(Version(0))),
              Says("does not hold what is read"));
  home.StampAt(kVersion).Set(StampOf(Version(1)));
  EXPECT_EQ(borrower.StampAt(cell).Check(StampOf(Version(1))), absl::OkStatus());
  EXPECT_THAT(borrower.StampAt(cell).Check(StampOf(Prediction(1))), Says("its stamp is 1"));
  EXPECT_EQ(borrower.StampAt(kState).Check(7), absl::OkStatus()) << "it has none";
}

TEST(BlockMemoryDeathTest, AnUnknownBlockIsNamed) {
  BlockMemory memory;
  EXPECT_DEATH(memory.Write(kSum), "S.s1.0");
}

}  // namespace
}  // namespace ringzero
