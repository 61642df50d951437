// Reading the rings while they are written; and the thread that empties them into a file.
#include "zero/flight/flight_recorder.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "base/system_names.h"

namespace ringzero {
namespace {

// At 30,000 events a second, which is many, a ring of kTraceEvents lasts a second.
constexpr std::chrono::milliseconds kPause(50);

}  // namespace

EventRing::EventRing(size_t capacity)
    : mask_(std::bit_ceil(std::max<size_t>(capacity, 2)) - 1), slots_((mask_ + 1) * kWords) {}

uint64_t EventRing::Read(uint64_t from, std::vector<PackedEvent>& to, uint64_t& lost) const {
  const uint64_t capacity = mask_ + 1;
  const uint64_t end = written();
  const uint64_t begin = std::max(from, end - std::min(end, capacity));
  const size_t had = to.size();
  for (uint64_t number = begin; number < end; ++number) {
    const std::atomic<uint64_t>* slot = &slots_[(number & mask_) * kWords];
    PackedEvent words;
    for (size_t i = 0; i < kWords; ++i) words[i] = slot[i].load(std::memory_order_acquire);
    to.push_back(words);
  }
  // The writer is at event `now`, maybe half way: in the slot of now - capacity.
  const uint64_t now = written();
  const uint64_t safe = now < capacity ? 0 : now - capacity + 1;
  const uint64_t spoilt = std::min(end, std::max(begin, safe)) - begin;
  to.erase(to.begin() + static_cast<ptrdiff_t>(had),
           to.begin() + static_cast<ptrdiff_t>(had + spoilt));
  lost += begin - from + spoilt;
  return end;
}

FlightRecorder::FlightRecorder(size_t capacity)
    : on_(capacity > 0), rings_{EventRing(capacity), EventRing(capacity), EventRing(capacity)} {}

void FlightRecorder::ReadNew(Cursor& cursor,
                             const std::function<void(const PackedEvent&)>& take) const {
  std::vector<PackedEvent> events;
  for (size_t i = 0; i < kWriters; ++i) {
    events.clear();
    cursor.next[i] = rings_[i].Read(cursor.next[i], events, cursor.lost);
    for (const PackedEvent& event : events) take(event);
  }
}

std::vector<Event> FlightRecorder::Last() const {
  std::vector<Event> last;
  Cursor cursor;
  ReadNew(cursor, [&](const PackedEvent& words) {
    if (absl::StatusOr<Event> event = Unpack(words); event.ok()) last.push_back(*event);
  });
  std::ranges::stable_sort(last, {}, &Event::time);
  return last;
}

absl::StatusOr<std::unique_ptr<TraceStream>> TraceStream::Create(TraceStreamOptions options) {
  std::unique_ptr<TraceStream> stream(new TraceStream(std::move(options)));
  const TraceStreamOptions& given = stream->options_;
  RZ_RETURN_IF_ERROR(MakeFolders(given.folder));
  RZ_ASSIGN_OR_RETURN(stream->file_, OutputFile::Open(FlightPath(given.folder, given.head.worker),
                                                      OutputFile::As::kGrowing));
  RZ_RETURN_IF_ERROR(stream->file_->Write(FlightHead(given.head)));
  stream->thread_ = NamedThread("rz-trace", [raw = stream.get()] { raw->Run(); });
  return stream;
}

TraceStream::TraceStream(TraceStreamOptions options) : options_(std::move(options)) {}

TraceStream::~TraceStream() { Stop(); }

void TraceStream::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void TraceStream::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_changed_.wait_for(lock, kPause, [this] { return stop_; })) {
    lock.unlock();
    Drain();
    lock.lock();
  }
}

void TraceStream::Drain() {
  std::lock_guard lock(drain_mutex_);
  DrainLocked();
}

void TraceStream::OpenWindow(int iterations) {
  std::lock_guard lock(drain_mutex_);
  DrainLocked();  // for newest_
  TraceWindow& window = options_.window;
  const Iteration next(newest_.value + 1);
  if (next > window.to) window.from = next;
  window.to = Iteration(next.value + iterations);
}

void TraceStream::DrainLocked() {
  if (file_ == nullptr) return;
  batch_.clear();
  options_.recorder->ReadNew(cursor_, [this](const PackedEvent& event) {
    const Iteration of = IterationOf(event);
    newest_ = std::max(newest_, of);
    if (of >= options_.window.from && of < options_.window.to) batch_.push_back(event);
  });
  if (!error_.ok()) return;  // behind a part of an event no other could be read
  // Whole events, and the head: what a worker that is killed leaves can be read.
  error_ = file_->Write(absl::string_view(reinterpret_cast<const char*>(batch_.data()),
                                          batch_.size() * sizeof(PackedEvent)));
}

absl::Status TraceStream::Finish() {
  Stop();
  std::lock_guard lock(drain_mutex_);
  DrainLocked();
  options_.head.lost = cursor_.lost;
  error_.Update(file_->Rewind());
  error_.Update(file_->Write(FlightHead(options_.head)));  // as long as before
  error_.Update(file_->Finish());
  file_.reset();
  return error_;
}

}  // namespace ringzero
