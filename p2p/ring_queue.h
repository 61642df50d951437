// RingQueue: a first-in-first-out queue that keeps its memory, so that a steady one never
// allocates.
//
//   RingQueue<Awaited> queue;
//   queue.push_back(awaited);   queue.front();   queue.pop_front();
//
// Grows by doubling and never shrinks. Not thread-safe.
#ifndef RINGZERO_P2P_RING_QUEUE_H_
#define RINGZERO_P2P_RING_QUEUE_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace ringzero {

template <typename T>
class RingQueue {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  T& front() { return items_[first_]; }
  const T& front() const { return items_[first_]; }
  T& operator[](size_t i) { return items_[(first_ + i) & (items_.size() - 1)]; }
  const T& operator[](size_t i) const { return items_[(first_ + i) & (items_.size() - 1)]; }

  void push_back(T item) {
    if (size_ == items_.size()) Grow();
    (*this)[size_++] = std::move(item);
  }
  void pop_front() {
    items_[first_] = T();  // what it held goes now
    first_ = (first_ + 1) & (items_.size() - 1);
    --size_;
  }
  void clear() {
    while (!empty()) pop_front();
  }

 private:
  void Grow() {
    std::vector<T> larger(items_.empty() ? 8 : 2 * items_.size());  // a power of two
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    items_.swap(larger);
    first_ = 0;
  }

  std::vector<T> items_;
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_RING_QUEUE_H_
