// The message thread of one worker: hellos, words, deaths; and the thread that watches its sockets.
#include "p2p/shm/shm_transport.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/system_names.h"

namespace ringzero {
namespace {

constexpr std::chrono::seconds kFlushLimit(1);
constexpr std::chrono::milliseconds kSocketLook(1);  // at sockets that no thread watches
constexpr int kWordsPerTurn = 64;                    // then the next peer has its turn
constexpr uint32_t kPollsPerTick = 16;  // of looks at the clock: one costs more than a poll
constexpr int kMaxCode = static_cast<int>(absl::StatusCode::kUnauthenticated);
constexpr int kLastWords = 4 * static_cast<int>(ShmRings::kWords);  // of a peer that is gone

class ShmTransport final : public Mailbox {
 public:
  ShmTransport(Parts parts, std::unique_ptr<ShmWire> wire)
      : Mailbox(std::move(parts)), wire_(std::move(wire)) {}

  absl::Status Open(ShmEndpoint endpoint, const ShmArenas& arenas,
                    const TransportOptions& options) {
    RZ_ASSIGN_OR_RETURN(port_,
                        ShmPort::Create(std::move(endpoint), {*this, *wire_, arenas, options}));
    return absl::OkStatus();
  }

  ~ShmTransport() override {
    if (port_ == nullptr) return;
    ShutDown();
    port_->Stop();
  }

  std::string name() const override { return "shm"; }
  bool Poll() override { return port_->Poll(); }
  MappedMemory MemoryOf(WorkerId owner, MemoryUse use) override {
    return port_->MemoryOf(owner, use);
  }

 private:
  const std::unique_ptr<ShmWire> wire_;
  std::unique_ptr<ShmPort> port_;
};

}  // namespace

// Tells that something has come on one of a few sockets, or that one has closed.
//
//   RZ_ASSIGN_OR_RETURN(auto watch, SocketWatch::Create(sockets, &wire.bell()));
//   if (watch->TakeNews()) …;     // read all sockets until they are empty
//
// A thread sleeps until something happens, so whoever waits for something else (a futex) need not
// look at sockets. Or there is none, and the caller Looks now and then: one that polls must not
// have to rely on another thread's turn. Thread-safe; TakeNews and Look by one thread.
class SocketWatch {
 public:
  // `bell` is rung by the watch's own thread; null: there is no thread. Sockets that are -1 are
  // left out; the others may be closed at any time. ResourceExhausted when the system refuses.
  static absl::StatusOr<std::unique_ptr<SocketWatch>> Create(std::span<const int> sockets,
                                                             Doorbell* bell) {
    UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
    UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!epoll || !stop) return SystemError("cannot make an epoll or an eventfd");
    epoll_event event = {.events = EPOLLIN, .data = {.fd = stop.get()}};
    int rc = epoll_ctl(epoll.get(), EPOLL_CTL_ADD, stop.get(), &event);
    event = {.events = EPOLLIN | EPOLLET, .data = {.fd = -1}};  // what has come counts as new
    for (const int socket : sockets) {
      if (rc == 0 && socket >= 0) rc = epoll_ctl(epoll.get(), EPOLL_CTL_ADD, socket, &event);
    }
    if (rc != 0) return SystemError("cannot watch a socket");
    return std::make_unique<SocketWatch>(std::move(epoll), std::move(stop), bell);
  }
  SocketWatch(UniqueFd epoll, UniqueFd stop, Doorbell* bell)
      : epoll_(std::move(epoll)), stop_(std::move(stop)), bell_(bell) {
    if (bell_ == nullptr) return;
    thread_ = NamedThread("rz-sockets", [this] {
      while (LookFor(-1)) {
      }
    });
  }
  ~SocketWatch() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }

  // Looks once, without waiting.
  void Look() { LookFor(0); }
  bool HasNews() const { return has_news_.load(std::memory_order_seq_cst); }
  // Whether there has been something new on a socket since the last call.
  bool TakeNews() { return HasNews() && has_news_.exchange(false, std::memory_order_seq_cst); }

 private:
  bool LookFor(int milliseconds) {  // false when it is to stop
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), milliseconds);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd == stop_.get()) return false;
    }
    if (count <= 0) return true;
    has_news_.store(true, std::memory_order_seq_cst);
    // For sure: a peer that died may have died between the two halves of its own ring.
    if (bell_ != nullptr) bell_->RingForSure();
    return true;
  }

  const UniqueFd epoll_;
  const UniqueFd stop_;
  Doorbell* const bell_;
  std::atomic<bool> has_news_{false};
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<ShmPort>> ShmPort::Create(ShmEndpoint endpoint,
                                                         const ShmPortParts& with) {
  std::unique_ptr<ShmPort> port(new ShmPort(std::move(endpoint), with));
  RZ_RETURN_IF_ERROR(port->SayHello(with.arenas));
  std::vector<int> watched;  // by member
  for (const Inlet& inlet : port->inlets_) watched.push_back(inlet.socket.get());
  const bool has_thread = port->progress_ == ProgressMode::kThread;
  RZ_ASSIGN_OR_RETURN(port->watch_,
                      SocketWatch::Create(watched, has_thread ? &with.wire.bell() : nullptr));
  if (has_thread) port->thread_ = NamedThread("rz-messages", [raw = port.get()] { raw->Run(); });
  return port;
}

ShmPort::ShmPort(ShmEndpoint endpoint, const ShmPortParts& with)
    : mailbox_(with.mailbox),
      wire_(with.wire),
      progress_(with.options.progress),
      heartbeat_(mailbox_.self(), endpoint.board, with.options.peer_timeout),
      hello_deadline_(endpoint.hello_limit),
      hello_limit_(endpoint.hello_limit) {
  for (const auto& [arena, file] : with.arenas) {
    views_[{mailbox_.self(), arena->use()}] = arena->Mapped();
  }
  for (const WorkerId from : wire_.members()) {
    inlets_.push_back({.from = from,
                       .socket = std::move(endpoint.sockets[from.value]),
                       .ring = wire_.ReaderFrom(from),
                       .greeted = from == mailbox_.self()});
    inlets_.back().text.reserve(kMaxTextBytes);
  }
}

absl::Status ShmPort::SayHello(const ShmArenas& arenas) {
  ShmHello hello;
  hello.worker = mailbox_.self().value;
  hello.workers = mailbox_.workers();
  std::vector<int> files;
  for (int i = 0; i < kMemoryUses; ++i) {
    hello.arena_bytes[i] = arenas[i].arena->memory().size();
    files.push_back(arenas[i].file.get());
  }
  for (const Inlet& inlet : inlets_) {
    if (!inlet.socket) continue;
    const auto bytes = std::as_bytes(std::span(&hello, 1));
    if (SendPacket(inlet.socket.get(), bytes, files) == SendResult::kFull) {
      return Unavailable("cannot say hello to worker ", inlet.from.value, ": its socket is full");
    }  // a broken one is found closed when it is read
  }
  return absl::OkStatus();
}

ShmPort::~ShmPort() { Stop(); }

void ShmPort::Stop() {
  if (watch_ == nullptr) return;  // it has never run, or no more
  stopping_ = true;
  wire_.Wake();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    Run();  // kCaller: we are the message thread
  }
  watch_.reset();
  wire_.Disconnect();
  for (Inlet& inlet : inlets_) inlet.socket.Reset();
}

std::chrono::nanoseconds ShmPort::WaitLimit() const {
  if (stopping_) return std::chrono::milliseconds(10);
  if (progress_ == ProgressMode::kCaller) return kSocketLook;  // nobody rings for a socket
  const std::chrono::nanoseconds next = heartbeat_.next() - Clock::now();
  return AllGreeted() ? next : std::min<std::chrono::nanoseconds>(next, hello_deadline_.Look());
}

bool ShmPort::HasNews() const {
  if (watch_->HasNews() || stopping_) return true;
  return std::ranges::any_of(inlets_, &RingReader::HasWord, &Inlet::ring);
}

void ShmPort::Run() {
  std::optional<Deadline> stop_by;
  while (true) {
    // Read before the callbacks run: what a destructor has made ready is among them.
    const bool stopping = stopping_;
    const bool busy = Turn();
    Tick(Clock::now());
    if (stopping && !stop_by.has_value()) stop_by.emplace(kFlushLimit);
    if (stopping && (!wire_.HasWaiting() || stop_by->over())) return;
    if (busy) continue;
    wire_.Sleep(WaitLimit(), [&] { return stopping ? watch_->HasNews() : HasNews(); });
  }
}

bool ShmPort::Poll() {
  if (progress_ == ProgressMode::kThread) return false;
  const bool busy = Turn();
  if (++polls_ % kPollsPerTick == 0) Tick(Clock::now());
  return busy;
}

bool ShmPort::Turn() {
  bool busy = watch_->TakeNews();
  for (Inlet& inlet : inlets_) {
    if (busy) ReadSocket(inlet);
  }
  for (Inlet& inlet : inlets_) busy = ReadRing(inlet, kWordsPerTurn) || busy;
  if (wire_.HasWaiting()) busy = wire_.Flush() || busy;
  busy = wire_.TakeWoken() || busy;
  if (busy) mailbox_.RunCallbacks();
  return busy;
}

void ShmPort::Tick(Clock::time_point now) {
  if (progress_ == ProgressMode::kCaller && now >= next_look_) {
    watch_->Look();
    next_look_ = now + kSocketLook;
  }
  for (const Silence& silence : heartbeat_.Tick(now)) {
    // The board is of all workers, also of those elsewhere.
    if (std::ranges::count(wire_.members(), silence.worker) == 0) continue;
    wire_.GiveUp(silence.worker);
    mailbox_.OnSilence(silence.worker, silence.lasted);
  }
  if (!AllGreeted()) CheckHellos();
}

void ShmPort::CheckHellos() {
  if (!hello_deadline_.over()) return;
  for (Inlet& inlet : inlets_) {
    if (std::exchange(inlet.greeted, true)) continue;
    mailbox_.Fail(absl::DeadlineExceededError(absl::StrCat(
        "worker ", inlet.from.value, " has not said hello within ", hello_limit_.count(), " ms")));
  }
}

void ShmPort::Fail(const Inlet& inlet, const absl::Status& why) {
  if (why.ok()) return;
  mailbox_.Fail(Annotate(why, absl::StrCat("a packet of worker ", inlet.from.value)));
}

void ShmPort::ReadSocket(Inlet& inlet) {
  PacketBuffer buffer;
  while (inlet.socket) {
    ReceiveResult packet = ReceivePacket(inlet.socket.get(), buffer);
    if (packet.kind == ReceiveResult::Kind::kNothing) return;
    if (packet.kind == ReceiveResult::Kind::kClosed) return Close(inlet);
    if (!inlet.greeted) {
      Fail(inlet, TakeHello(inlet, buffer, std::move(packet)));
    } else {
      Fail(inlet, absl::InternalError("it is a second hello"));
    }
  }
}

void ShmPort::Close(Inlet& inlet) {
  inlet.socket.Reset();
  inlet.greeted = true;  // it never will: that is told as a death
  // Its last words were written before it closed.
  ReadRing(inlet, kLastWords);
  wire_.ClosePeer(inlet.from);
  mailbox_.OnDisconnect(inlet.from);
}

bool ShmPort::ReadRing(Inlet& inlet, int most) {
  RingWord word;
  int count = 0;
  while (count < most && inlet.ring.Pop(word)) {
    Fail(inlet, TakeWord(inlet, word));
    ++count;
  }
  if (count != 0) wire_.Publish(inlet.ring, inlet.from);
  return count != 0;
}

absl::Status ShmPort::ReceiveHello(Inlet& inlet) {
  PacketBuffer buffer;
  ReceiveResult packet = ReceivePacket(inlet.socket.get(), buffer);
  if (packet.kind != ReceiveResult::Kind::kPacket) return absl::OkStatus();  // its reader complains
  return TakeHello(inlet, buffer, std::move(packet));
}

void ShmPort::ReceiveHellos() {
  for (Inlet& inlet : inlets_) {
    if (!inlet.greeted && inlet.socket) Fail(inlet, ReceiveHello(inlet));
  }
}

absl::Status ShmPort::TakeHello(Inlet& inlet, const PacketBuffer& buffer, ReceiveResult packet) {
  inlet.greeted = true;
  ShmHello hello;
  if (packet.bytes != sizeof(hello) || packet.descriptors.size() != kMemoryUses) {
    return absl::InternalError("it is no hello");
  }
  std::memcpy(&hello, buffer.data(), sizeof(hello));
  if (hello.magic != kShmMagic || hello.version != kShmVersion) {
    return Internal("it speaks version ", hello.version, " of the protocol, not ", kShmVersion);
  }
  if (hello.worker != inlet.from.value || hello.workers != mailbox_.workers()) {
    return Internal("it calls itself worker ", hello.worker, " of ", hello.workers, ", not of ",
                    mailbox_.workers());
  }
  for (int i = 0; i < kMemoryUses; ++i) {
    const auto use = static_cast<MemoryUse>(i);
    RZ_ASSIGN_OR_RETURN(MappedMemory view,
                        MapShmArena(use, hello.arena_bytes[i], packet.descriptors[i]));
    const std::lock_guard<std::mutex> lock(views_mutex_);
    views_[{inlet.from, use}] = std::move(view);
  }
  return absl::OkStatus();
}

absl::Status ShmPort::TakeWord(Inlet& inlet, const RingWord& word) {
  if (inlet.in_text) {
    const size_t missing = inlet.token.bytes - inlet.text.size();
    inlet.text.append(reinterpret_cast<const char*>(word.data()), std::min(missing, word.size()));
    if (inlet.text.size() < inlet.token.bytes) return absl::OkStatus();
    inlet.in_text = false;
    return TakeToken(inlet);
  }
  std::memcpy(&inlet.token, word.data(), sizeof(inlet.token));
  inlet.text.clear();
  const ShmToken::Type type = inlet.token.type;
  const bool has_text = type == ShmToken::Type::kNote || type == ShmToken::Type::kSmall;
  if (!has_text || inlet.token.bytes == 0) return TakeToken(inlet);
  if (inlet.token.bytes > kMaxTextBytes) return absl::InternalError("its text is too long");
  inlet.in_text = true;
  return absl::OkStatus();
}

absl::Status ShmPort::TakeToken(Inlet& inlet) {
  const ShmToken& token = inlet.token;
  const WorkerId from = inlet.from;
  // It was written before the first word, but on the socket.
  if (!inlet.greeted) RZ_RETURN_IF_ERROR(ReceiveHello(inlet));
  if (token.kind >= kMaxMessageKinds) return absl::InternalError("its kind is unknown");
  switch (token.type) {
    case ShmToken::Type::kNote: return TakeNote(inlet);
    case ShmToken::Type::kBlock: return TakeBlock(from, token);
    case ShmToken::Type::kSmall: return TakeSmall(inlet);
    case ShmToken::Type::kTaken:
      mailbox_.OnSent(from, token.kind, token.number);
      return absl::OkStatus();
    case ShmToken::Type::kWord:
      ReceiveHellos();
      return mailbox_.OnNextBlock(from, {.key = {token.kind, token.tag}, .is_word = true});
    default: return absl::InternalError("its type is unknown");
  }
}

absl::Status ShmPort::TakeNote(const Inlet& inlet) {
  const auto kind = static_cast<Note::Kind>(inlet.token.kind);
  const int code = inlet.token.code;
  if (kind > Note::Kind::kAnswer) return absl::InternalError("its kind is unknown");
  if (kind == Note::Kind::kAbort && (code < 1 || code > kMaxCode)) {
    return absl::InternalError("its code is unknown");
  }
  mailbox_.OnNote(inlet.from, {.kind = kind,
                               .code = static_cast<absl::StatusCode>(code),
                               .number = inlet.token.tag,
                               .text = inlet.text});
  return absl::OkStatus();
}

absl::Status ShmPort::TakeBlock(WorkerId from, const ShmToken& token) {
  if (token.use >= kMemoryUses) return absl::InternalError("it names memory that does not exist");
  const MappedMemory view = MemoryOf(from, static_cast<MemoryUse>(token.use));
  const std::span<const std::byte> memory = view.bytes;
  if (token.offset > memory.size() || token.bytes > memory.size() - token.offset) {
    return Internal("it names ", token.bytes, " bytes at ", token.offset, " of memory that has ",
                    memory.size());
  }
  return mailbox_.OnNextBlock(
      from,
      {.key = {token.kind, token.tag}, .bytes = token.bytes, .data = memory.data() + token.offset});
}

absl::Status ShmPort::TakeSmall(const Inlet& inlet) {
  const std::string& payload = inlet.text;
  if (payload.size() > kShmSmallBytes) return absl::InternalError("its payload is too large");
  return mailbox_.OnNextBlock(inlet.from,
                              {.key = {inlet.token.kind, inlet.token.tag},
                               .bytes = payload.size(),
                               .data = reinterpret_cast<const std::byte*>(payload.data()),
                               .passes = true});
}

MappedMemory ShmPort::MemoryOf(WorkerId owner, MemoryUse use) const {
  const std::lock_guard<std::mutex> lock(views_mutex_);
  const auto found = views_.find({owner, use});
  return found == views_.end() ? MappedMemory() : found->second;
}

bool ShmPort::Maps(std::span<const std::byte> block) const {
  const std::lock_guard<std::mutex> lock(views_mutex_);
  return std::ranges::any_of(views_,
                             [&](const auto& view) { return LiesIn(block, view.second.bytes); });
}

absl::StatusOr<std::unique_ptr<Transport>> CreateShmTransport(ShmEndpoint endpoint,
                                                              const TransportOptions& options) {
  const WorkerId self = endpoint.self;
  const int workers = static_cast<int>(endpoint.sockets.size());
  RZ_RETURN_IF_ERROR(CheckPeerTimeout(options));
  if (options.memory != MemoryKind::kHost) {
    return absl::InvalidArgumentError("shm carries memory of the host, not of a GPU");
  }
  RZ_ASSIGN_OR_RETURN(const ShmArenas memory, MakeShmArenas(self, options));
  const Arenas arenas = {memory[0].arena, memory[1].arena};
  auto wire = std::make_unique<ShmWire>(self, endpoint.Members(), endpoint.rings, arenas);
  Mailbox::Parts parts = {self, workers, options, arenas, *wire};
  auto transport = std::make_unique<ShmTransport>(std::move(parts), std::move(wire));
  RZ_RETURN_IF_ERROR(transport->Open(std::move(endpoint), memory, options));
  return transport;
}

}  // namespace ringzero
