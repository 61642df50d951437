// ShmRings: words between the workers of a host, through rings in memory that all of them map, and
// a doorbell for each worker.
//
//   RZ_ASSIGN_OR_RETURN(std::shared_ptr<ShmRings> rings, ShmRings::Create(members));
//   RingWriter to1 = rings->Writer(0, 1);          // member 0's way to member 1
//   if (to1.Push(word)) rings->bell(1).Ring();
//   RingReader from0 = rings->Reader(0, 1);        // in member 1
//   while (from0.Pop(word)) …;  from0.Publish();
//
// One ring per ordered pair, with one writer and one reader, each of one thread at a time. A word
// is published by its number, written last: a writer that is killed in the middle leaves nothing
// half written to be read. There is no lock. What a reader pops is whatever the other process
// wrote: to be checked by the caller.
#ifndef RINGZERO_P2P_SHM_SHM_RINGS_H_
#define RINGZERO_P2P_SHM_SHM_RINGS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "p2p/mapping.h"

namespace ringzero {

using RingWord = std::array<std::byte, 56>;

// Where one worker sleeps. Zeroed memory is one.
class alignas(64) Doorbell {
 public:
  // Wakes the sleeper if it says that it sleeps; a load if not. What was written before (to memory
  // that its `has_news` reads by a sequentially consistent load) is not slept through.
  void Ring();
  // Whatever the sleeper says: for one whose waker may have died between the two halves of Ring.
  void RingForSure();
  // Sleeps until it is rung, at most `limit`, unless has_news() says that it need not.
  template <typename HasNews>
  void Sleep(std::chrono::nanoseconds limit, const HasNews& has_news) {
    sleeping_.store(1, std::memory_order_seq_cst);
    if (!has_news()) Wait(limit);
    sleeping_.store(0, std::memory_order_relaxed);
  }

 private:
  void Wait(std::chrono::nanoseconds limit);
  std::atomic<uint32_t> sleeping_;  // a futex
};

// A word and, written after it, its number from 1.
struct alignas(64) RingSlot {
  RingWord word;
  std::atomic<uint64_t> number;
};
// What the reader tells the writer.
struct alignas(64) RingEnd {
  std::atomic<uint64_t> read;        // so many words
  std::atomic<uint32_t> wants_room;  // set by the writer
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(RingSlot) == 64);

class RingWriter {
 public:
  RingWriter(RingSlot* slots, RingEnd* end) : slots_(slots), end_(end) {}
  // False when the ring is full.
  bool Push(const RingWord& word);
  bool HasRoom();
  // The reader rings our bell when it has made room. True if there is some already.
  bool AskForRoom();

 private:
  RingSlot* slots_;
  RingEnd* end_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;  // as last seen
};

class RingReader {
 public:
  RingReader(const RingSlot* slots, RingEnd* end) : slots_(slots), end_(end) {}
  bool HasWord() const;
  bool Pop(RingWord& word);
  // Gives the room of what was popped back. True if the writer's bell must be rung.
  bool Publish();

 private:
  const RingSlot* slots_;
  RingEnd* end_;
  uint64_t read_ = 0;
};

class ShmRings {
 public:
  static constexpr size_t kWords = 512;  // in a ring

  // As PulseBoard::Create (p2p/heartbeat.h).
  static absl::StatusOr<std::shared_ptr<ShmRings>> Create(int members,
                                                          const UniqueFd& file = UniqueFd());
  static size_t FileBytes(int members);

  // Each to be called once in all processes together. They and bells live as long as this.
  RingWriter Writer(int from, int to) { return RingWriter(SlotsOf(from, to), &EndOf(from, to)); }
  RingReader Reader(int from, int to) { return RingReader(SlotsOf(from, to), &EndOf(from, to)); }
  Doorbell& bell(int member);

 private:
  ShmRings(int members, Mapping memory) : members_(members), memory_(std::move(memory)) {}
  RingSlot* SlotsOf(int from, int to);
  RingEnd& EndOf(int from, int to);

  const int members_;
  const Mapping memory_;  // bells, ends, slots
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SHM_SHM_RINGS_H_
