// Transports between threads: inboxes with a lock and a condition variable, and the thread that
// empties one.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "base/status.h"
#include "base/system_names.h"
#include "p2p/heartbeat.h"
#include "p2p/mailbox.h"
#include "p2p/transport.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kEventsPerPeer = 32;       // come at once without growth
constexpr uint32_t kIdlePollsPerTurn = 16;  // the clock is looked at once in so many

struct Event {
  enum class Kind { kBlock, kTaken, kNote, kDisconnect };
  Kind kind;
  WorkerId from;
  BlockMessage block = {};  // kBlock; kTaken: its kind and number
  Note note = {};           // kNote
};

// Where other workers put events for one worker. Thread-safe.
class Inbox {
 public:
  void Push(Event event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!open_) return;
    events_.push_back(std::move(event));
    has_news_.store(true, std::memory_order_release);
    changed_.notify_one();
  }
  void Wake() {
    const std::lock_guard<std::mutex> lock(mutex_);
    has_news_.store(true, std::memory_order_release);
    changed_.notify_one();
  }
  void Stop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  void Reserve(size_t events) {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.reserve(events);
  }
  // Blocks until something happens, or `until`; false when stopped.
  bool Take(std::vector<Event>& events, Clock::time_point until) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_until(lock, until, [this] { return stopping_ || has_news_; });
    has_news_.store(false, std::memory_order_relaxed);
    events.swap(events_);
    return !stopping_;
  }
  // For whoever polls: whether Take has anything to do.
  bool HasNews() const { return has_news_.load(std::memory_order_acquire); }
  // From now on events are dropped: nobody reads them any more.
  void Shut() {
    std::vector<Event> rest;
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;
    rest.swap(events_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Event> events_;
  std::atomic<bool> has_news_{false};  // there are events, or it was woken
  bool stopping_ = false;
  bool open_ = true;
};

using Inboxes = std::vector<Inbox>;

class LocalWire final : public Wire {
 public:
  // Shared: an inbox must live as long as any worker may still write into it.
  LocalWire(WorkerId self, std::shared_ptr<Inboxes> inboxes)
      : self_(self), inboxes_(std::move(inboxes)) {}

  bool SendBlock(WorkerId to, const BlockMessage& message) override {
    Push(to, {.kind = Event::Kind::kBlock, .from = self_, .block = message});
    return false;
  }
  bool Move(WorkerId from, const BlockMessage& message, std::span<std::byte> block) override {
    std::memcpy(block.data(), message.data, block.size());
    Push(from, {.kind = Event::Kind::kTaken, .from = self_, .block = message});
    return true;
  }
  bool HasWords(WorkerId) const override { return true; }
  void SendWord(WorkerId to, MessageKey key) override {
    Push(to, {.kind = Event::Kind::kBlock, .from = self_, .block = {.key = key, .is_word = true}});
  }
  void SendNote(WorkerId to, Note note) override {
    Push(to, {.kind = Event::Kind::kNote, .from = self_, .note = std::move(note)});
  }
  void Wake() override { inbox().Wake(); }

  Inbox& inbox() { return (*inboxes_)[self_.value]; }
  void Disconnect() {
    inbox().Shut();
    for (int worker = 0; worker < static_cast<int>(inboxes_->size()); ++worker) {
      if (worker != self_.value)
        Push(WorkerId(worker), {.kind = Event::Kind::kDisconnect, .from = self_});
    }
  }

 private:
  void Push(WorkerId to, Event event) { (*inboxes_)[to.value].Push(std::move(event)); }

  const WorkerId self_;
  const std::shared_ptr<Inboxes> inboxes_;
};

// Of all workers, by worker. They live as long as any of these: words lend their memory.
using Memories = std::vector<Arenas>;

class LocalTransport final : public Mailbox {
 public:
  LocalTransport(Parts parts, std::unique_ptr<LocalWire> wire,
                 std::shared_ptr<const Memories> memories, Heartbeat heartbeat)
      : Mailbox(std::move(parts)),
        wire_(std::move(wire)),
        memories_(std::move(memories)),
        heartbeat_(std::move(heartbeat)) {
    // How many events come at once depends on who runs when: the first time must not allocate.
    events_.reserve(kEventsPerPeer * memories_->size());
    wire_->inbox().Reserve(kEventsPerPeer * memories_->size());  // the two take turns
    if (progress() == ProgressMode::kCaller) return;
    thread_ = NamedThread("rz-messages", [this] {
      while (Turn(heartbeat_.next())) {
      }
    });
  }

  ~LocalTransport() override {
    ShutDown();
    wire_->inbox().Stop();
    if (progress() == ProgressMode::kCaller) {
      Turn(Clock::now());
    } else {
      thread_.join();
    }
    wire_->Disconnect();
  }

  std::string name() const override { return "local"; }
  MappedMemory MemoryOf(WorkerId owner, MemoryUse use) override {
    return (*memories_)[owner.value][static_cast<size_t>(use)]->Mapped();
  }

  bool Poll() override {
    if (progress() == ProgressMode::kThread) return false;
    const bool busy = wire_->inbox().HasNews();
    if (busy || ++idle_polls_ % kIdlePollsPerTurn == 0) Turn(Clock::now());
    return busy;
  }

 private:
  // Whatever is lent lies in this process.
  bool MaySend(WorkerId, std::span<const std::byte> block) const override {
    return std::ranges::any_of(*memories_, [&](const Arenas& arenas) {
      return std::ranges::any_of(arenas, [&](const auto& arena) { return arena->Contains(block); });
    });
  }
  // Waits for events until `until`, handles them, and beats; false when stopped.
  bool Turn(Clock::time_point until) {
    const bool running = wire_->inbox().Take(events_, until);
    for (Event& event : events_) Handle(event);
    events_.clear();
    for (const Silence& each : heartbeat_.Tick(Clock::now())) OnSilence(each.worker, each.lasted);
    RunCallbacks();
    return running;
  }

  void Handle(Event& event) {
    switch (event.kind) {
      case Event::Kind::kBlock: return Fail(OnNextBlock(event.from, std::move(event.block)));
      case Event::Kind::kTaken: return OnSent(event.from, event.block.key.kind, event.block.number);
      case Event::Kind::kNote: return OnNote(event.from, std::move(event.note));
      case Event::Kind::kDisconnect: return OnDisconnect(event.from);
    }
  }

  const std::unique_ptr<LocalWire> wire_;
  const std::shared_ptr<const Memories> memories_;
  Heartbeat heartbeat_;        // the message thread's, as the next two
  std::vector<Event> events_;  // kept, so that its memory is used again
  uint32_t idle_polls_ = 0;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Transport>>> CreateLocalTransports(
    const std::vector<TransportOptions>& options) {
  const int workers = static_cast<int>(options.size());
  RZ_ASSIGN_OR_RETURN(const std::shared_ptr<PulseBoard> board, PulseBoard::Create(workers));
  auto inboxes = std::make_shared<Inboxes>(workers);
  auto memories = std::make_shared<Memories>(workers);
  for (int w = 0; w < workers; ++w) {
    RZ_RETURN_IF_ERROR(CheckPeerTimeout(options[w]));
    if (options[w].memory != MemoryKind::kHost) {
      return absl::InvalidArgumentError("local carries memory of the host, not of a GPU");
    }
    RZ_ASSIGN_OR_RETURN((*memories)[w], MakeArenas(WorkerId(w), HostMemory(), options[w]));
  }
  std::vector<std::unique_ptr<Transport>> transports;
  for (int w = 0; w < workers; ++w) {
    const WorkerId self(w);
    auto wire = std::make_unique<LocalWire>(self, inboxes);
    Mailbox::Parts parts = {self, workers, options[w], (*memories)[w], *wire};
    transports.push_back(
        std::make_unique<LocalTransport>(std::move(parts), std::move(wire), memories,
                                         Heartbeat(self, board, options[w].peer_timeout)));
  }
  return transports;
}

}  // namespace ringzero
