// The receiving side: hellos, announcements, blocks that payloads are put into, order.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/ucx/ucx_links.h"

namespace ringzero {
namespace {

constexpr size_t kMostRefusalBytes = 400;

std::string TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Ownership OwnershipOf(const UcxHeader& header) {
  return header.ownership == 0 ? Ownership::kShared : Ownership::kOwned;
}

}  // namespace

bool UcxLinks::OnMessage(const Message& message) {
  if (mailbox_ == nullptr) return false;  // UCX moves messages at a worker's end, too
  std::optional<UcxHeader> unpacked = Unpack(message.header, message.data.size());
  if (!unpacked.has_value()) return false;
  UcxHeader& header = *unpacked;
  if (header.type == UcxType::kHello) TakeHello(message, header);
  if (header.type == UcxType::kRefusal) TakeRefusal(message, header);
  if (header.type == UcxType::kHello || header.type == UcxType::kRefusal) return false;
  const bool known = header.from < peers_.size() && peers_[header.from].here &&
                     header.pass == peers_[header.from].pass_in;
  if (!known) return false;  // a stranger: not heard, and not our death
  Peer& peer = peers_[header.from];
  peer.heard = true;
  if (message.header.size() == sizeof(UcxShortHeader)) {
    header.number = WholeNumber(header.number, peer.in[header.kind].delivered);
  }
  const absl::StatusOr<bool> kept = TakeBlock(peer, header, message);
  absl::Status taken = TakeCredits(peer, header);
  if (header.type != UcxType::kParcel) GrantCredits();  // it may be a last word
  if (taken.ok())
    taken = header.type == UcxType::kBlock ? kept.status() : Take(peer, header, message.data);
  if (!taken.ok()) {
    mailbox_->Fail(Annotate(taken, absl::StrCat("a message of worker ", header.from, " over ucx")));
  }
  return kept.ok() && *kept;
}

// Whether the message's offer is kept. Another message than one from block to block: no.
absl::StatusOr<bool> UcxLinks::TakeBlock(Peer& peer, const UcxHeader& header,
                                         const Message& message) {
  if (header.type != UcxType::kBlock) return false;
  if (header.kind >= kMaxMessageKinds) return absl::InternalError("its kind is unknown");
  if (!peer.greeted) return absl::InternalError("it comes before a hello");
  Incoming& in = peer.in[header.kind];
  const bool small = header.bytes <= kUcxSmallBytes && options_.memory == MemoryKind::kHost;
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
  if (message.header.size() == sizeof(UcxBlockHeader)) {
    block.number = WholeNumber(header.number, in.next_block - kHalf);
  }
  in.next_block = block.number + 1;
  RZ_ASSIGN_OR_RETURN(const auto into, mailbox_->OnBlock(peer.worker, block));
  if (!small) {
    ++peer.announced;
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
  if (hello.peer_timeout_ms != static_cast<uint64_t>(options_.peer_timeout.count())) {
    return FailedPrecondition("its peer_timeout is ", hello.peer_timeout_ms, " ms, not ",
                              options_.peer_timeout.count());
  }
  for (const int32_t slots : hello.slots) {
    if (slots < 1) return FailedPrecondition("it has ", slots, " slots");
  }
  return absl::OkStatus();
}

void UcxLinks::TakeHello(const Message& message, const UcxHeader&) {
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
    peer.lanes = worker_->Lanes(hello.from);
    for (int kind = 0; kind < kMaxMessageKinds; ++kind) {
      peer.out[kind].slots = static_cast<uint32_t>(hello.slots[kind]);
      mailbox_->OnCredit(peer.worker, static_cast<uint8_t>(kind), hello.slots[kind]);
    }
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

absl::Status UcxLinks::TakeCredits(Peer& peer, const UcxHeader& header) {
  static constexpr std::array<uint8_t, kMaxMessageKinds> kNone{};
  if (header.credits == kNone) return absl::OkStatus();
  for (int kind = 0; kind < kMaxMessageKinds; ++kind) {
    const uint8_t count = header.credits[kind];
    if (count == 0) continue;
    Outgoing& out = peer.out[kind];
    const uint32_t owed = out.sent - out.credited;
    if (count > owed) {
      return Internal("it gives back ", count, " slots of kind ", kind, " and has ", owed);
    }
    out.credited += count;
    if (owed < out.slots) {
      if (out.granted == 0) granted_.push_back({peer.worker, static_cast<uint8_t>(kind)});
      out.granted += count;
    } else {
      mailbox_->OnCredit(peer.worker, static_cast<uint8_t>(kind), count);
    }
  }
  return absl::OkStatus();
}

void UcxLinks::GrantCredits() {
  for (const auto& [from, kind] : granted_) {
    mailbox_->OnCredit(from, kind, std::exchange(peers_[from.value].out[kind].granted, 0));
  }
  granted_.clear();
}

absl::Status UcxLinks::Take(Peer& peer, const UcxHeader& header, std::span<const std::byte> data) {
  if (data.size() > std::max(kMaxTextBytes, kUcxSmallBytes)) {
    return Internal("it has ", data.size(), " bytes");
  }
  switch (header.type) {
    case UcxType::kParcel: return TakeAnnouncement(peer, header, data);
    case UcxType::kCredits:
    case UcxType::kHeartbeat: return absl::OkStatus();
    case UcxType::kAbort: {
      const bool known = header.code > 0 && header.code <= 16;
      mailbox_->OnAbort(peer.worker, absl::Status(known ? static_cast<absl::StatusCode>(header.code)
                                                        : absl::StatusCode::kUnknown,
                                                  TextOf(data)));
      return absl::OkStatus();
    }
    case UcxType::kGoodbye:
      peer.goodbye_came = true;
      TakeLastWords(peer);
      return absl::OkStatus();
    case UcxType::kQuestion:
      mailbox_->OnQuestion(peer.worker, header.tag, TextOf(data));
      mailbox_->wire().Wake();
      return absl::OkStatus();
    case UcxType::kAnswer:
      mailbox_->OnAnswer(peer.worker, header.tag, TextOf(data));
      mailbox_->wire().Wake();
      return absl::OkStatus();
    case UcxType::kFarewell:
      peer.farewell_came = true;
      if (header.code == 0) peer.announced = 0;  // it will not send what it announced
      TakeLastWords(peer);
      return absl::OkStatus();
    case UcxType::kFarewellSeen: peer.farewell_seen = true; return absl::OkStatus();
    default: return absl::InternalError("its type is unknown");
  }
}

void UcxLinks::TakeLastWords(Peer& peer) {
  if (peer.announced > 0) return;  // first what was sent before them
  if (peer.goodbye_came && !std::exchange(peer.goodbye_told, true)) {
    mailbox_->OnGoodbye(peer.worker);
  }
  if (!peer.farewell_came || peer.gone) return;
  SendControl(peer, UcxType::kFarewellSeen);
  peer.gone = true;
  clean_up_due_ = true;
  mailbox_->OnDisconnect(peer.worker);
}

absl::StatusOr<Buffer> UcxLinks::BlockFor(uint8_t ownership, size_t bytes) {
  const MemoryUse use = ownership == 0 ? MemoryUse::kParameters : MemoryUse::kSums;
  return arenas_[static_cast<size_t>(use)]->Allocate(bytes);
}

absl::Status UcxLinks::TakeAnnouncement(Peer& peer, const UcxHeader& header,
                                        std::span<const std::byte> data) {
  if (header.kind >= kMaxMessageKinds) return absl::InternalError("its kind is unknown");
  if (!peer.greeted) return absl::InternalError("it comes before a hello");
  Incoming& in = peer.in[header.kind];
  const uint32_t slots = in.slots;
  const uint32_t room = in.freed + slots - in.delivered;  // from the next one on
  Arriving& arriving = in.arriving[header.number % in.arriving.size()];
  if (header.number - in.delivered >= room || arriving.announced) {
    return Internal("message ", header.number, " of kind ", static_cast<int>(header.kind),
                    " has no slot: ", in.delivered, " were delivered, ", in.freed,
                    " of them are gone, slots: ", slots);
  }
  const bool small = header.bytes <= kUcxSmallBytes && options_.memory == MemoryKind::kHost;
  if (data.size() != (small ? header.bytes : 0)) {
    return Internal("it says ", header.bytes, " bytes and brings ", data.size());
  }
  arriving.announced = true;
  arriving.header = header;
  ++peer.announced;
  if (small) {
    RZ_ASSIGN_OR_RETURN(arriving.buffer, BlockFor(header.ownership, data.size()));
    std::memcpy(arriving.buffer.data(), data.data(), data.size());
    arriving.filled = true;
  }
  Deliver(peer, header.kind);
  return absl::OkStatus();
}

void UcxLinks::Await(WorkerId from, const Awaited& awaited) {
  if (from == self_ || !peers_[from.value].here) return;
  Peer& peer = peers_[from.value];
  peer.in[awaited.key.kind].waiting.push_back(awaited);
  Advance(peer, awaited.key.kind);
}

// Gives the next awaited messages their slots, as far as there are any.
void UcxLinks::Advance(Peer& peer, uint8_t kind) {
  Incoming& in = peer.in[kind];
  const uint32_t slots = in.slots;
  while (!in.waiting.empty() && in.awaited - in.freed < slots) {
    const uint32_t number = in.awaited++;
    const Awaited wanted = in.waiting.front();
    in.waiting.pop_front();
    if (number - in.delivered >= slots) continue;  // it came first, and the mailbox has it
    Arriving& arriving = in.arriving[number % in.arriving.size()];
    arriving.awaited = true;
    arriving.wanted = wanted;
    const bool small = wanted.bytes <= kUcxSmallBytes && options_.memory == MemoryKind::kHost;
    if (!small && !arriving.filled && arriving.posted == nullptr && !peer.gone) {
      Post(peer, kind, number);
    }
  }
  Deliver(peer, kind);
}

void UcxLinks::Post(Peer& peer, uint8_t kind, uint32_t number) {
  Incoming& in = peer.in[kind];
  Arriving& arriving = in.arriving[number % in.arriving.size()];
  absl::StatusOr<Buffer> block =
      BlockFor(static_cast<uint8_t>(arriving.wanted.ownership), arriving.wanted.bytes);
  if (!block.ok()) {
    return mailbox_->Fail(
        Annotate(block.status(), absl::StrCat("a message expected from worker ", peer.worker.value,
                                              " (", ToString(arriving.wanted.key), ")")));
  }
  Operation& receive = TakeOperation(Operation::Kind::kReceive, peer.worker);
  receive.header = UcxHeader();
  receive.header.kind = kind;
  receive.header.number = number;
  receive.buffer = *std::move(block);
  arriving.posted = &receive;
  ++receives_under_way_;
  const UcxWorker::Receiving receiving =
      worker_->ReceiveTagged({.tag = PayloadTag(peer.pass_in, kind, number),
                              .data = {receive.buffer.data(), receive.buffer.size()},
                              .operation = &receive});
  if (receiving.fate == UcxWorker::Fate::kUnderWay) return;
  OnDone(receive,
         receiving.fate == UcxWorker::Fate::kDone ? absl::OkStatus()
                                                  : absl::InternalError("it cannot be received"),
         receiving.bytes);
}

// Hands over what has come, in order.
void UcxLinks::Deliver(Peer& peer, uint8_t kind) {
  Incoming& in = peer.in[kind];
  while (true) {
    Arriving& arriving = in.arriving[in.delivered % in.arriving.size()];
    if (!arriving.announced) return;
    const MessageKey key = {kind, arriving.header.tag};
    const Ownership ownership = OwnershipOf(arriving.header);
    if (!arriving.filled) {
      const Awaited& wanted = arriving.wanted;
      if (!arriving.awaited || (wanted.key == key && wanted.ownership == ownership &&
                                wanted.bytes == arriving.header.bytes)) {
        // Cancelled with its peer, whose end is told of elsewhere: not the first cause.
        if (!arriving.failed.ok() && !peer.gone && !peer.silent) {
          mailbox_->Fail(
              Annotate(arriving.failed, absl::StrCat("the payload of worker ", peer.worker.value,
                                                     "'s ", ToString(key), " over ucx")));
        }
        return;  // its payload is on the way, or waits until it is awaited
      }
      return mailbox_->OnMisfit(peer.worker, key, ownership, arriving.header.bytes);
    }
    Buffer buffer = std::move(arriving.buffer);
    in.large = buffer.size() > kUcxSmallBytes;
    arriving.Clear();
    ++in.delivered;
    --peer.announced;
    mailbox_->OnParcel(peer.worker, {key, ownership, std::move(buffer)});
    if (peer.announced == 0) TakeLastWords(peer);
  }
}

}  // namespace ringzero
