// Elements: the types that ring_perf counts in, the data it sends, and how it finds wrong elements.
//
//   FillData(ElementType::kFloat, {.worker = WorkerId(2), .repetition = 7}, bytes);
//   int64_t wrong = CountWrong(ElementType::kFloat, {...}, bytes);     // 0
//
// Every element depends on (worker, repetition, position), so that a stale, shifted, foreign or
// damaged element has a wrong value. Pure functions.
#ifndef RINGZERO_BENCH_RING_ELEMENT_H_
#define RINGZERO_BENCH_RING_ELEMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

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

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_ELEMENT_H_
