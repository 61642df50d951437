// The ring's slots, and the thread that fills and empties them.
#include "offload/state_store.h"

#include <sched.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/system_names.h"

namespace ringzero {
namespace {

constexpr int kExtentBits = 2, kPieceBits = 30;
constexpr uint64_t kExtents = (1 << kExtentBits) - 1, kRuns = uint64_t{1} << 63;  // in tags
constexpr std::chrono::seconds kLastWait(5);  // for a disk, when the run is over
constexpr size_t kStoresAtOnce = 4;           // extents under way: fetches wait behind no more

int64_t LargestPiece(const std::vector<StoreGroup>& groups) {
  int64_t most = 1;
  for (const StoreGroup& group : groups) {
    for (const StorePiece& piece : group.pieces) most = std::max(most, piece.bytes());
  }
  return (most + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
}

}  // namespace

int64_t StorePiece::bytes() const {
  int64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.bytes;
  return bytes;
}

StateStore::StateStore(StateStoreOptions options)
    : options_(std::move(options)), slot_bytes_(LargestPiece(options_.groups)) {
  void* begin = options_.ring.data();
  size_t bytes = options_.ring.size();
  const bool fits = std::align(kDirectAlignment, slot_bytes_, begin, bytes) != nullptr;
  options_.ring = {static_cast<std::byte*>(begin), fits ? bytes : 0};
  for (const StoreGroup& group : options_.groups) {
    GroupState& state = groups_.emplace_back(GroupState{.file = options_.file});
    state.pieces.resize(group.pieces.size(), PieceState{.file = options_.file});
  }
  // The last one first, so that slots are used in order.
  for (int slot = static_cast<int>(options_.ring.size() / slot_bytes_); slot-- > 0;) {
    free_slots_.push_back(slot);
  }
}

absl::StatusOr<std::unique_ptr<StateStore>> StateStore::Create(StateStoreOptions options) {
  const size_t given = options.ring.size();
  std::unique_ptr<StateStore> store(new StateStore(std::move(options)));
  const auto has_pieces = [](const GroupState& group) { return !group.pieces.empty(); };
  if (store->free_slots_.empty() && std::ranges::any_of(store->groups_, has_pieces)) {
    return InvalidArgument("states come through ", given, " bytes of memory, but a piece has ",
                           store->slot_bytes_, " in whole pages");
  }
  store->thread_ = NamedThread("rz-states", [store = store.get()] { store->Work(); });
  return store;
}

void StateStore::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void StateStore::Adopt(int group, std::span<const uint64_t> digests) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < digests.size(); ++i) {
    PieceState& state = groups_[group].pieces[i];
    state.digest = digests[i];
    state.known = state.written = true;
  }
}

void StateStore::MoveTo(int group, int file) {
  const std::lock_guard lock(mutex_);
  groups_[group].file = file;
}

absl::Status StateStore::Check(int group, std::span<const uint64_t> digests) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < digests.size(); ++i) {
    const PieceState& state = groups_[group].pieces[i];
    if (state.known && state.digest != digests[i]) return Lost({group, static_cast<int>(i)});
  }
  return absl::OkStatus();
}

void StateStore::Fetch(int group, Done done) {
  const std::lock_guard lock(mutex_);
  GroupState& state = groups_[group];
  const int pieces = static_cast<int>(state.pieces.size());
  state.to_come = state.to_go = pieces;
  state.fetched = std::move(done);
  if (pieces == 0) calls_.push_back(std::exchange(state.fetched, nullptr));
  for (int piece = 0; piece < pieces; ++piece) to_fetch_.push_back({group, piece});
  wake_.notify_one();
}

std::byte* StateStore::Piece(int group, int piece, Done again) {
  const std::lock_guard lock(mutex_);
  PieceState& state = groups_[group].pieces[piece];
  if (state.phase == Phase::kHere) return MemoryOf({group, piece}).data();
  state.again = std::move(again);
  return nullptr;
}

void StateStore::Release(int group, int piece, const Released& released) {
  std::unique_lock lock(mutex_);
  const Place place{group, piece};
  PieceState& state = At(place);
  if (state.known && released.found != state.digest) {
    stop_ = true;
    wake_.notify_one();
    lock.unlock();
    if (options_.failed) options_.failed(Lost(place));
    return;
  }
  state.phase = Phase::kReleased;
  const bool moves = state.written && state.file != groups_[group].file;
  if (released.changed || moves) {
    state.digest = released.left;
    state.known = true;
    to_store_.push_back(place);
  } else {
    Finish(place);
  }
  wake_.notify_one();
}

void StateStore::Store(int group, Done done) {
  const std::lock_guard lock(mutex_);
  groups_[group].stored = std::move(done);
  if (groups_[group].to_go == 0) calls_.push_back(std::exchange(groups_[group].stored, nullptr));
  wake_.notify_one();
}

void StateStore::Move(Run run, RunDone done) {
  const std::lock_guard lock(mutex_);
  to_move_.emplace_back(std::move(run), std::move(done));
  wake_.notify_one();
}

void StateStore::Work() {
  // Threads that compute are not interrupted for each piece. A hint: its failure is no error.
  const sched_param none = {};
  (void)sched_setscheduler(0, SCHED_BATCH, &none);
  std::unique_lock lock(mutex_);
  absl::Status status;
  while (status.ok() && !stop_) status = Turn(lock);
  lock.unlock();
  if (!status.ok() && options_.failed) options_.failed(status);
  // An engine's end waits for what is under way, however long.
  std::unique_ptr<IoEngine>& engine = options_.engine;
  const auto deadline = std::chrono::steady_clock::now() + kLastWait;
  bool answers = !absl::IsDeadlineExceeded(status);
  while (answers && engine->under_way() > 0) answers = engine->Wait(deadline).ok();
  if (engine->under_way() == 0) return;
  std::vector<SharedBuffer> keepers = {options_.keeper};
  for (const auto& [tag, run] : runs_) keepers.push_back(run.first.keeper);
  Abandon(std::move(engine), std::move(keepers));
}

// Waits until there is something to do, and does it.
absl::Status StateStore::Turn(std::unique_lock<std::mutex>& lock) {
  const auto fetches = [this] { return !to_fetch_.empty() && !free_slots_.empty(); };
  wake_.wait(lock, [&] {
    const bool moves = options_.engine->under_way() > 0 || !to_move_.empty();
    return stop_ || moves || fetches() || !to_store_.empty() || !calls_.empty();
  });
  if (stop_) return absl::OkStatus();
  std::vector<std::pair<Place, bool>> begun;  // whether it is written
  for (; !to_store_.empty() && stores_ < kStoresAtOnce; to_store_.pop_front()) {
    begun.push_back({to_store_.front(), true});
    stores_ += PieceOf(to_store_.front()).extents.size();
  }
  while (fetches()) {
    const Place place = to_fetch_.front();
    to_fetch_.pop_front();
    At(place).phase = Phase::kComing;
    At(place).slot = free_slots_.back();
    free_slots_.pop_back();
    begun.push_back({place, false});
  }
  const std::vector<Done> calls = std::exchange(calls_, {});
  lock.unlock();
  for (const Done& call : calls) call();
  std::vector<IoRequest> requests;
  std::vector<Place> ended;
  absl::Status status = BeginRuns();
  for (const auto& [place, writes] : begun) {
    if (Begin(place, writes, requests)) ended.push_back(place);
  }
  if (status.ok()) status = options_.engine->Submit(requests);
  if (status.ok() && ended.empty() && options_.engine->under_way() > 0) {
    const absl::StatusOr<std::vector<IoResult>> results = WaitForDisk();
    status = results.status();
    if (status.ok()) status = BeginRuns();  // what has come meanwhile, before these are looked at
    for (size_t i = 0; status.ok() && i < results->size(); ++i) {
      const absl::StatusOr<bool> last = End((*results)[i]);
      status = last.status();
      if (last.ok() && *last) ended.push_back(PlaceOf((*results)[i].tag));
    }
  }
  lock.lock();
  for (const Place& place : ended) {
    if (At(place).phase == Phase::kReleased) stores_ -= PieceOf(place).extents.size();
    Finish(place);
  }
  return status;
}

absl::Status StateStore::BeginRuns() {
  std::unique_lock lock(mutex_);
  std::vector<std::pair<Run, RunDone>> runs = std::exchange(to_move_, {});
  lock.unlock();
  std::vector<IoRequest> requests;
  for (auto& [run, done] : runs) {
    const uint64_t tag = under_way_.emplace_back(kRuns | runs_begun_++ << kExtentBits);
    requests.push_back({run.kind, run.file, run.offset, run.memory, tag});
    runs_.try_emplace(tag, std::move(run), std::move(done));
  }
  return options_.engine->Submit(requests);
}

// Looks now and then whether the run has ended, which waits no longer for this disk.
absl::StatusOr<std::vector<IoResult>> StateStore::WaitForDisk() {
  constexpr std::chrono::milliseconds kLook(200);
  const auto deadline = std::chrono::steady_clock::now() + options_.wait_timeout;
  while (true) {
    const auto look = std::min(deadline, std::chrono::steady_clock::now() + kLook);
    absl::StatusOr<std::vector<IoResult>> results = options_.engine->Wait(look);
    const bool late = std::chrono::steady_clock::now() >= deadline;
    if (late || !absl::IsDeadlineExceeded(results.status())) {
      if (results.ok()) return results;
      return Annotated(results.status(), under_way_.front());
    }
    const std::lock_guard lock(mutex_);
    if (stop_) return std::vector<IoResult>();
  }
}

bool StateStore::Begin(const Place& place, bool writes, std::vector<IoRequest>& requests) {
  PieceState& state = At(place);
  const std::span<std::byte> memory = MemoryOf(place);
  if (writes) {
    state.written = true;
    state.file = groups_[place.group].file;
  } else if (!state.written) {
    std::ranges::fill(memory, std::byte{0});
    return true;
  }
  under_way_.push_back(TagOf(place, 0));
  size_t at = 0;
  for (const Extent& extent : PieceOf(place).extents) {
    requests.push_back({.kind = writes ? IoRequest::Kind::kWrite : IoRequest::Kind::kRead,
                        .file = state.file,
                        .offset = extent.offset,
                        .memory = memory.subspan(at, static_cast<size_t>(extent.bytes)),
                        .tag = TagOf(place, static_cast<size_t>(state.under_way++))});
    at += static_cast<size_t>(extent.bytes);
  }
  return false;
}

absl::StatusOr<bool> StateStore::End(const IoResult& result) {
  const auto run = runs_.find(result.tag);
  const bool is_run = run != runs_.end();
  absl::Status status = result.status;
  if (is_run && status.ok() && run->second.second) status = run->second.second();
  if (!status.ok()) return Annotated(status, result.tag);
  if (!is_run && --At(PlaceOf(result.tag)).under_way > 0) return false;
  runs_.erase(result.tag);
  std::erase(under_way_, result.tag & ~kExtents);
  return !is_run;
}

void StateStore::Finish(const Place& place) {
  GroupState& group = groups_[place.group];
  PieceState& state = At(place);
  const auto call = [this](Done& done) {
    if (done) calls_.push_back(std::exchange(done, nullptr));
  };
  if (state.phase == Phase::kComing) {
    state.phase = Phase::kHere;
    call(state.again);
    if (--group.to_come == 0) call(group.fetched);
    return;
  }
  state.phase = Phase::kInFile;
  free_slots_.push_back(state.slot);
  if (--group.to_go == 0) call(group.stored);
}

uint64_t StateStore::TagOf(const Place& place, size_t extent) {
  const auto number =
      static_cast<uint64_t>(place.group) << kPieceBits | static_cast<uint64_t>(place.piece);
  return number << kExtentBits | extent;
}

StateStore::Place StateStore::PlaceOf(uint64_t tag) {
  const uint64_t number = tag >> kExtentBits;
  return {static_cast<int>(number >> kPieceBits),
          static_cast<int>(number & ((uint64_t{1} << kPieceBits) - 1))};
}

std::span<std::byte> StateStore::MemoryOf(const Place& place) {
  return options_.ring.subspan(static_cast<size_t>(At(place).slot * slot_bytes_),
                               static_cast<size_t>(PieceOf(place).bytes()));
}

absl::Status StateStore::Lost(const Place& place) const {
  return Annotated(absl::DataLossError("what was read is not what was written there last"),
                   TagOf(place, 0));
}

absl::Status StateStore::Annotated(const absl::Status& status, uint64_t tag) const {
  const auto at = [&](const std::string& name, int64_t offset) {
    return Annotate(status, absl::StrCat(options_.file_name, ": ", name, " at offset ", offset));
  };
  if ((tag & kRuns) != 0) return at(runs_.at(tag).first.name, runs_.at(tag).first.offset);
  const Place place = PlaceOf(tag);
  return at(absl::StrCat(options_.groups[place.group].name, ", record ", place.piece),
            PieceOf(place).extents[tag & kExtents].offset);
}

}  // namespace ringzero
