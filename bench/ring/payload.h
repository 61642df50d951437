// The contents of ring_perf's messages: the types that it counts in, the data that it sends, and
// how it finds wrong elements, in whichever memory they lie.
//
//   FillData({.worker = WorkerId(2), .repetition = 7}, bytes);
//   int64_t wrong = CountWrong(ElementType::kFloat, {...}, bytes);     // 0
//
//   Payload payload(self, HostMemory());                           // or MakeCudaMemory's
//   RZ_RETURN_IF_ERROR(payload.FillData({self, 7}, buffer));
//   RZ_ASSIGN_OR_RETURN(int64_t wrong, payload.CountWrong(type, {self, 7}, bytes));
//
// Every element depends on (worker, repetition, position), so that a stale, shifted, foreign or
// damaged element has a wrong value. Functions are pure; a Payload is one thread's at a time.
#ifndef RINGZERO_BENCH_RING_PAYLOAD_H_
#define RINGZERO_BENCH_RING_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/ids.h"
#include "p2p/arena.h"

namespace ringzero {

enum class ElementType {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kHalf,
  kFloat,
  kDouble,
  kBfloat16
};

std::string ToString(ElementType type);  // nccl-tests' names: "float", "bfloat16", …
std::optional<ElementType> ParseElementType(const std::string& name);
std::vector<ElementType> AllElementTypes();
size_t SizeOf(ElementType type);
// Whether this program can add it (half and bfloat16: no).
bool CanAdd(ElementType type);

struct DataKey {
  WorkerId worker{0};
  uint64_t repetition = 0;
  int times = 1;  // of sums: how often each worker adds its term
};

// Arbitrary bits: for modes that only pass on.
void FillData(const DataKey& key, std::span<std::byte> bytes);
// How many elements of `type` are not what FillData makes of `key`.
int64_t CountWrong(ElementType type, const DataKey& key, std::span<const std::byte> bytes);

// Small whole numbers, so that every sum of them is exact (or wraps around, the same everywhere).
void FillTerms(ElementType type, const DataKey& key, std::span<std::byte> bytes);
// sum += terms, element by element. CanAdd(type).
void AddTerms(ElementType type, std::span<const std::byte> terms, std::span<std::byte> sum);
// How many elements are not the sum of the terms of workers 0..key.worker.
int64_t CountWrongSums(ElementType type, const DataKey& key, std::span<const std::byte> bytes);

// What no fill makes: every byte 0xA5.
void Poison(std::span<std::byte> bytes);

// The functions above on payload: in place in host memory; for GPU memory, in host memory from or
// to which it is copied. So with a GPU only Make and Copy belong into timed loops, and sums do not.
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
