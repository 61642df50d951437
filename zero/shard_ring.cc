// Messages of the ring of shards, and waits for them.
#include "zero/shard_ring.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"
#include "zero/gradient_sum.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

enum ShardMessage : uint8_t { kSums, kComplete, kVersions, kSquares };

constexpr auto kPoll = std::chrono::microseconds(100);

MessageKey KeyOf(ShardMessage kind, int64_t update, int lap, int shard) {
  return {.kind = kind, .tag = (uint64_t(update) << 32) | (uint64_t(lap) << 16) | uint64_t(shard)};
}

size_t SquaresBytes(const StageLayout& layout) {
  return static_cast<size_t>(layout.trainable_count) * sizeof(double);
}

// The end of the ring, with what was waited for unless the words are another worker's.
absl::Status InWait(const absl::Status& end, const std::string& what) {
  return IsEcho(end) ? end : Annotate(end, absl::StrCat("waiting for ", what));
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
  options.slots = {shards.count() + 1, shards.count() + 1, 2 * shards.count(), 2 * shards.count()};
  for (int shard = 0; shard < shards.count(); ++shard) {
    const StageLayout& layout = shards.layouts[shard];
    const size_t versions = 2 * (ArenaBytes(layout.parameter_bytes) +
                                 ArenaBytes(static_cast<int64_t>(SquaresBytes(layout))));
    if (shard == self.value) options.parameter_bytes = versions;
    if (self.value == 0) options.sum_bytes += ArenaBytes(layout.sum_bytes);
    options.received_parameter_bytes += versions;
    options.received_sum_bytes += 2 * ArenaBytes(layout.sum_bytes);
  }
  return options;
}

absl::Status ShardRing::TooLong(const std::string& what) {
  absl::Status why = absl::DeadlineExceededError(
      absl::StrCat("worker ", self().value, " waited longer than ",
                   absl::FormatDuration(absl::FromChrono(wait_timeout_)), " for ", what));
  Abort(why);
  return why;
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
    RZ_RETURN_IF_ERROR(InWait(transport_->ExpectOwned(from, key, bytes, arrival), what));
  } else {
    RZ_RETURN_IF_ERROR(InWait(transport_->ExpectShared(from, key, bytes, arrival), what));
  }
  std::unique_lock lock(slot->mutex);
  const auto came = [&] { return slot->value.has_value(); };
  if (!WaitUntil(lock, slot->arrived, Deadline(wait_timeout_), came)) {
    lock.unlock();
    return TooLong(absl::StrCat(what, " from worker ", from.value));
  }
  if (!slot->value->ok()) return InWait(slot->value->status(), what);
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
  RZ_ASSIGN_OR_RETURN(
      Buffer sum,
      AllocateWhenFree([&] { return transport_->AllocateNumbered(shard, bytes); },
                       absl::StrCat("the memory of shard ", shard, "'s sum before update ",
                                    turn.update, ", which worker ", shard, " has")));
  StartSum(layout, sum.data());
  return sum;
}

absl::StatusOr<Buffer> ShardRing::AllocateWhenFree(
    const std::function<absl::StatusOr<Buffer>()>& allocate, const std::string& whose) {
  for (const Deadline deadline(wait_timeout_);;) {
    absl::StatusOr<Buffer> memory = allocate();
    if (memory.ok() || !absl::IsResourceExhausted(memory.status())) return memory;
    if (const absl::Status status = transport_->status(); !status.ok()) return status;
    if (deadline.Left() == std::chrono::milliseconds(0)) return TooLong(whose);
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

absl::Status ShardRing::SendAround(const SharedBuffer& mine, const Round& round) {
  const int all = workers(), left = (self().value + all - 1) % all,
            right = (self().value + 1) % all;
  const auto key = [&](int shard) {
    return KeyOf(static_cast<ShardMessage>(round.kind), round.update, 0, shard);
  };
  if (all > 1 && mine) {
    RZ_RETURN_IF_ERROR(transport_->Share(WorkerId(right), key(self().value), mine));
  }
  for (int hops = 1; hops < all; ++hops) {
    const int shard = (self().value + all - hops) % all;
    const size_t bytes = round.bytes(shard);
    if (bytes == 0) continue;
    RZ_ASSIGN_OR_RETURN(SharedBuffer payload,
                        Receive<SharedBuffer>(WorkerId(left), key(shard), bytes,
                                              absl::StrCat("shard ", shard, round.what)));
    if (right != shard) {
      RZ_RETURN_IF_ERROR(transport_->Share(WorkerId(right), key(shard), payload));
    }
    round.show(shard, payload.data());
  }
  return absl::OkStatus();
}

absl::Status ShardRing::Spread(
    const SharedBuffer& mine, int64_t update,
    const std::function<void(int shard, const std::byte* parameters)>& show) {
  const auto bytes = [this](int shard) {
    return static_cast<size_t>(shards_.layouts[shard].parameter_bytes);
  };
  return SendAround(mine, {.kind = kVersions,
                           .update = update,
                           .what = absl::StrCat(" after update ", update),
                           .bytes = bytes,
                           .show = show});
}

absl::StatusOr<std::vector<std::vector<double>>> ShardRing::SpreadSquares(
    std::span<const double> mine, int64_t update) {
  std::vector<std::vector<double>> squares(static_cast<size_t>(workers()));
  squares[self().value].assign(mine.begin(), mine.end());
  SharedBuffer sent;
  if (workers() > 1 && !mine.empty()) {
    RZ_ASSIGN_OR_RETURN(
        Buffer memory,
        AllocateWhenFree(
            [&] { return transport_->Allocate(mine.size_bytes(), MemoryUse::kParameters); },
            absl::StrCat("the others to let go of its squares before update ", update)));
    std::memcpy(memory.data(), mine.data(), mine.size_bytes());
    sent = std::move(memory).Seal();
  }
  const auto bytes = [this](int shard) { return SquaresBytes(shards_.layouts[shard]); };
  const auto show = [&](int shard, const std::byte* payload) {
    squares[shard].resize(bytes(shard) / sizeof(double));
    std::memcpy(squares[shard].data(), payload, bytes(shard));
  };
  RZ_RETURN_IF_ERROR(SendAround(sent, {.kind = kSquares,
                                       .update = update,
                                       .what = absl::StrCat("'s squares in update ", update),
                                       .bytes = bytes,
                                       .show = show}));
  return squares;
}

}  // namespace ringzero
