// Cells that hide the last 8 bytes of their payload, and what is written into these.
#include "p2p/checksummed_transport.h"

#include <atomic>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "p2p/checksum.h"
#include "p2p/transport_decorator.h"

namespace ringzero {
namespace {

constexpr size_t kRoom = sizeof(uint64_t);

enum class Origin { kMine, kArrived };

// A payload without its checksum. Holds one holder of the inner handle's cell for all of its own.
class ChecksumCell final : public CountedCell {
 public:
  ChecksumCell(Buffer inner, Origin origin)
      : CountedCell(inner.data(), inner.size() - kRoom),
        inner_(std::move(inner)),
        origin_(origin) {}

  int holders() const override { return CountedCell::holders() + inner_.cell()->holders() - 1; }
  BufferCell* root() override { return inner_.cell()->root(); }

  Origin origin() const { return origin_; }
  uint64_t Compute() const { return Checksum({data(), size()}); }
  uint64_t Written() const {
    uint64_t checksum = 0;
    std::memcpy(&checksum, data() + size(), sizeof(checksum));
    return checksum;
  }
  // Readers of the same contents may be at it: written only when it is not there yet.
  void Write() {
    const uint64_t checksum = Compute();
    if (checksum != Written()) std::memcpy(data() + size(), &checksum, sizeof(checksum));
  }

  // The inner handle in exchange for `handle`; it moves with the last holder, so that a payload
  // with one never seems to have two.
  static Buffer Unwrap(Buffer handle) {
    auto* cell = static_cast<ChecksumCell*>(handle.cell());
    if (cell->CountedCell::holders() == 1) {
      Buffer inner = std::move(cell->inner_);
      handle.Detach();
      delete cell;
      return inner;
    }
    cell->inner_.cell()->AddHolder();
    return Buffer(cell->inner_.cell());
  }

 private:
  ~ChecksumCell() override = default;

  Buffer inner_;
  const Origin origin_;
};

class ChecksummedTransport final : public TransportDecorator {
 public:
  ChecksummedTransport(std::unique_ptr<Transport> transport, ChecksumOptions options)
      : TransportDecorator(std::move(transport)), options_(std::move(options)) {}
  ~ChecksummedTransport() override { DestroyInner(); }

  std::string name() const override { return "checksummed " + inner().name(); }
  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryUse use) override {
    RZ_ASSIGN_OR_RETURN(Buffer buffer, inner().Allocate(bytes + kRoom, use));
    return Buffer(new ChecksumCell(std::move(buffer), Origin::kMine));
  }
  absl::StatusOr<Buffer> AllocateNumbered(int number, size_t bytes) override {
    RZ_ASSIGN_OR_RETURN(Buffer buffer, inner().AllocateNumbered(number, bytes + kRoom));
    return Buffer(new ChecksumCell(std::move(buffer), Origin::kMine));
  }
  // The checksum lies behind the payload: Allocate has made room for it.
  absl::Status Send(WorkerId to, MessageKey key, std::span<const std::byte> block,
                    Done sent) override;
  absl::Status Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                    Done arrived) override;
  // What is lent has no checksum.
  absl::Status SendWord(WorkerId to, MessageKey key) override {
    return Transport::SendWord(to, key);
  }
  absl::Status ExpectWord(WorkerId from, MessageKey key, Done arrival) override {
    return Transport::ExpectWord(from, key, std::move(arrival));
  }
  MappedMemory MemoryOf(WorkerId, MemoryUse) override { return {}; }
  absl::Status Share(WorkerId to, MessageKey key, SharedBuffer buffer) override;
  absl::Status Give(WorkerId to, MessageKey key, Buffer buffer) override;
  absl::Status ExpectShared(WorkerId from, MessageKey key, size_t bytes,
                            SharedArrival arrival) override;
  absl::Status ExpectOwned(WorkerId from, MessageKey key, size_t bytes,
                           OwnedArrival arrival) override;
  TransportStats stats() const override {
    TransportStats stats = inner().stats();
    // What its user sent.
    for (size_t kind = 0; kind < stats.bytes_sent.size(); ++kind) {
      stats.bytes_sent[kind] -= kRoom * stats.messages_sent[kind];
    }
    stats.bytes_copied += bytes_copied_.load(std::memory_order_relaxed);
    return stats;
  }

 private:
  // `buffer` itself if it is a ChecksumCell's, else a copy that is.
  absl::StatusOr<Buffer> Checksummable(Buffer buffer, MemoryUse copy_into);
  // DataLoss, which has ended the transport, unless these are equal.
  absl::Status Compare(WorkerId from, MessageKey key, uint64_t expected, uint64_t found);
  // The payload that the user sees, or the error that has ended the transport.
  absl::StatusOr<Buffer> Check(WorkerId from, MessageKey key, Buffer arrived, Origin origin);

  const ChecksumOptions options_;
  std::atomic<uint64_t> bytes_copied_{0};
};

absl::StatusOr<Buffer> ChecksummedTransport::Checksummable(Buffer buffer, MemoryUse copy_into) {
  const std::span<const std::byte> payload = buffer.as<std::byte>();
  if (dynamic_cast<ChecksumCell*>(buffer.cell()) != nullptr) return buffer;
  RZ_ASSIGN_OR_RETURN(Buffer copy, Allocate(payload.size(), copy_into));
  std::memcpy(copy.data(), payload.data(), payload.size());
  bytes_copied_.fetch_add(payload.size(), std::memory_order_relaxed);
  return copy;
}

absl::Status ChecksummedTransport::Share(WorkerId to, MessageKey key, SharedBuffer buffer) {
  if (!buffer) return inner().Share(to, key, std::move(buffer));  // which says what is wrong
  RZ_ASSIGN_OR_RETURN(Buffer payload,
                      Checksummable(Buffer(buffer.Detach()), MemoryUse::kParameters));
  auto* cell = static_cast<ChecksumCell*>(payload.cell());
  // What is relayed has its checksum, and cannot be written.
  if (cell->origin() == Origin::kMine) cell->Write();
  return inner().Share(to, key, ChecksumCell::Unwrap(std::move(payload)).Seal());
}

absl::Status ChecksummedTransport::Give(WorkerId to, MessageKey key, Buffer buffer) {
  if (!buffer) return inner().Give(to, key, std::move(buffer));
  RZ_ASSIGN_OR_RETURN(Buffer payload, Checksummable(std::move(buffer), MemoryUse::kSums));
  static_cast<ChecksumCell*>(payload.cell())->Write();
  return inner().Give(to, key, ChecksumCell::Unwrap(std::move(payload)));
}

absl::StatusOr<Buffer> ChecksummedTransport::Check(WorkerId from, MessageKey key, Buffer arrived,
                                                   Origin origin) {
  RZ_CHECK(arrived.size() >= kRoom, ToString(key));
  Buffer payload(new ChecksumCell(std::move(arrived), origin));
  const auto* cell = static_cast<const ChecksumCell*>(payload.cell());
  RZ_RETURN_IF_ERROR(Compare(from, key, cell->Written(), cell->Compute()));
  return payload;
}

absl::Status ChecksummedTransport::Compare(WorkerId from, MessageKey key, uint64_t expected,
                                           uint64_t found) {
  if (expected == found) return absl::OkStatus();
  const absl::Status damage = absl::DataLossError(absl::StrFormat(
      "worker %d sent worker %d \"%s\", which was damaged on its way: its checksum is %016x, and "
      "should be %016x",
      from.value, self().value, options_.describe(key), found, expected));
  inner().Abort(damage);
  return damage;
}

absl::Status ChecksummedTransport::Send(WorkerId to, MessageKey key,
                                        std::span<const std::byte> block, Done sent) {
  const uint64_t checksum = Checksum(block);
  // What is relayed has it already, and may be read at the same time.
  auto* const room = const_cast<std::byte*>(block.data() + block.size());
  if (std::memcmp(room, &checksum, kRoom) != 0) std::memcpy(room, &checksum, kRoom);
  return inner().Send(to, key, {block.data(), block.size() + kRoom}, std::move(sent));
}

absl::Status ChecksummedTransport::Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                                        Done arrived) {
  auto check = [this, from, key, block, arrived = std::move(arrived)](const absl::Status& came) {
    if (!came.ok()) return arrived(came);
    uint64_t expected = 0;
    std::memcpy(&expected, block.data() + block.size(), kRoom);
    arrived(Compare(from, key, expected, Checksum(block)));
  };
  return inner().Post(from, key, {block.data(), block.size() + kRoom}, std::move(check));
}

absl::Status ChecksummedTransport::ExpectShared(WorkerId from, MessageKey key, size_t bytes,
                                                SharedArrival arrival) {
  auto check = [this, from, key, arrival = std::move(arrival)](absl::StatusOr<SharedBuffer> got) {
    if (!got.ok()) return arrival(got.status());
    absl::StatusOr<Buffer> payload = Check(from, key, Buffer(got->Detach()), Origin::kArrived);
    if (!payload.ok()) return arrival(payload.status());
    arrival(SharedBuffer(payload->Detach()));
  };
  return inner().ExpectShared(from, key, bytes + kRoom, std::move(check));
}

absl::Status ChecksummedTransport::ExpectOwned(WorkerId from, MessageKey key, size_t bytes,
                                               OwnedArrival arrival) {
  auto check = [this, from, key, arrival = std::move(arrival)](absl::StatusOr<Buffer> got) {
    // Whoever has it may write it, and share it then.
    arrival(got.ok() ? Check(from, key, *std::move(got), Origin::kMine) : std::move(got));
  };
  return inner().ExpectOwned(from, key, bytes + kRoom, std::move(check));
}

}  // namespace

TransportOptions WithChecksumRoom(TransportOptions options) {
  // A block takes 128 bytes at least, and 64 more at most: half of all. Pages that are never
  // touched cost nothing.
  for (size_t* bytes : {&options.parameter_bytes, &options.sum_bytes,
                        &options.received_parameter_bytes, &options.received_sum_bytes}) {
    *bytes += AlignPayload(*bytes / 2);
  }
  return options;
}

std::unique_ptr<Transport> MakeChecksummed(std::unique_ptr<Transport> transport,
                                           ChecksumOptions options) {
  return std::make_unique<ChecksummedTransport>(std::move(transport), std::move(options));
}

}  // namespace ringzero
