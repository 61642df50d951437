// The message thread of one worker: hellos, tokens, deaths.
#include "p2p/shm_port.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr std::chrono::seconds kFlushLimit(1);
constexpr int kPacketsPerTurn = 64;  // then the next peer has its turn

ShmHello HelloOf(const ShmPortOptions& options) {
  ShmHello hello;
  hello.worker = options.mailbox->self().value;
  hello.workers = options.mailbox->workers();
  for (int i = 0; i < kMemoryUses; ++i) hello.arena_bytes[i] = options.arenas[i]->bytes;
  for (int kind = 0; kind < kMaxMessageKinds; ++kind) hello.slots[kind] = options.slots[kind];
  return hello;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmPort>> ShmPort::Create(const ShmPortOptions& options) {
  const ShmHello hello = HelloOf(options);
  std::vector<int> files;
  for (const ShmArena* arena : options.arenas) {
    files.push_back(arena->files.data.get());
    files.push_back(arena->files.counts.get());
  }
  for (const WorkerId peer : options.wire->peers()) {
    RZ_RETURN_IF_ERROR(options.wire->SendHello(peer, hello, files));
  }
  return std::unique_ptr<ShmPort>(new ShmPort(options));
}

ShmPort::ShmPort(const ShmPortOptions& options)
    : mailbox_(options.mailbox),
      wire_(options.wire),
      arenas_({options.arenas[0]->arena.get(), options.arenas[1]->arena.get()}),
      heartbeat_(mailbox_->self(), options.board, {options.peer_timeout}),
      greeted_(mailbox_->workers(), true),
      hello_deadline_(Clock::now() + options.hello_limit),
      hello_limit_(options.hello_limit) {
  for (const WorkerId peer : wire_->peers()) greeted_[peer.value] = false;
  thread_ = std::thread([this] { Run(); });
}

void ShmPort::Stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  wire_->Wake();
  thread_.join();
  wire_->Disconnect();
}

std::chrono::milliseconds ShmPort::WaitLimit() const {
  if (stopping_) return std::chrono::milliseconds(10);
  Clock::time_point until = heartbeat_.next();
  for (const bool greeted : greeted_) {
    if (!greeted) until = std::min(until, hello_deadline_);
  }
  return std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
}

void ShmPort::Run() {
  Clock::time_point stop_by = Clock::time_point::max();
  while (true) {
    const ShmWire::News news = wire_->Wait(WaitLimit());
    // Read before the callbacks run: what a destructor has made ready is among them.
    const bool stopping = stopping_;
    if (stopping && stop_by == Clock::time_point::max()) stop_by = Clock::now() + kFlushLimit;
    for (const ShmToken& token : news.from_myself) {
      PacketBuffer buffer;
      std::memcpy(buffer.data(), &token, sizeof(token));
      const absl::Status taken = TakeToken(mailbox_->self(), buffer, sizeof(token));
      if (!taken.ok()) mailbox_->Fail(taken);
    }
    for (const WorkerId from : news.readable) ReadFrom(from);
    CheckHellos();
    CheckPulses();
    mailbox_->RunCallbacks();
    if (stopping && (wire_->Flushed() || Clock::now() > stop_by)) return;
  }
}

void ShmPort::CheckHellos() {
  for (int worker = 0; worker < mailbox_->workers(); ++worker) {
    if (greeted_[worker] || Clock::now() < hello_deadline_) continue;
    mailbox_->Fail(absl::DeadlineExceededError(absl::StrCat(
        "worker ", worker, " has not said hello within ", hello_limit_.count(), " ms")));
    greeted_.assign(greeted_.size(), true);  // said once
  }
}

void ShmPort::CheckPulses() {
  for (const Silence& silence : heartbeat_.Tick(Clock::now())) {
    wire_->GiveUp(silence.worker);
    mailbox_->OnSilence(silence.worker, silence.lasted);
  }
}

void ShmPort::ReadFrom(WorkerId from) {
  PacketBuffer buffer;
  for (int i = 0; i < kPacketsPerTurn; ++i) {
    ReceiveResult packet = wire_->Receive(from, buffer);
    if (packet.kind == ReceiveResult::Kind::kNothing) return;
    if (packet.kind == ReceiveResult::Kind::kClosed) {
      wire_->ClosePeer(from);
      greeted_[from.value] = true;  // it never will: that is told as a death
      return mailbox_->OnDisconnect(from);
    }
    const size_t bytes = packet.bytes;
    const absl::Status taken = greeted_[from.value] ? TakeToken(from, buffer, bytes)
                                                    : TakeHello(from, buffer, std::move(packet));
    if (!taken.ok()) {
      mailbox_->Fail(Annotate(taken, absl::StrCat("a packet of worker ", from.value)));
    }
  }
}

absl::Status ShmPort::TakeHello(WorkerId from, const PacketBuffer& buffer, ReceiveResult packet) {
  greeted_[from.value] = true;
  ShmHello hello;
  if (packet.bytes != sizeof(hello) || packet.descriptors.size() != 2 * kMemoryUses) {
    return absl::InternalError("it is no hello");
  }
  std::memcpy(&hello, buffer.data(), sizeof(hello));
  if (hello.magic != kShmMagic || hello.version != kShmVersion) {
    return absl::InternalError(
        absl::StrCat("it speaks version ", hello.version, " of the protocol, not ", kShmVersion));
  }
  if (hello.worker != from.value || hello.workers != mailbox_->workers()) {
    return absl::InternalError(absl::StrCat("it calls itself worker ", hello.worker, " of ",
                                            hello.workers, ", not of ", mailbox_->workers()));
  }
  for (int i = 0; i < kMemoryUses; ++i) {
    const ArenaFiles files = {std::move(packet.descriptors[2 * i]),
                              std::move(packet.descriptors[2 * i + 1])};
    RZ_ASSIGN_OR_RETURN(ArenaPtr view,
                        MapShmArena(from, static_cast<MemoryUse>(i), hello.arena_bytes[i], files));
    views_.Add(std::move(view));
  }
  for (int kind = 0; kind < kMaxMessageKinds; ++kind) {
    mailbox_->OnCredit(from, static_cast<uint8_t>(kind), hello.slots[kind]);
  }
  return absl::OkStatus();
}

absl::Status ShmPort::TakeToken(WorkerId from, const PacketBuffer& buffer, size_t bytes) {
  ShmToken token;
  if (bytes < sizeof(token)) return absl::InternalError("it is too short");
  std::memcpy(&token, buffer.data(), sizeof(token));
  if (token.kind >= kMaxMessageKinds) return absl::InternalError("its kind is unknown");
  const std::string text(reinterpret_cast<const char*>(buffer.data()) + sizeof(token),
                         bytes - sizeof(token));
  switch (token.type) {
    case ShmToken::Type::kMessage: return TakeMessage(from, token);
    case ShmToken::Type::kCredit: mailbox_->OnCredit(from, token.kind, 1); return absl::OkStatus();
    case ShmToken::Type::kAbort:
      mailbox_->OnAbort(from, absl::Status(static_cast<absl::StatusCode>(token.code), text));
      return absl::OkStatus();
    case ShmToken::Type::kQuestion:
      mailbox_->OnQuestion(from, token.tag, text);
      return absl::OkStatus();
    case ShmToken::Type::kAnswer:
      mailbox_->OnAnswer(from, token.tag, text);
      return absl::OkStatus();
    case ShmToken::Type::kGoodbye: mailbox_->OnGoodbye(from); return absl::OkStatus();
  }
  return absl::InternalError("its type is unknown");
}

absl::Status ShmPort::ReceiveHello(WorkerId from) {
  PacketBuffer buffer;
  ReceiveResult packet = wire_->Receive(from, buffer);
  if (packet.kind != ReceiveResult::Kind::kPacket) return absl::OkStatus();  // Adopt complains
  return TakeHello(from, buffer, std::move(packet));
}

absl::Status ShmPort::TakeMessage(WorkerId from, const ShmToken& token) {
  const WorkerId origin(token.origin);
  if (token.use >= kMemoryUses || origin.value < 0 || origin.value >= mailbox_->workers()) {
    return absl::InternalError("it names memory that does not exist");
  }
  const auto use = static_cast<MemoryUse>(token.use);
  // The origin's hello was written before this block left it, but on another socket.
  if (!greeted_[origin.value]) RZ_RETURN_IF_ERROR(ReceiveHello(origin));
  const ArenaBlock block = {token.block, token.offset, token.bytes};
  RZ_ASSIGN_OR_RETURN(Buffer buffer, origin == mailbox_->self() ? arenas_[token.use]->Adopt(block)
                                                                : views_.Adopt(origin, use, block));
  const auto ownership = token.ownership == 0 ? Ownership::kShared : Ownership::kOwned;
  mailbox_->OnParcel(from, {{token.kind, token.tag}, ownership, std::move(buffer)});
  return absl::OkStatus();
}

}  // namespace ringzero
