// Translates Transport's calls into the mailbox's, and copies what cannot travel.
#include "p2p/mailbox_transport.h"

#include <cstring>

#include "base/status.h"

namespace ringzero {

absl::StatusOr<Buffer> MailboxTransport::Allocate(size_t bytes, MemoryUse use) {
  return MyArena(use).Allocate(bytes);
}

absl::StatusOr<Buffer> MailboxTransport::AllocateNumbered(int number, size_t bytes) {
  return MyArena(MemoryUse::kSums).AllocateNumbered(number, bytes);
}

absl::Status MailboxTransport::CopyIn(const Buffer& into, const std::byte* from) const {
  std::memcpy(into.data(), from, into.size());
  return absl::OkStatus();
}

absl::Status MailboxTransport::Send(WorkerId to, Parcel parcel, MemoryUse copy_into) {
  if (parcel.buffer && !CanCarry(parcel.buffer.cell()->root())) {
    const size_t bytes = parcel.buffer.size();
    RZ_ASSIGN_OR_RETURN(Buffer copy, Allocate(bytes, copy_into));
    RZ_RETURN_IF_ERROR(CopyIn(copy, parcel.buffer.data()));
    bytes_copied_.fetch_add(bytes, std::memory_order_relaxed);
    parcel.buffer = std::move(copy);
  }
  return mailbox_->Send(to, std::move(parcel));
}

absl::Status MailboxTransport::Share(WorkerId to, MessageKey key, SharedBuffer buffer) {
  return Send(to, {key, Ownership::kShared, Buffer(buffer.Detach())}, MemoryUse::kParameters);
}

absl::Status MailboxTransport::Give(WorkerId to, MessageKey key, Buffer buffer) {
  auto* block = buffer ? dynamic_cast<ArenaCell*>(buffer.cell()->root()) : nullptr;
  if (block != nullptr && block->arena().use() == MemoryUse::kParameters) {
    return InvalidArgument("memory for parameters is shared, never given (to worker ", to.value,
                           ", ", ToString(key), "): only its owner may write it");
  }
  return Send(to, {key, Ownership::kOwned, std::move(buffer)}, MemoryUse::kSums);
}

absl::Status MailboxTransport::Send(WorkerId to, MessageKey key, std::span<const std::byte> block,
                                    Done sent) {
  if (!IsMine(block)) {
    return InvalidArgument("a message to worker ", to.value, " (", ToString(key), ") of ",
                           block.size(), " bytes that are not of Allocate");
  }
  return mailbox_->Send(to, key, block, std::move(sent));
}

absl::Status MailboxTransport::Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                                    Done arrived) {
  return mailbox_->Post(from, key, block, std::move(arrived));
}

absl::Status MailboxTransport::SendWord(WorkerId to, MessageKey key) {
  return HasWords() ? mailbox_->SendWord(to, key) : Transport::SendWord(to, key);
}

absl::Status MailboxTransport::ExpectWord(WorkerId from, MessageKey key, Done arrival) {
  if (!HasWords()) return Transport::ExpectWord(from, key, std::move(arrival));
  auto word = [arrival = std::move(arrival)](const absl::StatusOr<Buffer>& got) {
    arrival(got.status());
  };
  return mailbox_->Expect(from, {key, Ownership::kWord, 0, std::move(word)});
}

absl::Status MailboxTransport::ExpectShared(WorkerId from, MessageKey key, size_t bytes,
                                            SharedArrival arrival) {
  return mailbox_->Expect(from, {key, Ownership::kShared, bytes, nullptr, std::move(arrival)});
}

absl::Status MailboxTransport::ExpectOwned(WorkerId from, MessageKey key, size_t bytes,
                                           OwnedArrival arrival) {
  return mailbox_->Expect(from, {key, Ownership::kOwned, bytes, std::move(arrival)});
}

TransportStats MailboxTransport::stats() const {
  TransportStats stats = mailbox_->stats();
  stats.numbered_bytes = sums_->numbered_bytes();
  stats.bytes_copied = bytes_copied_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace ringzero
