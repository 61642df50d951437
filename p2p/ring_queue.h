// A queue of numbered items that keeps its memory, so that a steady one never allocates.
//
//   NumberedQueue<Sent> sent;
//   sent.push_back(item);   sent[0].key;   sent.pop_front();
//   sent.Reach(7).key = key;   if (Sent* each = sent.Find(7)) …
//
// It grows by doubling and never shrinks. Not thread-safe.
#ifndef RINGZERO_P2P_RING_QUEUE_H_
#define RINGZERO_P2P_RING_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ringzero {

// Numbers count up and wrap around.
template <typename T>
class NumberedQueue {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // The i-th of those that are there.
  T& operator[](size_t i) { return items_[(begin_ + i) & (items_.size() - 1)]; }
  const T& operator[](size_t i) const { return items_[(begin_ + i) & (items_.size() - 1)]; }
  uint32_t end() const { return begin_ + static_cast<uint32_t>(size_); }

  // Null: it is gone, or not there yet.
  T* Find(uint32_t number) { return number - begin_ < size_ ? &(*this)[number - begin_] : nullptr; }
  // Makes the item and those before it, where they are not there yet. Not of one that is gone.
  T& Reach(uint32_t number) {
    while (number - begin_ >= size_) push_back(T());
    return (*this)[number - begin_];
  }
  void push_back(T item) {
    if (size_ == items_.size()) Grow();
    (*this)[size_++] = std::move(item);
  }
  void pop_front() {
    (*this)[0] = T();  // what it held goes now
    ++begin_;
    --size_;
  }
  // Numbers go on behind what was there.
  void clear() {
    while (!empty()) pop_front();
  }

 private:
  void Grow() {
    std::vector<T> larger(items_.empty() ? 8 : 2 * items_.size());  // a power of two
    for (size_t i = 0; i < size_; ++i) {
      larger[(begin_ + i) & (larger.size() - 1)] = std::move((*this)[i]);
    }
    items_.swap(larger);
  }

  std::vector<T> items_;  // each at its number modulo the size
  size_t size_ = 0;
  uint32_t begin_ = 0;  // the first's number
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_RING_QUEUE_H_
