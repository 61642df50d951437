// Messages of the ring of shards, and waits for them.
#include "zero/shard_ring.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "zero/gradient_sum.h"

namespace ringzero {
namespace {

enum Kind : uint8_t { kSums, kComplete, kVersions };

constexpr auto kPoll = std::chrono::microseconds(100);

MessageKey KeyOf(Kind kind, int64_t update, int lap, int shard) {
  return {.kind = kind, .tag = (uint64_t(update) << 32) | (uint64_t(lap) << 16) | uint64_t(shard)};
}

// One buffer as an arena counts it (TransportOptions).
size_t Block(int64_t bytes) {
  return bytes == 0 ? 0 : AlignPayload(static_cast<size_t>(bytes)) + kPayloadAlignment;
}

// What an arrival brings to who waits for it. Shared: it may come after the wait has ended.
template <typename Handle>
struct Slot {
  std::mutex mutex;
  std::condition_variable arrived;
  std::optional<absl::StatusOr<Handle>> value;
};

}  // namespace

ShardRing::ShardRing(const FlatShards& shards, std::unique_ptr<Transport> transport,
                     std::chrono::milliseconds wait_timeout)
    : shards_(shards), transport_(std::move(transport)), wait_timeout_(wait_timeout) {}

ShardRing::~ShardRing() { transport_->Close().IgnoreError(); }

TransportOptions ShardRing::Needs(const FlatShards& shards, WorkerId self) {
  TransportOptions options;
  // Of a shard there are one sum and two versions, wherever they are; a sum that a single worker
  // sends to itself holds the slot that it came by.
  options.slots = {shards.count() + 1, shards.count() + 1, 2 * shards.count()};
  for (int shard = 0; shard < shards.count(); ++shard) {
    const StageLayout& layout = shards.layouts[shard];
    if (shard == self.value) options.parameter_bytes = 2 * Block(layout.parameter_bytes);
    if (self.value == 0) options.sum_bytes += Block(layout.sum_bytes);
    options.received_parameter_bytes += 2 * Block(layout.parameter_bytes);
    options.received_sum_bytes += 2 * Block(layout.sum_bytes);
  }
  return options;
}

absl::Status ShardRing::Fail(absl::Status why) {
  transport_->Abort(why);
  return why;
}

absl::Status ShardRing::TooLong(const std::string& what) {
  return Fail(absl::DeadlineExceededError(
      absl::StrCat("worker ", self().value, " waited longer than ",
                   absl::FormatDuration(absl::FromChrono(wait_timeout_)), " for ", what)));
}

template <typename Handle>
absl::StatusOr<Handle> ShardRing::Receive(WorkerId from, MessageKey key, size_t bytes,
                                          const std::string& what) {
  const auto slot = std::make_shared<Slot<Handle>>();
  const auto arrival = [slot](absl::StatusOr<Handle> handle) {
    const std::lock_guard lock(slot->mutex);
    slot->value = std::move(handle);
    slot->arrived.notify_one();
  };
  if constexpr (std::is_same_v<Handle, Buffer>) {
    RZ_RETURN_IF_ERROR(transport_->ExpectOwned(from, key, bytes, arrival));
  } else {
    RZ_RETURN_IF_ERROR(transport_->ExpectShared(from, key, bytes, arrival));
  }
  std::unique_lock lock(slot->mutex);
  if (!slot->arrived.wait_for(lock, wait_timeout_, [&] { return slot->value.has_value(); })) {
    lock.unlock();
    return TooLong(absl::StrCat(what, " from worker ", from.value));
  }
  return std::move(*slot->value);
}

absl::StatusOr<Buffer> ShardRing::TakeSum(int shard, const Turn& turn) {
  const StageLayout& layout = shards_.layouts[shard];
  const auto bytes = static_cast<size_t>(layout.sum_bytes);
  const bool first = self().value == 0;
  if (!first || turn.lap > 0) {
    const int lap = first ? turn.lap - 1 : turn.lap;
    return Receive<Buffer>(
        WorkerId(first ? workers() - 1 : self().value - 1), KeyOf(kSums, turn.update, lap, shard),
        bytes,
        absl::StrCat("the sum of shard ", shard, " in update ", turn.update, ", lap ", turn.lap));
  }
  // The one of the update before may still be with its owner.
  for (const Deadline deadline(wait_timeout_);;) {
    absl::StatusOr<Buffer> sum = transport_->AllocateNumbered(shard, bytes);
    if (sum.ok()) StartSum(layout, sum->data());
    if (sum.ok() || !absl::IsResourceExhausted(sum.status())) return sum;
    if (const absl::Status status = transport_->status(); !status.ok()) return status;
    if (deadline.Left() == std::chrono::milliseconds(0)) {
      return TooLong(absl::StrCat("the memory of shard ", shard, "'s sum before update ",
                                  turn.update, ", which worker ", shard, " has"));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

absl::Status ShardRing::PassSum(int shard, const Turn& turn, Buffer sum) {
  const bool last = self().value == workers() - 1;
  if (last && turn.lap + 1 == turn.laps) {
    return transport_->Give(WorkerId(shard), KeyOf(kComplete, turn.update, 0, shard),
                            std::move(sum));
  }
  return transport_->Give(WorkerId(last ? 0 : self().value + 1),
                          KeyOf(kSums, turn.update, turn.lap, shard), std::move(sum));
}

absl::StatusOr<Buffer> ShardRing::TakeCompleteSum(int64_t update) {
  const int shard = self().value;
  return Receive<Buffer>(WorkerId(workers() - 1), KeyOf(kComplete, update, 0, shard),
                         static_cast<size_t>(shards_.layouts[shard].sum_bytes),
                         absl::StrCat("the complete sum of its shard in update ", update));
}

absl::StatusOr<Buffer> ShardRing::AllocateVersion() {
  const StageLayout& layout = shards_.layouts[self().value];
  return transport_->Allocate(static_cast<size_t>(layout.parameter_bytes), MemoryUse::kParameters);
}

absl::StatusOr<Buffer> ShardRing::Reclaim(SharedBuffer version, int64_t update) {
  for (const Deadline deadline(wait_timeout_); version.holders() > 1;) {
    if (const absl::Status status = transport_->status(); !status.ok()) return status;
    if (deadline.Left() == std::chrono::milliseconds(0)) {
      return TooLong(absl::StrCat("the others to let go of its shard before update ", update));
    }
    std::this_thread::sleep_for(kPoll);
  }
  return std::move(version).Unseal();
}

absl::Status ShardRing::Spread(
    const SharedBuffer& mine, int64_t update,
    const std::function<void(int shard, const std::byte* parameters)>& show) {
  const int all = workers(), left = (self().value + all - 1) % all,
            right = (self().value + 1) % all;
  if (all > 1 && mine) {
    RZ_RETURN_IF_ERROR(
        transport_->Share(WorkerId(right), KeyOf(kVersions, update, 0, self().value), mine));
  }
  for (int hops = 1; hops < all; ++hops) {
    const int shard = (self().value + all - hops) % all;
    const auto bytes = static_cast<size_t>(shards_.layouts[shard].parameter_bytes);
    if (bytes == 0) continue;
    const MessageKey key = KeyOf(kVersions, update, 0, shard);
    RZ_ASSIGN_OR_RETURN(
        SharedBuffer version,
        Receive<SharedBuffer>(WorkerId(left), key, bytes,
                              absl::StrCat("shard ", shard, " after update ", update)));
    if (right != shard) RZ_RETURN_IF_ERROR(transport_->Share(WorkerId(right), key, version));
    show(shard, version.data());
  }
  return absl::OkStatus();
}

}  // namespace ringzero
