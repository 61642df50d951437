// Stamp: what a lent block holds, written behind its bytes, where all who map the block see it.
//
//   stamp.Set(Stamp::kBeingWritten);  …;  stamp.Set(StampOf(Version(5)));   // whoever writes it
//   RZ_RETURN_IF_ERROR(stamp.Check(StampOf(Version(5))));                   // a reader, before and after
//
// Borrowers are not counted: the plan proves that a block is written only when nobody reads it
// (sharding/lent_uses.h). Were the proof wrong, training would go on with wrong numbers. A stamp makes
// that an error. It is a second net: on processors that reorder more than x86 does it may miss an
// overlap. Thread-safe.
#ifndef RINGZERO_ZERO_STAMP_H_
#define RINGZERO_ZERO_STAMP_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "base/buffer.h"
#include "base/status.h"
#include "sharding/label.h"

namespace ringzero {

class Stamp {
 public:
  static constexpr int64_t kBeingWritten = -1;

  // None: what is not lent. Checks pass.
  Stamp() = default;
  // Of a block with `bytes` of payload; memory for another kPayloadAlignment follows them.
  Stamp(std::byte* data, size_t bytes)
      : at_(reinterpret_cast<std::atomic<int64_t>*>(data + AlignPayload(bytes))) {}

  bool exists() const { return at_ != nullptr; }
  void Set(int64_t holds) const {
    if (at_ != nullptr) at_->store(holds, std::memory_order_release);
  }
  // Internal if the block holds something else.
  absl::Status Check(int64_t wanted) const {
    const int64_t holds = at_ == nullptr ? wanted : at_->load(std::memory_order_acquire);
    if (holds == wanted) return absl::OkStatus();
    return Internal("a lent block does not hold what is read: its stamp is ", holds, ", wanted ",
                    wanted);
  }

 private:
  static_assert(std::atomic<int64_t>::is_always_lock_free);
  std::atomic<int64_t>* at_ = nullptr;
};

// θ_{-1} is θ_0, in the same memory.
inline int64_t StampOf(Version label) { return std::max(label.value, 0); }

}  // namespace ringzero

#endif  // RINGZERO_ZERO_STAMP_H_
