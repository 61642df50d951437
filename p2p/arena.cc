// Carves blocks, and keeps those that were given back; the host's memory, and files of it.
#include "p2p/arena.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

// Between blocks, so that two of them never share a cache line that a prefetcher pairs up. The
// stamp of a lent block lies there (zero/block_memory.h).
constexpr size_t kGapBytes = 64;

const char* NameOf(MemoryUse use) { return use == MemoryUse::kParameters ? "parameters" : "sums"; }

size_t SizeOf(MemoryUse use, const TransportOptions& options) {
  return use == MemoryUse::kParameters ? options.parameter_bytes : options.sum_bytes;
}

size_t CarvedBytes(size_t bytes) { return AlignPayload(std::max<size_t>(bytes, 1)) + kGapBytes; }

}  // namespace

absl::StatusOr<Buffer> Arena::Allocate(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::byte*>& free = free_[bytes];
  std::byte* block = nullptr;
  if (!free.empty()) {
    block = free.back();
    free.pop_back();
  } else if (CarvedBytes(bytes) <= data_.bytes() - carved_bytes_) {
    block = data_.data() + carved_bytes_;
    data_.BackByHugePages(carved_bytes_, carved_bytes_ + CarvedBytes(bytes));
    carved_bytes_ += CarvedBytes(bytes);
  } else {
    return absl::ResourceExhaustedError(absl::StrCat(
        "worker ", owner_.value, " has no room for ", bytes, " bytes of ", NameOf(use_), ": ",
        carved_bytes_, " of ", data_.bytes(), " bytes are cut into blocks"));
  }
  const auto give_back = [arena = shared_from_this(), bytes](std::byte* each) {
    const std::lock_guard<std::mutex> lock(arena->mutex_);
    arena->free_[bytes].push_back(each);
  };
  return Buffer({block, bytes}, std::shared_ptr<std::byte>(block, give_back));
}

PayloadMemory HostMemory() {
  return {.kind = MemoryKind::kHost,
          .map = Mapping::Anonymous,
          .copy = [](std::byte* to, const std::byte* from, size_t bytes) {
            std::memcpy(to, from, bytes);
            return absl::OkStatus();
          }};
}

absl::StatusOr<Arenas> MakeArenas(WorkerId owner, const PayloadMemory& memory,
                                  const TransportOptions& options) {
  Arenas arenas;
  for (const MemoryUse use : {MemoryUse::kParameters, MemoryUse::kSums}) {
    RZ_ASSIGN_OR_RETURN(Mapping data, memory.map(SizeOf(use, options)));
    arenas[static_cast<size_t>(use)] = Arena::Create(owner, use, std::move(data));
  }
  return arenas;
}

absl::StatusOr<ShmArenas> MakeShmArenas(WorkerId owner, const TransportOptions& options) {
  ShmArenas made;
  for (const MemoryUse use : {MemoryUse::kParameters, MemoryUse::kSums}) {
    auto& [arena, file] = made[static_cast<size_t>(use)];
    const size_t bytes = SizeOf(use, options);
    const std::string name = absl::StrCat("ringzero-worker-", owner.value, "-", NameOf(use));
    RZ_ASSIGN_OR_RETURN(file, MakeMemoryFile(name, bytes));
    RZ_ASSIGN_OR_RETURN(Mapping data, Mapping::OfFile(file, bytes, Mapping::Access::kReadWrite));
    // Nobody else can ever map parameters writable. A kernel before 5.1 does not know this seal;
    // there the peers' read-only mappings alone protect them.
    if (use == MemoryUse::kParameters) (void)fcntl(file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    (void)fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL);
    arena = Arena::Create(owner, use, std::move(data));
  }
  return made;
}

absl::StatusOr<MappedMemory> MapShmArena(MemoryUse use, size_t bytes, const UniqueFd& file) {
  const auto access =
      use == MemoryUse::kParameters ? Mapping::Access::kRead : Mapping::Access::kReadWrite;
  RZ_ASSIGN_OR_RETURN(Mapping data, Mapping::OfFile(file, bytes, access));
  const auto kept = std::make_shared<const Mapping>(std::move(data));
  return MappedMemory{{kept->data(), kept->bytes()}, kept};
}

}  // namespace ringzero
