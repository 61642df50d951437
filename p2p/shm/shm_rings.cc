// Numbers, acquire and release; futexes.
#include "p2p/shm/shm_rings.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ringzero {
namespace {

// Not FUTEX_PRIVATE_FLAG: sleepers and wakers are of several processes.
void WakeFutex(std::atomic<uint32_t>* futex) {
  syscall(SYS_futex, futex, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

size_t BellsBytes(int members) { return members * sizeof(Doorbell); }
size_t EndsBytes(int members) { return sizeof(RingEnd) * members * members; }

}  // namespace

void Doorbell::Ring() {
  if (sleeping_.load(std::memory_order_seq_cst) == 0) return;
  // Whoever finds it set wakes; the others need not.
  if (sleeping_.exchange(0, std::memory_order_seq_cst) != 0) WakeFutex(&sleeping_);
}

void Doorbell::RingForSure() {
  sleeping_.store(0, std::memory_order_seq_cst);
  WakeFutex(&sleeping_);
}

void Doorbell::Wait(std::chrono::nanoseconds limit) {
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t left = std::max<int64_t>(limit.count(), 0);
  const timespec relative = {left / kSecond, static_cast<long>(left % kSecond)};
  // Back at once if it is not 1 any more. Why it returned does not matter.
  syscall(SYS_futex, &sleeping_, FUTEX_WAIT, 1, &relative, nullptr, 0);
}

bool RingWriter::HasRoom() {
  // A number that cannot be true (more read than written) counts as a full ring, too.
  if (written_ - read_ < ShmRings::kWords) return true;
  read_ = end_->read.load(std::memory_order_seq_cst);
  return written_ - read_ < ShmRings::kWords;
}

bool RingWriter::Push(const RingWord& word) {
  if (!HasRoom()) return false;
  RingSlot& slot = slots_[written_ % ShmRings::kWords];
  slot.word = word;
  // Before the load of the reader's bell, in the one order that the reader sees, too.
  slot.number.store(++written_, std::memory_order_seq_cst);
  return true;
}

bool RingWriter::AskForRoom() {
  end_->wants_room.store(1, std::memory_order_seq_cst);
  return HasRoom();
}

bool RingReader::HasWord() const {
  return slots_[read_ % ShmRings::kWords].number.load(std::memory_order_seq_cst) == read_ + 1;
}

bool RingReader::Pop(RingWord& word) {
  const RingSlot& slot = slots_[read_ % ShmRings::kWords];
  if (slot.number.load(std::memory_order_acquire) != read_ + 1) return false;
  word = slot.word;
  ++read_;
  return true;
}

bool RingReader::Publish() {
  end_->read.store(read_, std::memory_order_seq_cst);
  if (end_->wants_room.load(std::memory_order_seq_cst) == 0) return false;
  end_->wants_room.store(0, std::memory_order_seq_cst);
  return true;
}

size_t ShmRings::FileBytes(int members) {
  const size_t rings = static_cast<size_t>(members) * members;
  return BellsBytes(members) + EndsBytes(members) + rings * kWords * sizeof(RingSlot);
}

absl::StatusOr<std::shared_ptr<ShmRings>> ShmRings::Create(int members, const UniqueFd& file) {
  RZ_ASSIGN_OR_RETURN(Mapping memory, Mapping::Shared(FileBytes(members), file));
  return std::shared_ptr<ShmRings>(new ShmRings(members, std::move(memory)));
}

// The mapping is page-aligned and zeroed: valid bells, ends and slots without constructors.
Doorbell& ShmRings::bell(int member) {
  RZ_CHECK(member >= 0 && member < members_, absl::StrCat("member ", member));
  return reinterpret_cast<Doorbell*>(memory_.data())[member];
}

RingEnd& ShmRings::EndOf(int from, int to) {
  RZ_CHECK(from >= 0 && from < members_ && to >= 0 && to < members_, absl::StrCat(from, " ", to));
  return reinterpret_cast<RingEnd*>(memory_.data() + BellsBytes(members_))[from * members_ + to];
}

RingSlot* ShmRings::SlotsOf(int from, int to) {
  std::byte* const slots = memory_.data() + BellsBytes(members_) + EndsBytes(members_);
  return reinterpret_cast<RingSlot*>(slots) + (static_cast<size_t>(from) * members_ + to) * kWords;
}

}  // namespace ringzero
