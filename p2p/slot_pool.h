// SlotPool: memory for many small objects of one type, used again instead of freed.
//
//   void* memory = pool.Take();   T* object = new (memory) T(…);
//   object->~T();   pool.Return(memory);
//
// Grows to the most that are ever alive at once. Return from any thread; one thread at a time
// takes, mostly without a lock. All must be returned before the pool's end.
#ifndef RINGZERO_P2P_SLOT_POOL_H_
#define RINGZERO_P2P_SLOT_POOL_H_

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <new>
#include <vector>

namespace ringzero {

class SlotPool {
 public:
  explicit SlotPool(size_t object_bytes) : object_bytes_(object_bytes) {}
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;
  ~SlotPool() {
    for (auto* each : {&free_, &returned_}) {
      for (void* memory : *each) ::operator delete(memory);
    }
  }

  void* Take() {
    if (free_.empty()) Refill();
    void* const memory = free_.back();
    free_.pop_back();
    return memory;
  }
  void Return(void* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    returned_.push_back(memory);
  }

 private:
  // Several at once: how many are out at a time depends on who runs when, and the first moment in
  // which it is one more must not cost an allocation each time.
  static constexpr size_t kAtFirst = 16;

  void Refill() {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.swap(returned_);
    if (!free_.empty()) return;
    const size_t count = std::max(made_, kAtFirst);
    made_ += count;
    for (auto* each : {&free_, &returned_}) each->reserve(made_);  // Return never allocates
    for (size_t i = 0; i < count; ++i) free_.push_back(::operator new(object_bytes_));
  }

  const size_t object_bytes_;
  std::vector<void*> free_;  // the taker's
  size_t made_ = 0;          // likewise
  std::mutex mutex_;         // a leaf: nothing is called with it held
  std::vector<void*> returned_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SLOT_POOL_H_
