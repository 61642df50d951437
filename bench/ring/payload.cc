// Stages what is not the host's.
#include "bench/ring/payload.h"

#include <cstring>

#include "base/status.h"

namespace ringzero {
namespace {

std::span<std::byte> Bytes(const Buffer& buffer) { return {buffer.data(), buffer.size()}; }

}  // namespace

absl::StatusOr<Buffer> Payload::Make(size_t bytes) const {
  if (in_place()) return MakeHeapBuffer(bytes);
  const size_t all = AlignPayload(bytes) + kPayloadAlignment;
  RZ_ASSIGN_OR_RETURN(const std::shared_ptr<Arena> arena,
                      MakeArena(self_, memory_, MemoryUse::kSums, all));
  return arena->Allocate(bytes);  // which keeps the arena alive
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
