// The message thread of one worker: hellos, words, deaths.
#include "p2p/shm/shm_port.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/system_names.h"

namespace ringzero {
namespace {

constexpr std::chrono::seconds kFlushLimit(1);
constexpr std::chrono::milliseconds kSocketLookInterval(
    1);                                 // at sockets, when no thread watches them
constexpr int kWordsPerTurn = 64;       // then the next peer has its turn
constexpr uint32_t kPollsPerTick = 16;  // of looks at the clock: one costs more than a poll
constexpr int kMaxCode = static_cast<int>(absl::StatusCode::kUnauthenticated);
constexpr int kLastWords = 4 * static_cast<int>(ShmRings::kWords);  // of a peer that is gone

ShmHello HelloOf(const ShmPortOptions& options) {
  ShmHello hello;
  hello.worker = options.mailbox->self().value;
  hello.workers = options.mailbox->workers();
  for (int i = 0; i < kMemoryUses; ++i) hello.arena_bytes[i] = options.arenas[i]->bytes;
  return hello;
}

bool HasText(ShmToken::Type type) {
  return type == ShmToken::Type::kAbort || type == ShmToken::Type::kQuestion ||
         type == ShmToken::Type::kAnswer || type == ShmToken::Type::kSmall;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmPort>> ShmPort::Create(ShmEndpoint endpoint,
                                                         const ShmPortOptions& options) {
  std::unique_ptr<ShmPort> port(new ShmPort(std::move(endpoint), options));
  RZ_RETURN_IF_ERROR(port->SayHello(options));
  std::vector<UniqueFd> watched;  // by member; lent, not owned
  for (const Inlet& inlet : port->inlets_) watched.emplace_back(inlet.socket.get());
  std::function<void()> on_news;
  if (options.progress == ProgressMode::kThread) {
    on_news = [wire = options.wire] { wire->bell().RingForSure(); };
  }
  auto watch = SocketWatch::Create(watched, std::move(on_news));
  for (UniqueFd& each : watched) each.Release();
  if (!watch.ok()) return watch.status();
  port->watch_ = *std::move(watch);
  port->stopped_ = false;
  if (options.progress == ProgressMode::kThread) {
    port->thread_ = NamedThread("rz-messages", [raw = port.get()] { raw->Run(); });
  }
  return port;
}

ShmPort::ShmPort(ShmEndpoint endpoint, const ShmPortOptions& options)
    : mailbox_(options.mailbox),
      wire_(options.wire),
      arenas_({options.arenas[0]->arena.get(), options.arenas[1]->arena.get()}),
      progress_(options.progress),
      heartbeat_(mailbox_->self(), endpoint.board, {options.peer_timeout}),
      hello_deadline_(endpoint.hello_limit),
      hello_limit_(endpoint.hello_limit),
      stopped_(true) {
  wire_->SendFrom({arenas_[0], arenas_[1]});
  for (const WorkerId from : wire_->members()) {
    const bool is_self = from == mailbox_->self();
    inlets_.push_back({.from = from,
                       .socket = std::move(endpoint.sockets[from.value]),
                       .ring = wire_->ReaderFrom(from),
                       .greeted = is_self});
    inlets_.back().text.reserve(kMaxTextBytes);
    if (!is_self) ++ungreeted_;
  }
}

absl::Status ShmPort::SayHello(const ShmPortOptions& options) {
  const ShmHello hello = HelloOf(options);
  std::vector<int> files;
  for (const ShmArena* arena : options.arenas) files.push_back(arena->file.get());
  for (const Inlet& inlet : inlets_) {
    if (!inlet.socket) continue;
    const auto bytes = std::as_bytes(std::span(&hello, 1));
    if (SendPacket(inlet.socket.get(), bytes, files) == SendResult::kFull) {
      return Unavailable("cannot say hello to worker ", inlet.from.value, ": its socket is full");
    }  // a broken one is found closed when it is read
  }
  return absl::OkStatus();
}

void ShmPort::Stop() {
  if (std::exchange(stopped_, true)) return;
  stopping_ = true;
  wire_->Wake();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    Run();  // kCaller: we are the message thread
  }
  watch_.reset();
  wire_->Disconnect();
  for (Inlet& inlet : inlets_) inlet.socket.Reset();
}

std::chrono::nanoseconds ShmPort::WaitLimit() const {
  if (stopping_) return std::chrono::milliseconds(10);
  if (progress_ == ProgressMode::kCaller) return kSocketLookInterval;  // nobody rings for a socket
  const std::chrono::nanoseconds next = heartbeat_.next() - Clock::now();
  return ungreeted_ == 0 ? next : std::min<std::chrono::nanoseconds>(next, hello_deadline_.Look());
}

bool ShmPort::HasNews() const {
  if (watch_->HasNews() || stopping_) return true;
  return std::any_of(inlets_.begin(), inlets_.end(),
                     [](const Inlet& inlet) { return inlet.ring.HasWord(); });
}

void ShmPort::Run() {
  std::optional<Deadline> stop_by;
  while (true) {
    // Read before the callbacks run: what a destructor has made ready is among them.
    const bool stopping = stopping_;
    const bool busy = Turn();
    Tick(Clock::now());
    if (stopping && !stop_by.has_value()) stop_by.emplace(kFlushLimit);
    if (stopping && (!wire_->HasWaiting() || stop_by->over())) return;
    if (busy) continue;
    wire_->Sleep(WaitLimit(), [&] { return stopping ? watch_->HasNews() : HasNews(); });
  }
}

bool ShmPort::Poll() {
  if (progress_ == ProgressMode::kThread) return false;
  const bool busy = Turn();
  if (++polls_ % kPollsPerTick == 0) Tick(Clock::now());
  return busy;
}

void ShmPort::PollWhile(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  if (progress_ == ProgressMode::kThread) return;
  const Deadline end(limit);
  while (condition() && !end.over()) {
    const bool busy = Turn();
    Tick(Clock::now());
    if (busy) continue;
    const auto most = std::min<std::chrono::nanoseconds>(WaitLimit(), end.Look());
    wire_->Sleep(most, [&] { return HasNews(); });
  }
}

bool ShmPort::Turn() {
  bool busy = watch_->HasNews() && ReadSockets();
  for (Inlet& inlet : inlets_) busy = ReadRing(inlet, kWordsPerTurn) || busy;
  if (wire_->HasWaiting()) busy = wire_->Flush() || busy;
  busy = wire_->TakeWoken() || busy;
  if (busy) mailbox_->RunCallbacks();
  return busy;
}

void ShmPort::Tick(Clock::time_point now) {
  if (progress_ == ProgressMode::kCaller && now >= next_look_) {
    watch_->Look();
    next_look_ = now + kSocketLookInterval;
  }
  const std::vector<Silence> silences = heartbeat_.Tick(now);
  for (const Silence& silence : silences) {
    if (InletOf(silence.worker) == nullptr) continue;
    wire_->GiveUp(silence.worker);
    mailbox_->OnSilence(silence.worker, silence.lasted);
  }
  if (ungreeted_ != 0) CheckHellos();
}

void ShmPort::CheckHellos() {
  if (!hello_deadline_.over()) return;
  for (Inlet& inlet : inlets_) {
    if (inlet.greeted) continue;
    mailbox_->Fail(absl::DeadlineExceededError(absl::StrCat(
        "worker ", inlet.from.value, " has not said hello within ", hello_limit_.count(), " ms")));
    inlet.greeted = true;  // said once
  }
  ungreeted_ = 0;
}

ShmPort::Inlet* ShmPort::InletOf(WorkerId worker) {
  const auto found = std::find_if(inlets_.begin(), inlets_.end(),
                                  [worker](const Inlet& inlet) { return inlet.from == worker; });
  return found == inlets_.end() ? nullptr : &*found;
}

void ShmPort::Fail(const Inlet& inlet, const absl::Status& why) {
  if (why.ok()) return;
  mailbox_->Fail(Annotate(why, absl::StrCat("a packet of worker ", inlet.from.value)));
}

bool ShmPort::ReadSockets() {
  watch_->Begin();
  bool any = false;
  for (size_t i = 0; i < inlets_.size(); ++i) {
    if (!watch_->Take(i)) continue;
    ReadSocket(inlets_[i]);
    any = true;
  }
  return any;
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
  if (!inlet.greeted) --ungreeted_;
  inlet.greeted = true;  // it never will: that is told as a death
  // Its last words were written before it closed.
  ReadRing(inlet, kLastWords);
  wire_->ClosePeer(inlet.from);
  mailbox_->OnDisconnect(inlet.from);
}

bool ShmPort::ReadRing(Inlet& inlet, int most) {
  RingWord word;
  int count = 0;
  while (count < most && inlet.ring.Pop(word)) {
    Fail(inlet, TakeWord(inlet, word));
    ++count;
  }
  if (count != 0) wire_->Publish(inlet.ring, inlet.from);
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
  --ungreeted_;
  ShmHello hello;
  if (packet.bytes != sizeof(hello) || packet.descriptors.size() != kMemoryUses) {
    return absl::InternalError("it is no hello");
  }
  std::memcpy(&hello, buffer.data(), sizeof(hello));
  if (hello.magic != kShmMagic || hello.version != kShmVersion) {
    return Internal("it speaks version ", hello.version, " of the protocol, not ", kShmVersion);
  }
  if (hello.worker != inlet.from.value || hello.workers != mailbox_->workers()) {
    return Internal("it calls itself worker ", hello.worker, " of ", hello.workers, ", not of ",
                    mailbox_->workers());
  }
  for (int i = 0; i < kMemoryUses; ++i) {
    const auto use = static_cast<MemoryUse>(i);
    RZ_ASSIGN_OR_RETURN(MappedMemory view,
                        MapShmArena(use, hello.arena_bytes[i], packet.descriptors[i]));
    views_.Add(inlet.from, use, std::move(view));
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
  if (!HasText(inlet.token.type) || inlet.token.bytes == 0) return TakeToken(inlet);
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
    case ShmToken::Type::kBlock: return TakeBlock(from, token);
    case ShmToken::Type::kSmall: return TakeSmall(from, token, inlet.text);
    case ShmToken::Type::kTaken:
      mailbox_->OnSent(from, token.kind, token.number);
      return absl::OkStatus();
    case ShmToken::Type::kAbort:
      if (token.code < 1 || token.code > kMaxCode)
        return absl::InternalError("its code is unknown");
      mailbox_->OnAbort(from, absl::Status(static_cast<absl::StatusCode>(token.code), inlet.text));
      return absl::OkStatus();
    case ShmToken::Type::kQuestion:
      mailbox_->OnQuestion(from, token.tag, inlet.text);
      return absl::OkStatus();
    case ShmToken::Type::kAnswer:
      mailbox_->OnAnswer(from, token.tag, inlet.text);
      return absl::OkStatus();
    case ShmToken::Type::kGoodbye: mailbox_->OnGoodbye(from); return absl::OkStatus();
    case ShmToken::Type::kWord:
      ReceiveHellos();
      mailbox_->OnWord(from, {token.kind, token.tag});
      return absl::OkStatus();
  }
  return absl::InternalError("its type is unknown");
}

absl::Status ShmPort::TakeBlock(WorkerId from, const ShmToken& token) {
  if (token.use >= kMemoryUses) return absl::InternalError("it names memory that does not exist");
  const bool is_own = from == mailbox_->self();
  const std::span<const std::byte> memory =
      is_own ? arenas_[token.use]->memory()
             : views_.MemoryOf(from, static_cast<MemoryUse>(token.use)).bytes;
  if (token.offset > memory.size() || token.bytes > memory.size() - token.offset) {
    return Internal("it names ", token.bytes, " bytes at ", token.offset, " of memory that has ",
                    memory.size());
  }
  return mailbox_->OnNextBlock(
      from,
      {.key = {token.kind, token.tag}, .bytes = token.bytes, .data = memory.data() + token.offset});
}

absl::Status ShmPort::TakeSmall(WorkerId from, const ShmToken& token, const std::string& payload) {
  if (payload.size() > kShmSmallBytes) return absl::InternalError("its payload is too large");
  return mailbox_->OnNextBlock(from, {.key = {token.kind, token.tag},
                                      .bytes = payload.size(),
                                      .data = reinterpret_cast<const std::byte*>(payload.data()),
                                      .passes = true});
}

}  // namespace ringzero
