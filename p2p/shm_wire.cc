// Writes at once where it can, queues where the socket is full, waits with epoll.
#include "p2p/shm_wire.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "p2p/arena.h"

namespace ringzero {
namespace {

constexpr uint32_t kWakeEvent = 0xFFFFFFFF;  // epoll's data for wake_; otherwise a worker's number

std::span<const std::byte> BytesOf(const std::string& packet) {
  return {reinterpret_cast<const std::byte*>(packet.data()), packet.size()};
}

}  // namespace

absl::StatusOr<std::shared_ptr<ShmWire>> ShmWire::Create(WorkerId self,
                                                         std::vector<UniqueFd> sockets) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !wake) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make an epoll or an eventfd: ", std::strerror(errno)));
  }
  std::shared_ptr<ShmWire> wire(
      new ShmWire(self, std::move(epoll), std::move(wake), std::move(sockets)));
  RZ_RETURN_IF_ERROR(wire->Watch());
  return wire;
}

ShmWire::ShmWire(WorkerId self, UniqueFd epoll, UniqueFd wake, std::vector<UniqueFd> sockets)
    : self_(self), epoll_(std::move(epoll)), wake_(std::move(wake)), peers_(sockets.size()) {
  for (size_t w = 0; w < sockets.size(); ++w) {
    if (sockets[w]) connected_.emplace_back(static_cast<int>(w));
    peers_[w].socket = std::move(sockets[w]);
  }
}

absl::Status ShmWire::Watch() {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u32 = kWakeEvent;
  int rc = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  for (size_t worker = 0; rc == 0 && worker < peers_.size(); ++worker) {
    if (!peers_[worker].socket) continue;
    event.data.u32 = static_cast<uint32_t>(worker);
    rc = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, peers_[worker].socket.get(), &event);
  }
  if (rc == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot watch a socket: ", std::strerror(errno)));
}

void ShmWire::WatchWritable(int worker, bool writable) {
  epoll_event event = {};
  event.events = writable ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.u32 = static_cast<uint32_t>(worker);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peers_[worker].socket.get(), &event);
}

bool ShmWire::Send(WorkerId to, const ShmToken& token, const std::string& text) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!open_) return false;
    if (to != self_) {
      Peer& peer = peers_[to.value];
      if (!peer.socket) return false;
      Packet packet(reinterpret_cast<const char*>(&token), sizeof(token));
      packet += text;
      peer.waiting.push_back(std::move(packet));
      if (peer.waiting.size() == 1) Flush(peer, to.value);
      return true;
    }
    from_myself_.push_back(token);
  }
  Wake();
  return true;
}

void ShmWire::Flush(Peer& peer, int worker) {
  while (!peer.waiting.empty()) {
    const SendResult sent = SendPacket(peer.socket.get(), BytesOf(peer.waiting.front()));
    if (sent == SendResult::kFull && !peer.given_up) return WatchWritable(worker, true);
    if (sent == SendResult::kFull) return peer.waiting.clear();
    // A broken one is noticed as closed by whoever reads it; until then everything to it is lost.
    if (sent == SendResult::kBroken) return peer.waiting.clear();
    peer.waiting.pop_front();
  }
}

void ShmWire::SendParcel(WorkerId to, Parcel parcel) {
  auto* cell = dynamic_cast<ArenaCell*>(parcel.buffer.cell());
  RZ_CHECK(cell != nullptr, "only blocks of arenas travel: " + ToString(parcel.key));
  ShmToken token;
  token.kind = parcel.key.kind;
  token.ownership = static_cast<uint8_t>(parcel.ownership);
  token.use = static_cast<uint8_t>(cell->arena().use());
  token.origin = cell->arena().owner().value;
  token.block = cell->block().index;
  token.tag = parcel.key.tag;
  token.offset = cell->block().offset;
  token.bytes = cell->block().bytes;
  if (!Send(to, token)) return;
  parcel.buffer.Detach();
  cell->SendHolder();
}

void ShmWire::SendCredit(WorkerId to, uint8_t kind) {
  ShmToken token;
  token.type = ShmToken::Type::kCredit;
  token.kind = kind;
  Send(to, token);
}

void ShmWire::SendAbort(WorkerId to, const absl::Status& why) {
  ShmToken token;
  token.type = ShmToken::Type::kAbort;
  token.code = static_cast<int32_t>(why.code());
  Send(to, token, std::string(why.message().substr(0, kMaxTextBytes)));
}

void ShmWire::SendGoodbye(WorkerId to) {
  ShmToken token;
  token.type = ShmToken::Type::kGoodbye;
  Send(to, token);
}

void ShmWire::SendQuestion(WorkerId to, uint64_t number, const std::string& question) {
  ShmToken token;
  token.type = ShmToken::Type::kQuestion;
  token.tag = number;
  Send(to, token, question);
}

void ShmWire::SendAnswer(WorkerId to, uint64_t number, const std::string& answer) {
  ShmToken token;
  token.type = ShmToken::Type::kAnswer;
  token.tag = number;
  Send(to, token, answer);
}

void ShmWire::Wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable anyway.
  (void)!write(wake_.get(), &one, sizeof(one));
}

absl::Status ShmWire::SendHello(WorkerId to, const ShmHello& hello,
                                std::span<const int> descriptors) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&hello, 1));
  if (SendPacket(peers_[to.value].socket.get(), bytes, descriptors) == SendResult::kFull) {
    return absl::UnavailableError(
        absl::StrCat("cannot say hello to worker ", to.value, ": its socket is full"));
  }
  return absl::OkStatus();  // a broken one is found closed when it is read
}

ShmWire::News ShmWire::Wait(std::chrono::milliseconds limit) {
  std::array<epoll_event, 64> events;
  const int timeout = static_cast<int>(std::clamp<int64_t>(limit.count(), 0, 3'600'000));
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), timeout);
  News news;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u32 == kWakeEvent) {
      uint64_t ignored = 0;
      (void)!read(wake_.get(), &ignored, sizeof(ignored));
      continue;
    }
    const int worker = static_cast<int>(events[i].data.u32);
    Peer& peer = peers_[worker];
    if ((events[i].events & EPOLLOUT) != 0) {
      WatchWritable(worker, false);
      Flush(peer, worker);
    }
    if ((events[i].events & ~EPOLLOUT) != 0) news.readable.push_back(WorkerId(worker));
  }
  news.from_myself.swap(from_myself_);
  return news;
}

ReceiveResult ShmWire::Receive(WorkerId from, std::span<std::byte> buffer) {
  // Only the message thread closes sockets, and this is it: no lock.
  const UniqueFd& socket = peers_[from.value].socket;
  if (!socket) return ReceiveResult();
  return ReceivePacket(socket.get(), buffer);
}

void ShmWire::ClosePeer(WorkerId peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  peers_[peer.value].socket.Reset();  // which takes it out of the epoll, too
  peers_[peer.value].waiting.clear();
}

void ShmWire::GiveUp(WorkerId peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  peers_[peer.value].given_up = true;
  if (!peers_[peer.value].socket) return;
  Flush(peers_[peer.value], peer.value);
  WatchWritable(peer.value, false);
}

bool ShmWire::Flushed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.waiting.empty(); });
}

void ShmWire::Disconnect() {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = false;
  for (Peer& peer : peers_) {
    peer.socket.Reset();
    peer.waiting.clear();
  }
}

}  // namespace ringzero
