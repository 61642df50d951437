// What is sent: messages, fetches, last words; what comes: hellos, messages, what peers say.
#include "p2p/ucx/ucx_links.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr size_t kOperationsPerPeer = 32;
constexpr size_t kMostRefusalBytes = 400;

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
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
      awake_(std::chrono::steady_clock::now(), options.transport.peer_timeout / 5) {
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
  ended_.reserve(operations_.size());
  free_operations_.push_back(&operations_.back());
}

UcxLinks::Operation& UcxLinks::TakeOperation(const Peer& peer, UcxType type) {
  if (free_operations_.empty()) AddOperation();
  Operation& operation = *free_operations_.back();
  free_operations_.pop_back();
  operation.peer = peer.worker;
  operation.is_fetch = false;
  operation.header = {
      .pass = peer.pass_out, .from = static_cast<uint16_t>(self_.value), .type = type};
  return operation;
}

void UcxLinks::FreeOperation(Operation& operation) {
  operation.text.clear();
  free_operations_.push_back(&operation);
}

void UcxLinks::SendOperation(Peer& peer, Operation& operation) {
  const UcxWorker::Fate fate = worker_->SendMessage(
      peer.worker.value, {.header = std::as_bytes(std::span(&operation.header, 1)),
                          .data = BytesOf(operation.text),
                          .operation = &operation,
                          .wants_reply = operation.header.type == UcxType::kHello});
  if (fate == UcxWorker::Fate::kFailed) {
    Suspect(peer, Internal("UCX refuses a word of type ", static_cast<int>(operation.header.type)));
  }
  if (fate != UcxWorker::Fate::kUnderWay) return FreeOperation(operation);
  if (operation.header.type == UcxType::kHeartbeat) {
    peer.heartbeat_under_way = true;
  } else {
    ++peer.sends_under_way;
  }
  if (operation.header.type == UcxType::kHello) ++hellos_under_way_;
}

void UcxLinks::SendControl(Peer& peer, UcxType type, int32_t code) {
  if (peer.gone) return;
  Operation& operation = TakeOperation(peer, type);
  operation.header.code = code;
  SendOperation(peer, operation);
}

void UcxLinks::SayHello() {
  for (Peer& peer : peers_) {
    if (!peer.here) continue;
    UcxHello hello;
    hello.from = self_.value;
    hello.workers = static_cast<int>(peers_.size());
    hello.nonce = peer.nonce;
    hello.proof = HelloProof(PairOf(self_, peer.worker));
    hello.peer_timeout_ms = static_cast<uint64_t>(options_.transport.peer_timeout.count());
    Operation& operation = TakeOperation(peer, UcxType::kHello);
    // Whoever is at this address has proved nothing yet: the proof is for hellos alone.
    operation.header.pass = 0;
    operation.text.assign(reinterpret_cast<const char*>(&hello), sizeof(hello));
    SendOperation(peer, operation);
  }
}

bool UcxLinks::SendBlock(WorkerId to, const BlockMessage& message) {
  if (to == self_) {  // then nobody's lock is held
    mailbox_->Fail(mailbox_->OnNextBlock(self_, message));
    return false;
  }
  Peer& peer = peers_[to.value];
  if (peer.gone) return false;
  Operation& operation = TakeOperation(peer, UcxType::kBlock);
  UcxHeader& header = operation.header;
  header.tag = message.key.tag;
  header.bytes = message.bytes;
  header.number = message.number;
  header.kind = message.key.kind;
  const bool small =
      message.bytes <= kUcxSmallBytes && options_.transport.memory == MemoryKind::kHost;
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
  Operation& fetch = TakeOperation(peer, UcxType::kBlock);
  fetch.is_fetch = true;
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

void UcxLinks::SendNote(WorkerId to, Note note) {
  Peer& peer = peers_[to.value];
  if (note.kind == Note::Kind::kGoodbye) {
    peer.goodbye_due = true;
    return SayDueGoodbye(peer);
  }
  if (!peer.here || peer.gone) return;
  Operation& operation = TakeOperation(peer, UcxType::kNote);
  operation.header.kind = static_cast<uint8_t>(note.kind);
  operation.header.tag = note.number;
  operation.header.code = static_cast<int32_t>(note.code);
  operation.text = std::move(note.text);
  SendOperation(peer, operation);
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
    SendControl(peer, UcxType::kFarewell, peer.goodbye_said ? 1 : 0);
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
  if (operation.is_fetch) return OnFetched(operation, status, bytes);
  if (operation.header.type == UcxType::kBlock && status.ok()) {
    ended_.push_back({peer.worker, operation.header.kind, operation.header.number, true});
  }
  if (!status.ok()) Suspect(peer, Annotate(status, "sending"));
  if (operation.header.type == UcxType::kHeartbeat) {
    peer.heartbeat_under_way = false;
  } else {
    --peer.sends_under_way;
  }
  if (operation.header.type == UcxType::kHello) --hellos_under_way_;
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
  if (awake - suspicion_->since < 2 * options_.transport.peer_timeout) return;
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
    const std::lock_guard<std::mutex> lock(lanes_mutex_);
    peer.lanes = std::move(lanes);
  }
}

bool UcxLinks::OnMessage(const Message& message) {
  if (mailbox_ == nullptr) return false;  // UCX moves messages at a worker's end, too
  std::optional<UcxHeader> unpacked = Unpack(message.header, message.data.size());
  if (!unpacked.has_value()) return false;
  UcxHeader& header = *unpacked;
  if (header.type == UcxType::kHello) TakeHello(message);
  if (header.type == UcxType::kRefusal) TakeRefusal(message, header);
  if (header.type == UcxType::kHello || header.type == UcxType::kRefusal) return false;
  const bool known = header.from < peers_.size() && peers_[header.from].here &&
                     header.pass == peers_[header.from].pass_in;
  if (!known) return false;  // a stranger: not heard, and not our death
  Peer& peer = peers_[header.from];
  peer.heard = true;
  absl::StatusOr<bool> kept = false;
  if (header.type == UcxType::kBlock) {
    kept = TakeBlock(peer, header, message);
  } else if (absl::Status taken = Take(peer, header, message.data); !taken.ok()) {
    kept = std::move(taken);
  }
  if (!kept.ok()) {
    mailbox_->Fail(
        Annotate(kept.status(), absl::StrCat("a message of worker ", header.from, " over ucx")));
  }
  return kept.ok() && *kept;
}

// Whether the message's offer is kept.
absl::StatusOr<bool> UcxLinks::TakeBlock(Peer& peer, const UcxHeader& header,
                                         const Message& message) {
  if (header.kind >= kMaxMessageKinds) return absl::InternalError("its kind is unknown");
  if (!peer.greeted) return absl::InternalError("it comes before a hello");
  const bool small =
      header.bytes <= kUcxSmallBytes && options_.transport.memory == MemoryKind::kHost;
  const size_t bytes = small ? message.data.size() : message.offered_bytes;
  if (bytes != header.bytes || small != (message.offer == nullptr)) {
    return Internal("it says ", header.bytes, " bytes and brings ", message.data.size(),
                    " and offers ", message.offered_bytes);
  }
  BlockMessage block = {.key = {header.kind, header.tag},
                        .number = header.number,
                        .bytes = header.bytes,
                        .data = message.data.data(),
                        .handle = message.offer,
                        .passes = small};
  constexpr uint32_t kHalf = 1 << 15;  // of the numbers that a short header tells apart
  uint32_t& next = peer.next[header.kind];
  if (message.header.size() == sizeof(UcxShortHeader)) {
    block.number = WholeNumber(header.number, next - kHalf);
  }
  next = block.number + 1;
  RZ_ASSIGN_OR_RETURN(const auto into, mailbox_->OnBlock(peer.worker, block));
  if (!small) {
    ++peer.offered;
    peer.offers.push_back(message.offer);
  }
  if (into.has_value() && Fetch(peer.worker, block, *into)) {
    mailbox_->OnMoved(peer.worker, header.kind, block.number);
  }
  return !small;
}

absl::Status UcxLinks::CheckHello(const UcxHello& hello) const {
  if (hello.workers != static_cast<int>(peers_.size())) {
    return FailedPrecondition("it calls itself worker ", hello.from, " of ", hello.workers,
                              ", worker ", self_.value, " is one of ", peers_.size());
  }
  if (hello.small_bytes != kUcxSmallBytes) {
    return FailedPrecondition("its small payloads have up to ", hello.small_bytes, " bytes, not ",
                              kUcxSmallBytes);
  }
  if (hello.peer_timeout_ms != static_cast<uint64_t>(options_.transport.peer_timeout.count())) {
    return FailedPrecondition("its peer_timeout is ", hello.peer_timeout_ms, " ms, not ",
                              options_.transport.peer_timeout.count());
  }
  return absl::OkStatus();
}

void UcxLinks::TakeHello(const Message& message) {
  UcxHello hello;
  std::string refusal;
  bool ours = false;
  if (message.data.size() < sizeof(hello)) {
    refusal = absl::StrCat("a hello has ", sizeof(hello), " bytes, not ", message.data.size());
  } else {
    std::memcpy(&hello, message.data.data(), sizeof(hello));
    const bool expected =
        hello.from >= 0 && hello.from < static_cast<int>(peers_.size()) && peers_[hello.from].here;
    ours = expected && SameDigest(hello.proof, HelloProof(PairOf(WorkerId(hello.from), self_)));
    if (hello.magic != kUcxMagic) {
      refusal = "it is no hello of ringzero";
    } else if (hello.version != kUcxVersion) {
      refusal = absl::StrCat("it speaks version ", hello.version, " of the protocol, worker ",
                             self_.value, " version ", kUcxVersion);
    } else if (!ours) {
      refusal = "it does not know this job's secret";
    }
  }
  if (refusal.empty()) {
    const absl::Status checked = CheckHello(hello);
    if (!checked.ok()) refusal = std::string(checked.message());
  }
  if (refusal.empty()) {
    Peer& peer = peers_[hello.from];
    if (std::exchange(peer.greeted, true)) return;  // said twice
    peer.heard = true;
    return;
  }
  if (message.reply != nullptr) {
    UcxHeader header;
    header.type = UcxType::kRefusal;
    header.tag = hello.nonce;
    header.from = static_cast<uint16_t>(self_.value);
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
    bytes += refusal.substr(0, kMostRefusalBytes);
    worker_->Reply(message.reply, std::as_bytes(std::span(bytes.data(), bytes.size())));
  }
  // A stranger is sent away; one of this job who does not fit is an error of all.
  if (ours) {
    mailbox_->Fail(
        FailedPrecondition("worker ", hello.from, " said hello over ucx, but ", refusal));
  }
}

void UcxLinks::TakeRefusal(const Message& message, const UcxHeader& header) {
  for (Peer& peer : peers_) {
    if (!peer.here || peer.nonce != header.tag || peer.greeted) continue;
    mailbox_->Fail(absl::PermissionDeniedError(
        absl::StrCat("whoever answers at worker ", peer.worker.value,
                     "'s address refused our hello: worker ", self_.value, ": ",
                     TextOf(message.header.subspan(sizeof(header))).substr(0, kMostRefusalBytes))));
    return;
  }
}

absl::Status UcxLinks::Take(Peer& peer, const UcxHeader& header, std::span<const std::byte> data) {
  if (data.size() > std::max(kMaxTextBytes, kUcxSmallBytes)) {
    return Internal("it has ", data.size(), " bytes");
  }
  switch (header.type) {
    case UcxType::kHeartbeat: return absl::OkStatus();
    case UcxType::kNote: {
      const auto kind = static_cast<Note::Kind>(header.kind);
      if (kind > Note::Kind::kAnswer) return absl::InternalError("its kind is unknown");
      const bool known = header.code > 0 && header.code <= 16;
      mailbox_->OnNote(peer.worker, {.kind = kind,
                                     .code = known ? static_cast<absl::StatusCode>(header.code)
                                                   : absl::StatusCode::kUnknown,
                                     .number = header.tag,
                                     .text = TextOf(data)});
      return absl::OkStatus();
    }
    case UcxType::kGoodbye:
      peer.goodbye_came = true;
      TakeLastWords(peer);
      return absl::OkStatus();
    case UcxType::kFarewell:
      peer.farewell_came = true;
      if (header.code == 0) peer.offered = 0;  // it will not send what it offered
      TakeLastWords(peer);
      return absl::OkStatus();
    case UcxType::kFarewellSeen: peer.farewell_seen = true; return absl::OkStatus();
    default: return absl::InternalError("its type is unknown");
  }
}

void UcxLinks::TakeLastWords(Peer& peer) {
  if (peer.offered > 0) return;  // first what was sent before them
  if (peer.goodbye_came && !std::exchange(peer.goodbye_told, true)) {
    mailbox_->OnNote(peer.worker, {.kind = Note::Kind::kGoodbye});
  }
  if (!peer.farewell_came || peer.gone) return;
  SendControl(peer, UcxType::kFarewellSeen);
  peer.gone = true;
  clean_up_due_ = true;
  mailbox_->OnDisconnect(peer.worker);
}

}  // namespace ringzero
