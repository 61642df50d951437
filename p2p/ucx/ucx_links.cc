// The sending side: messages, fetches, last words.
#include "p2p/ucx/ucx_links.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr size_t kOperationsPerPeer = 32;

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// What UCX also says of one whose end it has not understood yet.
bool MayBeItsEnd(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status);
}

}  // namespace

UcxLinks::UcxLinks(const UcxPortOptions& options)
    : options_(options),
      self_(options.seat.self),
      peers_(options.seat.workers),
      awake_(std::chrono::steady_clock::now(), options.peer_timeout / 5) {
  std::random_device random;
  for (int w = 0; w < options.seat.workers; ++w) {
    Peer& peer = peers_[w];
    peer.worker = WorkerId(w);
    peer.nonce = uint64_t{random()} << 32 | random();
  }
  for (const WorkerId peer : options.peers) peers_[peer.value].here = peer != self_;
}

void UcxLinks::Begin(Mailbox* mailbox, UcxWorker* worker, std::vector<std::string> nonces) {
  mailbox_ = mailbox;
  worker_ = worker;
  nonces_ = std::move(nonces);
  for (Peer& peer : peers_) {
    if (!peer.here) continue;
    peer.pass_out = PassFor(PairOf(self_, peer.worker));
    peer.pass_in = PassFor(PairOf(peer.worker, self_));
  }
  // How many are under way at once depends on who runs when: not a first time that allocates.
  for (size_t i = 0; i < kOperationsPerPeer * peers_.size(); ++i) AddOperation();
}

void UcxLinks::AddOperation() {
  operations_.emplace_back().listener = this;
  free_operations_.reserve(operations_.size());
  free_operations_.push_back(&operations_.back());
}

UcxLinks::Operation& UcxLinks::TakeOperation(Operation::Kind kind, WorkerId peer) {
  if (free_operations_.empty()) AddOperation();
  Operation& operation = *free_operations_.back();
  free_operations_.pop_back();
  operation.kind = kind;
  operation.peer = peer;
  return operation;
}

void UcxLinks::FreeOperation(Operation& operation) {
  operation.text.clear();
  free_operations_.push_back(&operation);
}

UcxHeader UcxLinks::HeaderTo(const Peer& peer, UcxType type) const {
  UcxHeader header;
  header.pass = peer.pass_out;
  header.from = static_cast<uint16_t>(self_.value);
  header.type = type;
  return header;
}

void UcxLinks::SendOperation(Peer& peer, Operation& operation, std::span<const std::byte> data) {
  const UcxWorker::Fate fate = worker_->SendMessage(
      peer.worker.value,
      {.header = std::as_bytes(std::span(&operation.header, 1)),
       .data = data,
       .operation = &operation,
       .wanted = operation.header.type == UcxType::kHello ? UcxWorker::Wanted::kReply
                                                          : UcxWorker::Wanted::kNothing});
  if (fate == UcxWorker::Fate::kFailed) {
    Suspect(peer, Internal("UCX refuses a word of type ", static_cast<int>(operation.header.type)));
  }
  if (fate != UcxWorker::Fate::kUnderWay) return FreeOperation(operation);
  if (operation.kind == Operation::Kind::kHeartbeat) {
    peer.heartbeat_under_way = true;
  } else {
    ++peer.sends_under_way;
  }
  if (operation.header.type == UcxType::kHello) ++hellos_under_way_;
}

void UcxLinks::SendControl(Peer& peer, UcxType type) {
  if (peer.gone) return;
  Operation& operation = TakeOperation(Operation::Kind::kMessage, peer.worker);
  operation.header = HeaderTo(peer, type);
  SendOperation(peer, operation, {});
}

void UcxLinks::SendHeartbeat(Peer& peer) {
  if (peer.heartbeat_under_way) return;  // it does not read: more would only pile up
  Operation& operation = TakeOperation(Operation::Kind::kHeartbeat, peer.worker);
  operation.header = HeaderTo(peer, UcxType::kHeartbeat);
  SendOperation(peer, operation, {});
}

void UcxLinks::SayHello() {
  for (Peer& peer : peers_) {
    if (!peer.here) continue;
    UcxHello hello;
    hello.from = self_.value;
    hello.workers = static_cast<int>(peers_.size());
    hello.nonce = peer.nonce;
    hello.proof = HelloProof(PairOf(self_, peer.worker));
    hello.peer_timeout_ms = static_cast<uint64_t>(options_.peer_timeout.count());
    Operation& operation = TakeOperation(Operation::Kind::kMessage, peer.worker);
    operation.header = HeaderTo(peer, UcxType::kHello);
    // Whoever is at this address has proved nothing yet: the proof is for hellos alone.
    operation.header.pass = 0;
    operation.text.assign(reinterpret_cast<const char*>(&hello), sizeof(hello));
    SendOperation(peer, operation, BytesOf(operation.text));
  }
}

bool UcxLinks::SendBlock(WorkerId to, const BlockMessage& message) {
  if (to == self_) {  // then nobody's lock is held
    const absl::Status taken = mailbox_->OnNextBlock(self_, message);
    if (!taken.ok()) mailbox_->Fail(taken);
    return false;
  }
  Peer& peer = peers_[to.value];
  if (peer.gone) return false;
  Operation& operation = TakeOperation(Operation::Kind::kBlock, to);
  UcxHeader& header = operation.header;
  header = HeaderTo(peer, UcxType::kBlock);
  header.tag = message.key.tag;
  header.bytes = message.bytes;
  header.number = message.number;
  header.kind = message.key.kind;
  const bool small = message.bytes <= kUcxSmallBytes && options_.memory == MemoryKind::kHost;
  const UcxWorker::Fate fate =
      worker_->SendMessage(to.value, {.header = Pack(header, small, operation.short_header),
                                      .data = {message.data, message.bytes},
                                      .operation = &operation,
                                      .offer = !small});
  if (fate == UcxWorker::Fate::kUnderWay) {
    ++peer.sends_under_way;
    return false;
  }
  FreeOperation(operation);
  if (fate == UcxWorker::Fate::kDone) return true;
  Suspect(peer, Internal("UCX refuses ", ToString(message.key)));
  return false;
}

bool UcxLinks::Fetch(WorkerId from, const BlockMessage& message, std::span<std::byte> block) {
  if (message.data != nullptr) {
    std::memcpy(block.data(), message.data, block.size());
    if (from == self_) ended_.push_back({from, message.key.kind, message.number, true});
    return true;
  }
  Peer& peer = peers_[from.value];
  if (peer.closed) return false;  // Shut declines its offers
  std::erase(peer.offers, message.handle);
  Operation& fetch = TakeOperation(Operation::Kind::kFetch, from);
  fetch.header = UcxHeader();
  fetch.header.kind = message.key.kind;
  fetch.header.number = message.number;
  fetch.header.bytes = block.size();
  ++fetches_under_way_;
  const UcxWorker::Fate fate = worker_->Fetch(message.handle, block, &fetch);
  if (fate == UcxWorker::Fate::kUnderWay) return false;
  OnDone(fetch,
         fate == UcxWorker::Fate::kDone ? absl::OkStatus()
                                        : absl::InternalError("it cannot be fetched"),
         block.size());
  return false;
}

void UcxLinks::TellDone() {
  for (size_t i = 0; i < ended_.size(); ++i) {
    const Ended each = ended_[i];
    each.has_left ? mailbox_->OnSent(each.peer, each.kind, each.number)
                  : mailbox_->OnMoved(each.peer, each.kind, each.number);
  }
  ended_.clear();
}

void UcxLinks::SendText(WorkerId to, Text text) {
  Peer& peer = peers_[to.value];
  if (!peer.here || peer.gone) return;
  Operation& operation = TakeOperation(Operation::Kind::kMessage, to);
  operation.header = HeaderTo(peer, text.type);
  operation.header.tag = text.number;
  operation.header.code = text.code;
  operation.text = std::move(text.text);
  SendOperation(peer, operation, BytesOf(operation.text));
}

void UcxLinks::SendGoodbye(WorkerId to) {
  Peer& peer = peers_[to.value];
  peer.goodbye_due = true;
  SayDueGoodbye(peer);
}

void UcxLinks::SayDueGoodbye(Peer& peer) {
  // Not before all payload has left: it would overtake what UCX still fetches.
  if (!peer.goodbye_due || peer.goodbye_said || peer.sends_under_way > 0) return;
  peer.goodbye_said = true;
  SendControl(peer, UcxType::kGoodbye);
}

bool UcxLinks::Quiet() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return !peer.here || peer.gone || peer.silent ||
           (peer.sends_under_way == 0 && peer.goodbye_due == peer.goodbye_said);
  });
}

void UcxLinks::SayFarewell() {
  for (Peer& peer : peers_) {
    if (!peer.here || peer.gone) continue;
    peer.farewell_said = true;
    Operation& operation = TakeOperation(Operation::Kind::kMessage, peer.worker);
    operation.header = HeaderTo(peer, UcxType::kFarewell);
    operation.header.code = peer.goodbye_said ? 1 : 0;
    SendOperation(peer, operation, {});
  }
}

bool UcxLinks::FarewellSeen() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    // Whoever has said goodbye itself does not mind what becomes of us.
    return !peer.farewell_said || peer.farewell_seen || peer.gone || peer.silent ||
           peer.goodbye_came;
  });
}

void UcxLinks::OnDone(UcxOperation& done, const absl::Status& status, size_t bytes) {
  auto& operation = static_cast<Operation&>(done);
  Peer& peer = peers_[operation.peer.value];
  if (operation.kind == Operation::Kind::kFetch) return OnFetched(operation, status, bytes);
  if (operation.kind == Operation::Kind::kBlock && status.ok()) {
    ended_.push_back({peer.worker, operation.header.kind, operation.header.number, true});
  }
  if (!status.ok()) Suspect(peer, Annotate(status, "sending"));
  if (operation.kind == Operation::Kind::kHeartbeat) {
    peer.heartbeat_under_way = false;
  } else {
    --peer.sends_under_way;
  }
  if (operation.kind == Operation::Kind::kMessage && operation.header.type == UcxType::kHello) {
    --hellos_under_way_;
  }
  FreeOperation(operation);
  SayDueGoodbye(peer);
}

void UcxLinks::OnFetched(Operation& fetch, const absl::Status& status, size_t bytes) {
  Peer& peer = peers_[fetch.peer.value];
  const UcxHeader header = fetch.header;
  FreeOperation(fetch);
  --fetches_under_way_;
  if (peer.offered > 0) --peer.offered;  // a farewell may have said that nothing comes
  clean_up_due_ = clean_up_due_ || peer.goodbye_came || peer.farewell_came;  // last words
  if (status.ok() && bytes == header.bytes) {
    ended_.push_back({peer.worker, header.kind, header.number});
    return;
  }
  const std::string what =
      absl::StrCat("receiving message ", header.number, " of kind ", static_cast<int>(header.kind));
  if (MayBeItsEnd(status)) return Suspect(peer, Annotate(status, what));
  clean_up_due_ = true;
  failed_ =
      Annotate(status.ok() ? absl::InternalError("its payload has another size") : status, what);
}

void UcxLinks::OnBroken(int worker, const absl::Status&) {
  if (mailbox_ == nullptr) return;
  Peer& peer = peers_[worker];
  // After a farewell it may be gone: what it has sent is here, if it is not delivered yet.
  if (peer.gone || peer.farewell_came) return;
  peer.gone = true;
  broken_.push_back(peer.worker);
  clean_up_due_ = true;
}

void UcxLinks::Suspect(const Peer& peer, const absl::Status& why) {
  if (suspicion_.has_value() || peer.gone || peer.silent) return;
  suspicion_ = {peer.worker, why, awake_.At(std::chrono::steady_clock::now())};
}

void UcxLinks::CheckSuspicion(std::chrono::steady_clock::time_point now) {
  const AwakeClock::Clock::time_point awake = awake_.Tick(now);
  if (!suspicion_.has_value()) return;
  const Peer& peer = peers_[suspicion_->worker.value];
  if (peer.gone || peer.silent) return suspicion_.reset();
  if (awake - suspicion_->since < 2 * options_.peer_timeout) return;
  mailbox_->Fail(Annotate(
      suspicion_->why, absl::StrCat("worker ", peer.worker.value, ", which is alive, over ucx")));
  suspicion_.reset();
}

void UcxLinks::GiveUp(WorkerId worker) {
  peers_[worker.value].silent = true;
  clean_up_due_ = true;
}

void UcxLinks::CleanUp() {
  if (!std::exchange(clean_up_due_, false)) return;
  if (!failed_.ok()) mailbox_->Fail(std::exchange(failed_, absl::OkStatus()));
  for (const WorkerId worker : broken_) mailbox_->OnDisconnect(worker);
  broken_.clear();
  for (Peer& peer : peers_) TakeLastWords(peer);
  for (Peer& peer : peers_) {
    if (!peer.here || !(peer.gone || peer.silent) || peer.closed) continue;
    // A farewell's answer may still be on its way out.
    if (!worker_->connected(peer.worker.value)) {
      peer.closed = true;
      worker_->Disconnect(peer.worker.value);
    }
  }
}

void UcxLinks::Shut() {
  for (Peer& peer : peers_) {
    for (void* const offer : peer.offers) worker_->Decline(offer);
    peer.offers.clear();
  }
}

std::optional<WorkerId> UcxLinks::Ungreeted() const {
  for (const Peer& peer : peers_) {
    if (peer.here && !peer.greeted && !peer.gone) return peer.worker;
  }
  return std::nullopt;
}

void UcxLinks::ReadLanes() {
  for (Peer& peer : peers_) {
    if (!peer.greeted || peer.gone || peer.lanes_settled) continue;
    std::string lanes = worker_->Lanes(peer.worker.value);
    if (lanes.empty()) continue;
    peer.lanes_settled = lanes == peer.lanes;
    peer.lanes = std::move(lanes);
  }
}

}  // namespace ringzero
