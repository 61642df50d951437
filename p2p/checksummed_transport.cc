// Blocks with 8 bytes behind their payload, and what is written into these.
#include <cstring>

#include "absl/strings/str_format.h"
#include "base/crypto.h"
#include "base/status.h"
#include "p2p/transport_decorator.h"

namespace ringzero {
namespace {

constexpr size_t kRoom = sizeof(uint64_t);

class ChecksummedTransport final : public TransportDecorator {
 public:
  ChecksummedTransport(std::unique_ptr<Transport> transport,
                       std::function<std::string(MessageKey)> describe)
      : TransportDecorator(std::move(transport)), describe_(std::move(describe)) {}
  ~ChecksummedTransport() override { DestroyInner(); }

  std::string name() const override { return "checksummed " + inner().name(); }
  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryUse use) override {
    RZ_ASSIGN_OR_RETURN(Buffer whole, inner().Allocate(bytes + kRoom, use));
    const std::span<std::byte> payload = whole.as<std::byte>().first(bytes);
    return Buffer(payload, std::make_shared<const Buffer>(std::move(whole)));
  }
  // The checksum lies behind the payload: Allocate has made room for it.
  absl::Status Send(WorkerId to, MessageKey key, std::span<const std::byte> block,
                    Done sent) override {
    const uint64_t checksum = Checksum(block);
    // What is relayed has it already, and may be read at the same time.
    auto* const room = const_cast<std::byte*>(block.data() + block.size());
    if (std::memcmp(room, &checksum, kRoom) != 0) std::memcpy(room, &checksum, kRoom);
    return inner().Send(to, key, {block.data(), block.size() + kRoom}, std::move(sent));
  }

  absl::Status Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                    Done arrived) override {
    auto check = [this, from, key, block, arrived = std::move(arrived)](const absl::Status& came) {
      if (!came.ok()) return arrived(came);
      uint64_t expected = 0;
      std::memcpy(&expected, block.data() + block.size(), kRoom);
      arrived(Compare(from, key, expected, Checksum(block)));
    };
    return inner().Post(from, key, {block.data(), block.size() + kRoom}, std::move(check));
  }

  // What is lent has no checksum.
  absl::Status SendWord(WorkerId, MessageKey) override { return NoWords(); }
  absl::Status ExpectWord(WorkerId, MessageKey, Done) override { return NoWords(); }
  MappedMemory MemoryOf(WorkerId, MemoryUse) override { return {}; }
  TransportStats stats() const override {
    TransportStats stats = inner().stats();
    // What its user sent.
    for (size_t kind = 0; kind < stats.bytes_sent.size(); ++kind) {
      stats.bytes_sent[kind] -= kRoom * stats.messages_sent[kind];
    }
    return stats;
  }

 private:
  // DataLoss, which has ended the transport, unless these are equal.
  absl::Status Compare(WorkerId from, MessageKey key, uint64_t expected, uint64_t found) {
    if (expected == found) return absl::OkStatus();
    absl::Status damage = absl::DataLossError(absl::StrFormat(
        "worker %d sent worker %d \"%s\", which was damaged on its way: its checksum is %016x, and "
        "should be %016x",
        from.value, self().value, describe_(key), found, expected));
    inner().Abort(damage);
    return damage;
  }

  const std::function<std::string(MessageKey)> describe_;
};

}  // namespace

TransportOptions WithChecksumRoom(TransportOptions options) {
  // A block takes 128 bytes at least, and 64 more at most: half of all. Pages that are never
  // touched cost nothing.
  for (size_t* bytes : {&options.parameter_bytes, &options.sum_bytes}) {
    *bytes += AlignPayload(*bytes / 2);
  }
  return options;
}

std::unique_ptr<Transport> MakeChecksummed(std::unique_ptr<Transport> transport,
                                           std::function<std::string(MessageKey)> describe) {
  return std::make_unique<ChecksummedTransport>(std::move(transport), std::move(describe));
}

}  // namespace ringzero
