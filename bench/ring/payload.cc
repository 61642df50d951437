// Fills by a counter-based mix of bits, compares element by element; stages what is not the host's.
#include "bench/ring/payload.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/philox.h"
#include "base/status.h"

namespace ringzero {
namespace {

struct TypeFacts {
  const char* name;
  size_t bytes;
};

// In the order of ElementType.
constexpr std::array<TypeFacts, 10> kTypes = {{{"int8", 1},
                                               {"uint8", 1},
                                               {"int32", 4},
                                               {"uint32", 4},
                                               {"int64", 8},
                                               {"uint64", 8},
                                               {"half", 2},
                                               {"float", 4},
                                               {"double", 8},
                                               {"bfloat16", 2}}};

uint64_t Seed(const DataKey& key) {
  return MixKeys({static_cast<uint64_t>(key.worker.value), key.repetition});
}

uint64_t Word(uint64_t seed, uint64_t position) { return SplitMix64(seed + position); }

// 0..15: what a worker adds at one position; a float holds the sum of a million workers exactly.
uint64_t Term(uint64_t seed, uint64_t position) { return Word(seed, position) & 15; }

template <typename F>
auto WithAddable(ElementType type, F&& visit) {
  switch (type) {
    case ElementType::kInt8:
    case ElementType::kUint8: return visit(uint8_t{});  // wraps around; the same bits
    case ElementType::kInt32:
    case ElementType::kUint32: return visit(uint32_t{});
    case ElementType::kInt64:
    case ElementType::kUint64: return visit(uint64_t{});
    case ElementType::kDouble: return visit(double{});
    default: return visit(float{});
  }
}

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

std::span<std::byte> Bytes(const Buffer& buffer) { return {buffer.data(), buffer.size()}; }

}  // namespace

std::string ToString(ElementType type) { return kTypes[static_cast<size_t>(type)].name; }
size_t SizeOf(ElementType type) { return kTypes[static_cast<size_t>(type)].bytes; }

std::optional<ElementType> ParseElementType(const std::string& name) {
  for (const ElementType type : AllElementTypes()) {
    if (name == ToString(type)) return type;
  }
  return std::nullopt;
}

std::vector<ElementType> AllElementTypes() {
  std::vector<ElementType> types;
  for (size_t i = 0; i < kTypes.size(); ++i) types.push_back(static_cast<ElementType>(i));
  return types;
}

bool CanAdd(ElementType type) {
  return type != ElementType::kHalf && type != ElementType::kBfloat16;
}

void FillData(const DataKey& key, std::span<std::byte> bytes) {
  const uint64_t seed = Seed(key);
  for (size_t at = 0, position = 0; at < bytes.size(); at += sizeof(uint64_t), ++position) {
    const uint64_t word = Word(seed, position);
    std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), bytes.size() - at));
  }
}

int64_t CountWrong(ElementType type, const DataKey& key, std::span<const std::byte> bytes) {
  const uint64_t seed = Seed(key);
  const size_t size = SizeOf(type);
  int64_t wrong = 0;
  for (size_t at = 0, position = 0; at < bytes.size(); at += sizeof(uint64_t), ++position) {
    const uint64_t word = Word(seed, position);
    const size_t length = std::min(sizeof(word), bytes.size() - at);
    if (std::memcmp(bytes.data() + at, &word, length) == 0) continue;
    const auto* expected = reinterpret_cast<const std::byte*>(&word);
    for (size_t i = 0; i < length; i += size) {
      const size_t part = std::min(size, length - i);
      wrong += std::memcmp(bytes.data() + at + i, expected + i, part) != 0;
    }
  }
  return wrong;
}

void FillTerms(ElementType type, const DataKey& key, std::span<std::byte> bytes) {
  const uint64_t seed = Seed(key);
  WithAddable(type, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      const T value = static_cast<T>(Term(seed, i));
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
}

void AddTerms(ElementType type, std::span<const std::byte> terms, std::span<std::byte> sum) {
  WithAddable(type, [&](auto zero) {
    using T = decltype(zero);
    // Payloads begin at multiples of 64 bytes and hold values of this type alone.
    const T* from = reinterpret_cast<const T*>(terms.data());
    T* to = reinterpret_cast<T*>(sum.data());
    const size_t count = sum.size() / sizeof(T);
    for (size_t i = 0; i < count; ++i) to[i] = static_cast<T>(to[i] + from[i]);
  });
}

int64_t CountWrongSums(ElementType type, const DataKey& key, std::span<const std::byte> bytes) {
  std::vector<uint64_t> seeds;
  for (int w = 0; w <= key.worker.value; ++w) {
    seeds.push_back(Seed({.worker = WorkerId(w), .repetition = key.repetition}));
  }
  return WithAddable(type, [&](auto zero) {
    using T = decltype(zero);
    int64_t wrong = 0;
    for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      uint64_t sum = 0;
      for (const uint64_t seed : seeds) sum += Term(seed, i);
      sum *= static_cast<uint64_t>(key.times);
      wrong += Load<T>(bytes.data() + i * sizeof(T)) != static_cast<T>(sum);
    }
    return wrong;
  });
}

void Poison(std::span<std::byte> bytes) { std::memset(bytes.data(), 0xA5, bytes.size()); }

absl::StatusOr<Buffer> Payload::Make(size_t bytes) const {
  if (in_place()) return MakeHeapBuffer(bytes);
  const size_t all = AlignPayload(bytes) + kPayloadAlignment;
  RZ_ASSIGN_OR_RETURN(Mapping data, memory_.map(all));
  // The buffer keeps the arena alive.
  return Arena::Create(self_, MemoryUse::kSums, std::move(data))->Allocate(bytes);
}

absl::Status Payload::Copy(const Buffer& into, const std::byte* from) const {
  if (!in_place()) return memory_.copy(into.data(), from, into.size());
  std::memcpy(into.data(), from, into.size());
  return absl::OkStatus();
}

template <typename Fill>
absl::Status Payload::Write(const Buffer& into, const Fill& fill) {
  if (in_place()) {
    fill(Bytes(into));
    return absl::OkStatus();
  }
  staging_.resize(into.size());
  fill(std::span<std::byte>(staging_));
  return memory_.copy(into.data(), staging_.data(), staging_.size());
}

absl::StatusOr<std::span<const std::byte>> Payload::Read(std::span<const std::byte> bytes) {
  if (in_place()) return bytes;
  staging_.resize(bytes.size());
  RZ_RETURN_IF_ERROR(memory_.copy(staging_.data(), bytes.data(), bytes.size()));
  return std::span<const std::byte>(staging_);
}

absl::Status Payload::FillData(const DataKey& key, const Buffer& into) {
  return Write(into, [&](std::span<std::byte> bytes) { ringzero::FillData(key, bytes); });
}

absl::Status Payload::FillTerms(ElementType type, const DataKey& key, const Buffer& into) {
  return Write(into, [&](std::span<std::byte> bytes) { ringzero::FillTerms(type, key, bytes); });
}

absl::Status Payload::Poison(const Buffer& into) {
  return Write(into, [](std::span<std::byte> bytes) { ringzero::Poison(bytes); });
}

absl::Status Payload::AddTerms(ElementType type, const Buffer& terms, const Buffer& sum) {
  if (in_place()) {
    ringzero::AddTerms(type, Bytes(terms), Bytes(sum));
    return absl::OkStatus();
  }
  RZ_ASSIGN_OR_RETURN(const std::span<const std::byte> read, Read(Bytes(terms)));
  const std::vector<std::byte> added(read.begin(), read.end());
  RZ_RETURN_IF_ERROR(Read(Bytes(sum)).status());
  ringzero::AddTerms(type, added, staging_);
  return memory_.copy(sum.data(), staging_.data(), staging_.size());
}

absl::StatusOr<int64_t> Payload::CountWrong(ElementType type, const DataKey& key,
                                            std::span<const std::byte> bytes) {
  RZ_ASSIGN_OR_RETURN(const std::span<const std::byte> read, Read(bytes));
  return ringzero::CountWrong(type, key, read);
}

absl::StatusOr<int64_t> Payload::CountWrongSums(ElementType type, const DataKey& key,
                                                std::span<const std::byte> bytes) {
  RZ_ASSIGN_OR_RETURN(const std::span<const std::byte> read, Read(bytes));
  return ringzero::CountWrongSums(type, key, read);
}

}  // namespace ringzero
