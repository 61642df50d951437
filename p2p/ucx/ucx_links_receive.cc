// The receiving side: hellos, messages, what peers say.
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
  if (hello.peer_timeout_ms != static_cast<uint64_t>(options_.peer_timeout.count())) {
    return FailedPrecondition("its peer_timeout is ", hello.peer_timeout_ms, " ms, not ",
                              options_.peer_timeout.count());
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
    mailbox_->OnGoodbye(peer.worker);
  }
  if (!peer.farewell_came || peer.gone) return;
  SendControl(peer, UcxType::kFarewellSeen);
  peer.gone = true;
  clean_up_due_ = true;
  mailbox_->OnDisconnect(peer.worker);
}

}  // namespace ringzero
