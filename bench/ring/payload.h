// Payload: what ring_perf's workers do with the contents of messages, in whichever memory they lie.
//
//   Payload payload(self, HostMemory());                           // or MakeCudaMemory's
//   RZ_RETURN_IF_ERROR(payload.FillData({self, 7}, buffer));
//   RZ_ASSIGN_OR_RETURN(int64_t wrong, payload.CountWrong(type, {self, 7}, shared.data(), bytes));
//
// The functions of element.h: in place in host memory; for GPU memory, in host memory from or to
// which it is copied. So with a GPU only Make and Copy belong into timed loops, and sums do not.
// One thread at a time.
#ifndef RINGZERO_BENCH_RING_PAYLOAD_H_
#define RINGZERO_BENCH_RING_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/ids.h"
#include "bench/ring/element.h"
#include "p2p/payload_memory.h"

namespace ringzero {

class Payload {
 public:
  Payload(WorkerId self, PayloadMemory memory) : self_(self), memory_(std::move(memory)) {}

  // Memory of this worker's own, that never travels.
  absl::StatusOr<Buffer> Make(size_t bytes) const;
  // The first into.size() bytes from `from`.
  absl::Status Copy(const Buffer& into, const std::byte* from) const;

  absl::Status FillData(const DataKey& key, const Buffer& into);
  absl::Status FillTerms(ElementType type, const DataKey& key, const Buffer& into);
  absl::Status Poison(const Buffer& into);
  absl::Status AddTerms(ElementType type, const Buffer& terms, const Buffer& sum);
  absl::StatusOr<int64_t> CountWrong(ElementType type, const DataKey& key,
                                     std::span<const std::byte> bytes);
  absl::StatusOr<int64_t> CountWrongSums(ElementType type, const DataKey& key,
                                         std::span<const std::byte> bytes);

 private:
  bool in_place() const { return memory_.kind == MemoryKind::kHost; }
  template <typename Fill>
  absl::Status Write(const Buffer& into, const Fill& fill);
  // The bytes where the host can read them; valid until the next call.
  absl::StatusOr<std::span<const std::byte>> Read(std::span<const std::byte> bytes);

  const WorkerId self_;
  const PayloadMemory memory_;
  std::vector<std::byte> staging_;
};

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_PAYLOAD_H_
