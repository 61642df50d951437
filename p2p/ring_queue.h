// Queues that keep their memory, so that a steady one never allocates.
//
//   RingQueue<Awaited> queue;
//   queue.push_back(awaited);   queue.front();   queue.pop_front();
//   NumberedQueue<Sent> sent;
//   sent.Reach(7).key = key;   if (Sent* each = sent.Find(7)) …
//
// They grow by doubling and never shrink. Not thread-safe.
#ifndef RINGZERO_P2P_RING_QUEUE_H_
#define RINGZERO_P2P_RING_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ringzero {

template <typename T>
class RingQueue {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  T& front() { return items_[first_]; }
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

// Items by number. Numbers count up and wrap around.
template <typename T>
class NumberedQueue {
 public:
  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }
  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }
  uint32_t end() const { return begin_ + static_cast<uint32_t>(items_.size()); }

  // Null: it is gone, or not there yet.
  T* Find(uint32_t number) {
    return number - begin_ < items_.size() ? &items_[number - begin_] : nullptr;
  }
  // Makes the item and those before it, where they are not there yet. Not of one that is gone.
  T& Reach(uint32_t number) {
    while (number - begin_ >= items_.size()) items_.push_back(T());
    return items_[number - begin_];
  }
  void pop_front() {
    items_.pop_front();
    ++begin_;
  }
  // Numbers go on behind what was there.
  void clear() {
    while (!empty()) pop_front();
  }

 private:
  RingQueue<T> items_;
  uint32_t begin_ = 0;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_RING_QUEUE_H_
