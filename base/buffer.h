// Memory that travels: a Buffer has one holder and may be written, a SharedBuffer has many and may
// not.
//
//   Buffer sum = ...;                                   // from a pool (p2p::Transport::Allocate)
//   SharedBuffer version = std::move(sum).Seal();       // immutable from now on
//   SharedBuffer reader = version;                      // one more holder, no copy
//   absl::StatusOr<Buffer> again = std::move(version).Unseal();   // error while `reader` lives
//
// The types say it: parameters are shared, sums are owned. Both types are handles on a BufferCell.
// The cell counts its holders (across processes, if its pool does). When the last holder goes, the
// cell returns its memory to the pool. Handles are not thread-safe; cells are: copies of one
// SharedBuffer may be used and dropped on any threads. Payloads begin at a multiple of 64 bytes.
#ifndef RINGZERO_BASE_BUFFER_H_
#define RINGZERO_BASE_BUFFER_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

namespace ringzero {

inline constexpr size_t kPayloadAlignment = 64;

// Rounds up to a multiple of kPayloadAlignment.
constexpr size_t AlignPayload(size_t bytes) {
  return (bytes + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
}

// One block of memory and the count of its holders; made and owned by a pool. Thread-safe.
class BufferCell {
 public:
  virtual ~BufferCell() = default;
  virtual void AddHolder() = 0;
  // The last holder's drop gives the memory back to its pool; `this` must not be used afterwards.
  virtual void DropHolder() = 0;
  virtual int holders() const = 0;
  // The cell that owns the memory: a transport's wrapper (a receive slot) names the cell it wraps.
  virtual BufferCell* root() { return this; }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 protected:
  BufferCell(std::byte* data, size_t size) : data_(data), size_(size) {}

  std::byte* data_;
  size_t size_;  // bytes
};

// A cell that its last holder deletes; the memory goes with the cell.
class CountedCell : public BufferCell {
 public:
  void AddHolder() override { holders_.fetch_add(1, std::memory_order_relaxed); }
  void DropHolder() override {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  int holders() const override { return holders_.load(std::memory_order_acquire); }

 protected:
  using BufferCell::BufferCell;

 private:
  std::atomic<int> holders_{1};
};

// The base of Buffer and SharedBuffer: one holder of a cell, or of no cell (after a move).
class BufferHandle {
 public:
  explicit operator bool() const { return cell_ != nullptr; }
  size_t size() const { return cell_->size(); }
  void Reset();
  // For transports; Detach moves the holder to the caller.
  BufferCell* cell() const { return cell_; }
  BufferCell* Detach();

 protected:
  BufferHandle() = default;
  explicit BufferHandle(BufferCell* cell) : cell_(cell) {}
  BufferHandle(BufferHandle&& other) noexcept : cell_(other.Detach()) {}
  ~BufferHandle() { Reset(); }
  // For operator=: its argument is a copy, and the end of the copy releases the cell held before.
  void Swap(BufferHandle& other) noexcept { std::swap(cell_, other.cell_); }

 private:
  BufferCell* cell_ = nullptr;
};

class SharedBuffer;

// Move-only, mutable, exactly one holder.
class Buffer : public BufferHandle {
 public:
  Buffer() = default;
  // Takes over one holder of `cell` (already counted).
  explicit Buffer(BufferCell* cell) : BufferHandle(cell) {}
  Buffer(Buffer&& other) noexcept = default;
  Buffer& operator=(Buffer other) noexcept {
    Swap(other);
    return *this;
  }

  std::byte* data() const { return cell()->data(); }
  // The whole payload as values of T (size / sizeof(T) of them).
  template <typename T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data()), size() / sizeof(T)};
  }
  // Freezes the contents; this handle becomes empty.
  SharedBuffer Seal() &&;
};

// Copyable, immutable, counted.
class SharedBuffer : public BufferHandle {
 public:
  SharedBuffer() = default;
  explicit SharedBuffer(BufferCell* cell) : BufferHandle(cell) {}  // takes over one holder
  SharedBuffer(const SharedBuffer& other) : BufferHandle(other.cell()) {
    if (cell() != nullptr) cell()->AddHolder();
  }
  SharedBuffer(SharedBuffer&& other) noexcept = default;
  SharedBuffer& operator=(SharedBuffer other) noexcept {
    Swap(other);
    return *this;
  }

  const std::byte* data() const { return cell()->data(); }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data()), size() / sizeof(T)};
  }
  int holders() const { return cell()->holders(); }
  // Writable again, in place. FailedPrecondition (and *this unchanged) unless this is the only
  // holder.
  absl::StatusOr<Buffer> Unseal() &&;
};

// A buffer of ordinary, zeroed, 64-byte aligned memory of this process. Throws std::bad_alloc, as
// operator new does.
Buffer MakeHeapBuffer(size_t bytes);

// A buffer of memory that is somebody else's, who keeps it as long as the buffer or `keeper` lives.
Buffer BorrowBuffer(std::span<std::byte> memory, std::shared_ptr<const void> keeper = nullptr);

}  // namespace ringzero

#endif  // RINGZERO_BASE_BUFFER_H_
