// Messages of the ring of shards, and waits for them.
#include "zero/optimizer/shard_ring.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"
#include "zero/gradient_sum.h"
#include "zero/transport_needs.h"

namespace ringzero {
namespace {

int64_t ValueBytes(const ParameterSpec& parameter) {
  return parameter.numel * SizeOf(ValueType::kFp32);
}

enum ShardMessage : uint8_t { kSums, kComplete, kVersions, kSquares };

constexpr int kSquaresBlock = 2;

MessageKey KeyOf(uint8_t kind, int64_t update, int lap, int shard) {
  return {.kind = kind, .tag = (uint64_t(update) << 32) | (uint64_t(lap) << 16) | uint64_t(shard)};
}

size_t SumBytes(const StageLayout& layout) { return layout.sum_bytes; }
size_t VersionBytes(const StageLayout& layout) { return layout.parameter_bytes; }
size_t SquaresBytes(const StageLayout& layout) { return layout.trainable_count * sizeof(double); }

// Where an owner's versions and squares begin, and where they end.
std::array<size_t, 4> OffsetsOf(const StageLayout& layout) {
  const size_t version = ArenaBytes(VersionBytes(layout));
  return {0, version, 2 * version, 2 * version + ArenaBytes(SquaresBytes(layout))};
}

// The most that a message of a kind has.
template <typename Bytes>
size_t Largest(const FlatShards& shards, const Bytes& bytes) {
  size_t most = 0;
  for (const StageLayout& layout : shards.layouts) most = std::max(most, bytes(layout));
  return most;
}
size_t LargestPassed(const FlatShards& shards) {
  return std::max(Largest(shards, VersionBytes), Largest(shards, SquaresBytes));
}

// The end of the ring, with what was waited for unless the words are another worker's.
absl::Status InWait(const absl::Status& end, const std::string& what) {
  return end.ok() || IsEcho(end) ? end : Annotate(end, absl::StrCat("waiting for ", what));
}

}  // namespace

absl::StatusOr<FlatShards> FlatShards::Make(const std::vector<ParameterSpec>& parameters,
                                            int workers) {
  if (workers < 1) return InvalidArgument("shards for ", workers, " workers");
  if (parameters.empty()) return absl::InvalidArgumentError("an optimizer without parameters");
  std::set<std::string> names;
  for (const ParameterSpec& parameter : parameters) {
    if (names.insert(parameter.name).second) continue;
    return InvalidArgument("two parameters are called ", parameter.name);
  }
  const std::vector<ParameterSpec> specs = StageLayout::Make(parameters, {}).parameters;
  const auto bytes_of = [&](int i) { return AlignPayload(ValueBytes(specs[i])); };
  std::vector<int> order(parameters.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), bytes_of);
  FlatShards shards;
  shards.places.resize(parameters.size());
  std::vector<size_t> bytes(static_cast<size_t>(workers));
  for (const int parameter : order) {
    const auto least = std::ranges::min_element(bytes) - bytes.begin();
    bytes[least] += bytes_of(parameter);
    shards.places[parameter].shard = static_cast<int>(least);
  }
  std::vector<std::vector<ParameterSpec>> cut(static_cast<size_t>(workers));
  for (size_t i = 0; i < parameters.size(); ++i) {
    Place& place = shards.places[i];
    place.parameter = static_cast<int>(cut[place.shard].size());
    cut[place.shard].push_back(parameters[i]);
  }
  for (std::vector<ParameterSpec>& shard : cut) {
    shards.layouts.push_back(StageLayout::Make(std::move(shard), {}));
  }
  return shards;
}

std::string DescribeOwners(const FlatShards& shards) {
  std::string text;
  int64_t most = 0;
  int64_t all = 0;
  for (int w = 0; w < shards.count(); ++w) {
    int64_t bytes = 0;
    for (const ParameterSpec& parameter : shards.layouts[w].parameters) {
      bytes += ValueBytes(parameter);
    }
    most = std::max(most, bytes);
    all += bytes;
    absl::StrAppend(&text, w == 0 ? "" : ", ", "worker ", w, w == 0 ? " owns " : " ", bytes,
                    w == 0 ? " bytes of parameters" : "");
  }
  return absl::StrFormat("%s; the fullest has %.2f times the mean", text,
                         static_cast<double>(most) * shards.count() / static_cast<double>(all));
}

// The end of one message. Shared: it may come after the wait has ended.
struct ShardRing::Event {
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<absl::Status> end;

  static Done Ends(std::shared_ptr<Event> event) {
    return [event = std::move(event)](const absl::Status& end) {
      const std::lock_guard lock(event->mutex);
      event->end = end;
      event->ended.notify_one();
    };
  }
};

TransportOptions ShardRing::Needs(const FlatShards& shards, WorkerId self, bool lends) {
  const StageLayout& mine = shards.layouts[self.value];
  TransportOptions options;
  options.parameter_bytes = OffsetsOf(mine).back();
  if (!lends) {
    options.parameter_bytes += 2 * ArenaBytes(LargestPassed(shards));
    options.sum_bytes = 2 * ArenaBytes(Largest(shards, SumBytes)) + ArenaBytes(SumBytes(mine));
  } else if (self.value == 0) {
    for (const StageLayout& layout : shards.layouts)
      options.sum_bytes += ArenaBytes(SumBytes(layout));
  }
  return options;
}

absl::StatusOr<std::unique_ptr<ShardRing>> ShardRing::Create(const FlatShards& shards,
                                                             std::unique_ptr<Transport> transport,
                                                             const Options& options) {
  std::unique_ptr<ShardRing> ring(new ShardRing(shards, std::move(transport), options));
  RZ_RETURN_IF_ERROR(ring->Allocate());
  return ring;
}

ShardRing::ShardRing(const FlatShards& shards, std::unique_ptr<Transport> transport,
                     const Options& options)
    : shards_(shards), transport_(std::move(transport)), options_(options) {}

absl::Status ShardRing::Allocate() {
  const auto allocate = [this](Buffer& memory, size_t bytes, MemoryUse use) -> absl::Status {
    if (bytes == 0) return absl::OkStatus();
    RZ_ASSIGN_OR_RETURN(memory, transport_->Allocate(bytes, use));
    return absl::OkStatus();
  };
  const StageLayout& mine = shards_.layouts[self().value];
  for (int i = 0; i <= kSquaresBlock; ++i) {  // in the order of OffsetsOf
    const size_t bytes = i == kSquaresBlock ? SquaresBytes(mine) : VersionBytes(mine);
    RZ_RETURN_IF_ERROR(allocate(mine_[i].memory, bytes, MemoryUse::kParameters));
  }
  if (options_.lends) {
    lent_sums_.resize(self().value == 0 ? shards_.layouts.size() : 0);
    for (size_t shard = 0; shard < lent_sums_.size(); ++shard) {  // in the order of PlaceOfSum
      const size_t bytes = SumBytes(shards_.layouts[shard]);
      RZ_RETURN_IF_ERROR(allocate(lent_sums_[shard], bytes, MemoryUse::kSums));
    }
    return absl::OkStatus();
  }
  for (int i = 0; i < 2; ++i) {
    RZ_RETURN_IF_ERROR(allocate(sums_[i].memory, Largest(shards_, SumBytes), MemoryUse::kSums));
    RZ_RETURN_IF_ERROR(
        allocate(passing_[i].memory, LargestPassed(shards_), MemoryUse::kParameters));
  }
  return allocate(complete_.memory, SumBytes(mine), MemoryUse::kSums);
}

ShardRing::~ShardRing() { transport_->Close().IgnoreError(); }

absl::Status ShardRing::Await(Event& event, const std::string& what, const std::string& too_long) {
  std::unique_lock lock(event.mutex);
  const auto ended = [&] { return event.end.has_value(); };
  if (WaitUntil(lock, event.ended, Deadline(options_.wait_timeout), ended)) {
    return InWait(*event.end, what);
  }
  lock.unlock();
  absl::Status why = absl::DeadlineExceededError(absl::StrCat(
      "worker ", self().value, " waited longer than ",
      absl::FormatDuration(absl::FromChrono(options_.wait_timeout)), " for ", too_long));
  Abort(why);
  return why;
}

absl::Status ShardRing::AwaitFree(Block& block) {
  if (block.leaves == nullptr) return absl::OkStatus();
  const std::string what = absl::StrCat("worker ", block.to.value, " to take an earlier message");
  const std::shared_ptr<Event> leaves = std::exchange(block.leaves, nullptr);
  return Await(*leaves, what, what);
}

absl::Status ShardRing::Send(WorkerId to, MessageKey key, Block& block, size_t bytes) {
  if (options_.lends) return transport_->SendWord(to, key);
  block.to = to;
  block.leaves = std::make_shared<Event>();
  return transport_->Send(to, key, block.memory.as<std::byte>().first(bytes),
                          Event::Ends(block.leaves));
}

absl::Status ShardRing::Receive(WorkerId from, MessageKey key, std::span<std::byte> into,
                                const std::string& what) {
  const auto event = std::make_shared<Event>();
  const absl::Status asked = options_.lends ? transport_->ExpectWord(from, key, Event::Ends(event))
                                            : transport_->Post(from, key, into, Event::Ends(event));
  RZ_RETURN_IF_ERROR(InWait(asked, what));
  return Await(*event, what, absl::StrCat(what, " from worker ", from.value));
}

absl::StatusOr<std::byte*> ShardRing::PayloadIn(std::span<std::byte> into, const Place& lent,
                                                size_t bytes) {
  if (!options_.lends) return into.data();
  MappedMemory& memory = lent_[{lent.home, lent.use}];
  if (memory.bytes.empty()) memory = transport_->MemoryOf(lent.home, lent.use);
  const size_t end = lent.offset + bytes;
  if (end <= memory.bytes.size()) return memory.bytes.data() + lent.offset;
  return Internal("worker ", lent.home.value, " lends its memory up to byte ", end, ", but ",
                  memory.bytes.size(), " bytes of that are known here");
}

ShardRing::Place ShardRing::PlaceOfSum(int shard) const {
  size_t offset = 0;
  for (int i = 0; i < shard; ++i) offset += ArenaBytes(SumBytes(shards_.layouts[i]));
  return {WorkerId(0), MemoryUse::kSums, offset};
}

absl::StatusOr<std::byte*> ShardRing::TakeSum(int shard, const Turn& turn) {
  const StageLayout& layout = shards_.layouts[shard];
  Block& block = sums_[++sums_taken_ % 2];
  RZ_RETURN_IF_ERROR(AwaitFree(block));
  const std::span<std::byte> into = block.First(SumBytes(layout));
  const bool first = self().value == 0, begins = first && turn.lap == 0;
  if (!begins) {
    RZ_RETURN_IF_ERROR(Receive(
        WorkerId(first ? workers() - 1 : self().value - 1),
        KeyOf(kSums, turn.update, first ? turn.lap - 1 : turn.lap, shard), into,
        absl::StrCat("the sum of shard ", shard, " in update ", turn.update, ", lap ", turn.lap)));
  }
  RZ_ASSIGN_OR_RETURN(std::byte* const sum, PayloadIn(into, PlaceOfSum(shard), SumBytes(layout)));
  // Its owner has read the sum of the update before: its new version has come since.
  if (begins) StartSum(layout, sum);
  return sum;
}

absl::Status ShardRing::PassSum(int shard, const Turn& turn) {
  const bool last = self().value == workers() - 1;
  const bool complete = last && turn.lap + 1 == turn.laps;
  const WorkerId to(complete ? shard : last ? 0 : self().value + 1);
  const MessageKey key = complete ? KeyOf(kComplete, turn.update, 0, shard)
                                  : KeyOf(kSums, turn.update, turn.lap, shard);
  return Send(to, key, sums_[sums_taken_ % 2], SumBytes(shards_.layouts[shard]));
}

absl::StatusOr<const std::byte*> ShardRing::TakeCompleteSum(int64_t update) {
  const int shard = self().value;
  const size_t bytes = SumBytes(shards_.layouts[shard]);
  const std::span<std::byte> into = complete_.First(bytes);
  RZ_RETURN_IF_ERROR(Receive(WorkerId(workers() - 1), KeyOf(kComplete, update, 0, shard), into,
                             absl::StrCat("the complete sum of its shard in update ", update)));
  return PayloadIn(into, PlaceOfSum(shard), bytes);
}

std::byte* ShardRing::Version(int64_t update) {
  const Block& block = mine_[update % 2];
  return block.memory ? block.memory.data() : nullptr;
}

absl::Status ShardRing::SendAround(const Round& round) {
  const int all = workers();
  const WorkerId left((self().value + all - 1) % all), right((self().value + 1) % all);
  const auto key = [&](int shard) { return KeyOf(round.kind, round.update, 0, shard); };
  const size_t mine = round.bytes(shards_.layouts[self().value]);
  if (all > 1 && mine > 0) {
    RZ_RETURN_IF_ERROR(Send(right, key(self().value), mine_[round.block], mine));
  }
  for (int hops = 1; hops < all; ++hops) {
    const int shard = (self().value + all - hops) % all;
    const StageLayout& layout = shards_.layouts[shard];
    const size_t bytes = round.bytes(layout);
    if (bytes == 0) continue;
    Block& block = passing_[++passed_ % 2];
    RZ_RETURN_IF_ERROR(AwaitFree(block));
    const std::span<std::byte> into = block.First(bytes);
    RZ_RETURN_IF_ERROR(Receive(left, key(shard), into, absl::StrCat("shard ", shard, round.what)));
    if (right.value != shard) RZ_RETURN_IF_ERROR(Send(right, key(shard), block, bytes));
    const Place lent = {WorkerId(shard), MemoryUse::kParameters, OffsetsOf(layout)[round.block]};
    RZ_ASSIGN_OR_RETURN(const std::byte* const payload, PayloadIn(into, lent, bytes));
    round.show(shard, payload);
  }
  return absl::OkStatus();
}

absl::Status ShardRing::Spread(
    int64_t update, const std::function<void(int shard, const std::byte* parameters)>& show) {
  return SendAround({.kind = kVersions,
                     .update = update,
                     .what = absl::StrCat(" after update ", update),
                     .block = static_cast<int>(update % 2),
                     .bytes = VersionBytes,
                     .show = show});
}

absl::StatusOr<std::vector<std::vector<double>>> ShardRing::SpreadSquares(
    std::span<const double> mine, int64_t update) {
  std::vector<std::vector<double>> squares(static_cast<size_t>(workers()));
  squares[self().value].assign(mine.begin(), mine.end());
  if (!mine.empty()) {
    std::memcpy(mine_[kSquaresBlock].memory.data(), mine.data(), mine.size_bytes());
  }
  const auto show = [&](int shard, const std::byte* payload) {
    const size_t bytes = SquaresBytes(shards_.layouts[shard]);
    squares[shard].resize(bytes / sizeof(double));
    std::memcpy(squares[shard].data(), payload, bytes);
  };
  RZ_RETURN_IF_ERROR(SendAround({.kind = kSquares,
                                 .update = update,
                                 .what = absl::StrCat("'s squares in update ", update),
                                 .block = kSquaresBlock,
                                 .bytes = SquaresBytes,
                                 .show = show}));
  return squares;
}

}  // namespace ringzero
