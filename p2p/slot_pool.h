// SlotPool: memory for many small objects of one type, used again instead of freed.
//
//   void* memory = pool.Take();   T* object = new (memory) T(…);
//   object->~T();   pool.Return(memory);
//
// Grows to the most that are ever alive at once. Thread-safe; all must be returned before its end.
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
    for (void* memory : free_) ::operator delete(memory);
  }

  void* Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) Make(std::max(made_, kAtFirst));
    void* const memory = free_.back();
    free_.pop_back();
    return memory;
  }
  void Return(void* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(memory);
  }

 private:
  // Several at once: how many are out at a time depends on who runs when, and the first moment in
  // which it is one more must not cost an allocation each time.
  static constexpr size_t kAtFirst = 16;

  void Make(size_t count) {        // mutex_ held
    free_.reserve(made_ + count);  // Return never allocates
    for (size_t i = 0; i < count; ++i) free_.push_back(::operator new(object_bytes_));
    made_ += count;
  }

  const size_t object_bytes_;
  std::mutex mutex_;  // a leaf: nothing is called with it held
  std::vector<void*> free_;
  size_t made_ = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SLOT_POOL_H_
