// The message thread of one worker: hellos, tokens, deaths.
#include "p2p/shm_transport.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/arena_views.h"
#include "p2p/mailbox_transport.h"
#include "p2p/shm_arena.h"
#include "p2p/shm_packet.h"
#include "p2p/shm_wire.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kDrainLimit(5);
constexpr std::chrono::seconds kFlushLimit(1);
constexpr int kPacketsPerTurn = 64;  // then the next peer has its turn

using PacketBuffer = std::array<std::byte, sizeof(ShmToken) + kMaxTextBytes>;
static_assert(sizeof(ShmHello) <= sizeof(PacketBuffer));

struct ShmParts {
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<ShmWire> wire;
  ArenaPtr parameters;
  ArenaPtr sums;
  std::chrono::milliseconds hello_limit;
  Heartbeat heartbeat;
};

class ShmTransport final : public MailboxTransport {
 public:
  explicit ShmTransport(ShmParts parts)
      : MailboxTransport(std::move(parts.mailbox), std::move(parts.parameters),
                         std::move(parts.sums)),
        wire_(std::move(parts.wire)),
        heartbeat_(std::move(parts.heartbeat)),
        greeted_(workers(), false),
        hello_deadline_(Clock::now() + parts.hello_limit),
        hello_limit_(parts.hello_limit) {
    greeted_[self().value] = true;
    thread_ = std::thread([this] { Run(); });
  }

  ~ShmTransport() override {
    mailbox().Shutdown(kDrainLimit);
    stopping_ = true;
    wire_->Wake();
    thread_.join();
    wire_->Disconnect();
  }

  std::string name() const override { return "shm"; }

 private:
  bool CanCarry(BufferCell* root) const override {
    const auto* cell = dynamic_cast<const ArenaCell*>(root);
    return cell != nullptr && (IsMine(cell->arena()) || views_.Contains(*cell));
  }

  void Run();
  std::chrono::milliseconds WaitLimit() const;
  void CheckHellos();
  void CheckPulses();
  void ReadFrom(WorkerId from);
  absl::Status ReceiveHello(WorkerId from);
  absl::Status TakeHello(WorkerId from, const PacketBuffer& buffer, ReceiveResult packet);
  absl::Status TakeToken(WorkerId from, const PacketBuffer& buffer, size_t bytes);
  absl::Status TakeMessage(WorkerId from, const ShmToken& token);

  // The message thread's, but for wire_, views_ and stopping_.
  const std::shared_ptr<ShmWire> wire_;  // shared with the mailbox, which handles keep alive
  Heartbeat heartbeat_;
  ArenaViews views_;           // of the others
  std::vector<bool> greeted_;  // by worker: its hello has come
  const Clock::time_point hello_deadline_;
  const std::chrono::milliseconds hello_limit_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

std::chrono::milliseconds ShmTransport::WaitLimit() const {
  if (stopping_) return std::chrono::milliseconds(10);
  Clock::time_point until = heartbeat_.next();
  for (const bool greeted : greeted_) {
    if (!greeted) until = std::min(until, hello_deadline_);
  }
  return std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
}

void ShmTransport::Run() {
  Clock::time_point stop_by = Clock::time_point::max();
  while (true) {
    const ShmWire::News news = wire_->Wait(WaitLimit());
    // Read before the callbacks run: what a destructor has made ready is among them.
    const bool stopping = stopping_;
    if (stopping && stop_by == Clock::time_point::max()) stop_by = Clock::now() + kFlushLimit;
    for (const ShmToken& token : news.from_myself) {
      PacketBuffer buffer;
      std::memcpy(buffer.data(), &token, sizeof(token));
      const absl::Status taken = TakeToken(self(), buffer, sizeof(token));
      if (!taken.ok()) mailbox().Fail(taken);
    }
    for (const WorkerId from : news.readable) ReadFrom(from);
    CheckHellos();
    CheckPulses();
    mailbox().RunCallbacks();
    if (stopping && (wire_->Flushed() || Clock::now() > stop_by)) return;
  }
}

void ShmTransport::CheckHellos() {
  for (int worker = 0; worker < workers(); ++worker) {
    if (greeted_[worker] || Clock::now() < hello_deadline_) continue;
    mailbox().Fail(absl::DeadlineExceededError(absl::StrCat(
        "worker ", worker, " has not said hello within ", hello_limit_.count(), " ms")));
    greeted_.assign(greeted_.size(), true);  // said once
  }
}

void ShmTransport::CheckPulses() {
  for (const Silence& silence : heartbeat_.Tick(Clock::now())) {
    wire_->GiveUp(silence.worker);
    mailbox().OnSilence(silence.worker, silence.lasted);
  }
}

void ShmTransport::ReadFrom(WorkerId from) {
  PacketBuffer buffer;
  for (int i = 0; i < kPacketsPerTurn; ++i) {
    ReceiveResult packet = wire_->Receive(from, buffer);
    if (packet.kind == ReceiveResult::Kind::kNothing) return;
    if (packet.kind == ReceiveResult::Kind::kClosed) {
      wire_->ClosePeer(from);
      greeted_[from.value] = true;  // it never will: that is told as a death
      return mailbox().OnDisconnect(from);
    }
    const size_t bytes = packet.bytes;
    const absl::Status taken = greeted_[from.value] ? TakeToken(from, buffer, bytes)
                                                    : TakeHello(from, buffer, std::move(packet));
    if (!taken.ok()) {
      mailbox().Fail(Annotate(taken, absl::StrCat("a packet of worker ", from.value)));
    }
  }
}

absl::Status ShmTransport::TakeHello(WorkerId from, const PacketBuffer& buffer,
                                     ReceiveResult packet) {
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
  if (hello.worker != from.value || hello.workers != workers()) {
    return absl::InternalError(absl::StrCat("it calls itself worker ", hello.worker, " of ",
                                            hello.workers, ", not of ", workers()));
  }
  for (int i = 0; i < kMemoryUses; ++i) {
    const ArenaFiles files = {std::move(packet.descriptors[2 * i]),
                              std::move(packet.descriptors[2 * i + 1])};
    RZ_ASSIGN_OR_RETURN(ArenaPtr view,
                        MapShmArena(from, static_cast<MemoryUse>(i), hello.arena_bytes[i], files));
    views_.Add(std::move(view));
  }
  for (int kind = 0; kind < kMaxMessageKinds; ++kind) {
    mailbox().OnCredit(from, static_cast<uint8_t>(kind), hello.slots[kind]);
  }
  return absl::OkStatus();
}

absl::Status ShmTransport::TakeToken(WorkerId from, const PacketBuffer& buffer, size_t bytes) {
  ShmToken token;
  if (bytes < sizeof(token)) return absl::InternalError("it is too short");
  std::memcpy(&token, buffer.data(), sizeof(token));
  if (token.kind >= kMaxMessageKinds) return absl::InternalError("its kind is unknown");
  const std::string text(reinterpret_cast<const char*>(buffer.data()) + sizeof(token),
                         bytes - sizeof(token));
  switch (token.type) {
    case ShmToken::Type::kMessage: return TakeMessage(from, token);
    case ShmToken::Type::kCredit: mailbox().OnCredit(from, token.kind, 1); return absl::OkStatus();
    case ShmToken::Type::kAbort:
      mailbox().OnAbort(from, absl::Status(static_cast<absl::StatusCode>(token.code), text));
      return absl::OkStatus();
    case ShmToken::Type::kQuestion:
      mailbox().OnQuestion(from, token.tag, text);
      return absl::OkStatus();
    case ShmToken::Type::kAnswer:
      mailbox().OnAnswer(from, token.tag, text);
      return absl::OkStatus();
    case ShmToken::Type::kGoodbye: mailbox().OnGoodbye(from); return absl::OkStatus();
  }
  return absl::InternalError("its type is unknown");
}

absl::Status ShmTransport::ReceiveHello(WorkerId from) {
  PacketBuffer buffer;
  ReceiveResult packet = wire_->Receive(from, buffer);
  if (packet.kind != ReceiveResult::Kind::kPacket) return absl::OkStatus();  // Adopt complains
  return TakeHello(from, buffer, std::move(packet));
}

absl::Status ShmTransport::TakeMessage(WorkerId from, const ShmToken& token) {
  const WorkerId origin(token.origin);
  if (token.use >= kMemoryUses || origin.value < 0 || origin.value >= workers()) {
    return absl::InternalError("it names memory that does not exist");
  }
  const auto use = static_cast<MemoryUse>(token.use);
  // The origin's hello was written before this block left it, but on another socket.
  if (!greeted_[origin.value]) RZ_RETURN_IF_ERROR(ReceiveHello(origin));
  const ArenaBlock block = {token.block, token.offset, token.bytes};
  RZ_ASSIGN_OR_RETURN(Buffer buffer, origin == self() ? MyArena(use).Adopt(block)
                                                      : views_.Adopt(origin, use, block));
  const auto ownership = token.ownership == 0 ? Ownership::kShared : Ownership::kOwned;
  mailbox().OnParcel(from, {{token.kind, token.tag}, ownership, std::move(buffer)});
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ShmEndpoint>> MakeShmEndpoints(int workers) {
  if (workers < 1) {
    return absl::InvalidArgumentError(absl::StrCat(workers, " workers; at least 1 is needed"));
  }
  RZ_ASSIGN_OR_RETURN(const std::shared_ptr<PulseBoard> board, PulseBoard::Create(workers));
  std::vector<ShmEndpoint> endpoints(workers);
  for (int a = 0; a < workers; ++a) {
    endpoints[a].self = WorkerId(a);
    endpoints[a].sockets.resize(workers);
    endpoints[a].board = board;
  }
  for (int a = 0; a < workers; ++a) {
    for (int b = a + 1; b < workers; ++b) {
      int pair[2] = {-1, -1};
      if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return absl::ResourceExhaustedError(
            absl::StrCat("cannot connect workers ", a, " and ", b, ": ", std::strerror(errno)));
      }
      endpoints[a].sockets[b] = UniqueFd(pair[0]);
      endpoints[b].sockets[a] = UniqueFd(pair[1]);
    }
  }
  return endpoints;
}

absl::StatusOr<std::unique_ptr<Transport>> CreateShmTransport(ShmEndpoint endpoint,
                                                              const TransportOptions& options) {
  const WorkerId self = endpoint.self;
  const int workers = static_cast<int>(endpoint.sockets.size());
  RZ_ASSIGN_OR_RETURN(const std::vector<int> slots, ResolveSlots(options));
  RZ_RETURN_IF_ERROR(CheckPeerTimeout(options));
  RZ_ASSIGN_OR_RETURN(ShmArena parameters,
                      MakeShmArena(self, MemoryUse::kParameters, options.parameter_bytes));
  RZ_ASSIGN_OR_RETURN(ShmArena sums, MakeShmArena(self, MemoryUse::kSums, options.sum_bytes));
  RZ_ASSIGN_OR_RETURN(std::shared_ptr<ShmWire> wire,
                      ShmWire::Create(self, std::move(endpoint.sockets)));
  ShmHello hello;
  hello.worker = self.value;
  hello.workers = workers;
  hello.arena_bytes[0] = options.parameter_bytes;
  hello.arena_bytes[1] = options.sum_bytes;
  for (int kind = 0; kind < kMaxMessageKinds; ++kind) hello.slots[kind] = slots[kind];
  const std::array<int, 4> files = {parameters.files.data.get(), parameters.files.counts.get(),
                                    sums.files.data.get(), sums.files.counts.get()};
  for (int worker = 0; worker < workers; ++worker) {
    if (worker != self.value) RZ_RETURN_IF_ERROR(wire->SendHello(WorkerId(worker), hello, files));
  }
  auto mailbox = std::make_shared<Mailbox>(self, workers, options.on_failure, wire);
  for (int kind = 0; kind < kMaxMessageKinds; ++kind) {
    mailbox->OnCredit(self, static_cast<uint8_t>(kind), slots[kind]);
  }
  ShmParts parts = {.mailbox = std::move(mailbox),
                    .wire = std::move(wire),
                    .parameters = std::move(parameters.arena),
                    .sums = std::move(sums.arena),
                    .hello_limit = endpoint.hello_limit,
                    .heartbeat = Heartbeat(self, endpoint.board, {options.peer_timeout})};
  return std::make_unique<ShmTransport>(std::move(parts));
}

}  // namespace ringzero
