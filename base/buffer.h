// Memory that travels: a Buffer has one holder and may be written, a SharedBuffer has many and may
// not.
//
//   Buffer sum = ...;                              // p2p's Transport::Allocate, MakeHeapBuffer
//   SharedBuffer version = std::move(sum).Seal();  // immutable from now on
//   SharedBuffer reader = version;                 // one more holder, no copy
//
// The last holder's end gives the memory back to where it came from. Handles are not thread-safe;
// copies of one SharedBuffer may be used and dropped on any threads. Payloads begin at a multiple
// of 64 bytes.
#ifndef RINGZERO_BASE_BUFFER_H_
#define RINGZERO_BASE_BUFFER_H_

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace ringzero {

inline constexpr size_t kPayloadAlignment = 64;

// Rounds up to a multiple of kPayloadAlignment.
constexpr size_t AlignPayload(size_t bytes) {
  return (bytes + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
}

// The base of Buffer and SharedBuffer: memory and what keeps it; or none (after a move).
class BufferHandle {
 public:
  explicit operator bool() const { return memory_.data() != nullptr; }
  size_t size() const { return memory_.size(); }
  void Reset() { *this = BufferHandle(); }

 protected:
  BufferHandle() = default;
  BufferHandle(std::span<std::byte> memory, std::shared_ptr<const void> keeper)
      : memory_(memory), keeper_(std::move(keeper)) {}
  BufferHandle(const BufferHandle& other) = default;
  BufferHandle(BufferHandle&& other) noexcept
      : memory_(std::exchange(other.memory_, {})), keeper_(std::move(other.keeper_)) {}
  BufferHandle& operator=(const BufferHandle& other) = default;
  BufferHandle& operator=(BufferHandle&& other) noexcept {
    memory_ = std::exchange(other.memory_, {});
    keeper_ = std::move(other.keeper_);
    return *this;
  }
  ~BufferHandle() = default;

  std::span<std::byte> memory_;
  std::shared_ptr<const void> keeper_;
};

class SharedBuffer;

// Move-only, mutable, exactly one holder.
class Buffer : public BufferHandle {
 public:
  Buffer() = default;
  // Memory that is somebody else's, who keeps it as long as the buffer or `keeper` lives.
  explicit Buffer(std::span<std::byte> memory, std::shared_ptr<const void> keeper = nullptr)
      : BufferHandle(memory, std::move(keeper)) {}
  Buffer(Buffer&& other) noexcept = default;
  Buffer& operator=(Buffer&& other) noexcept = default;

  std::byte* data() const { return memory_.data(); }
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
  explicit SharedBuffer(Buffer&& sealed) : BufferHandle(std::move(sealed)) {}

  const std::byte* data() const { return memory_.data(); }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data()), size() / sizeof(T)};
  }
};

inline SharedBuffer Buffer::Seal() && { return SharedBuffer(std::move(*this)); }

// Zeroed memory of this process; whole pages begin at a page. Throws std::bad_alloc, as operator
// new does.
Buffer MakeHeapBuffer(size_t bytes);

}  // namespace ringzero

#endif  // RINGZERO_BASE_BUFFER_H_
