// Writes at once where it can, queues where the ring is full.
#include "p2p/shm/shm_wire.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace ringzero {

ShmWire::ShmWire(WorkerId self, std::vector<WorkerId> members, std::shared_ptr<ShmRings> rings,
                 Arenas arenas)
    : arenas_(std::move(arenas)),
      members_(std::move(members)),
      member_(MemberOf(self)),
      rings_(std::move(rings)),
      bell_(rings_->bell(member_)) {
  for (int m = 0; m < static_cast<int>(members_.size()); ++m) {
    peers_.push_back(
        std::make_unique<Peer>(members_[m], &rings_->bell(m), rings_->Writer(member_, m)));
  }
}

int ShmWire::MemberOf(WorkerId worker) const {
  const auto found = std::lower_bound(members_.begin(), members_.end(), worker);
  RZ_CHECK(found != members_.end() && *found == worker,
           absl::StrCat("worker ", worker.value, " is not of this host"));
  return static_cast<int>(found - members_.begin());
}

ShmWire::Peer* ShmWire::PeerOf(WorkerId worker) { return peers_[MemberOf(worker)].get(); }

RingReader ShmWire::ReaderFrom(WorkerId from) { return rings_->Reader(MemberOf(from), member_); }

void ShmWire::Publish(RingReader& reader, WorkerId from) {
  if (reader.Publish()) PeerOf(from)->doorbell->Ring();
}

void ShmWire::Send(WorkerId to, const ShmToken& token, std::string_view text) {
  Peer& peer = *PeerOf(to);
  {
    const std::lock_guard<std::mutex> lock(peer.mutex);
    if (!peer.open) return;  // it is gone
    RingWord word = {};
    std::memcpy(word.data(), &token, sizeof(token));
    Put(peer, word);
    for (size_t at = 0; at < text.size(); at += word.size()) {
      std::memcpy(word.data(), text.data() + at, std::min(word.size(), text.size() - at));
      Put(peer, word);
    }
  }
  peer.doorbell->Ring();
}

void ShmWire::Put(Peer& peer, const RingWord& word) {
  if (!peer.open || (peer.waiting.empty() && peer.ring.Push(word))) return;
  if (peer.given_up) {
    peer.open = false;  // nothing may follow what is lost
    return;
  }
  if (peer.waiting.empty()) full_.fetch_add(1, std::memory_order_seq_cst);
  peer.waiting.push_back(word);
  Flush(peer);
}

bool ShmWire::Flush(Peer& peer) {
  bool any = false;
  while (!peer.waiting.empty()) {
    if (!peer.ring.Push(peer.waiting[0])) {
      // Its reader will ring our bell, and the message thread flushes.
      if (!peer.ring.AskForRoom()) return any;
      continue;
    }
    peer.waiting.pop_front();
    any = true;
    if (peer.waiting.empty()) full_.fetch_sub(1, std::memory_order_seq_cst);
  }
  return any;
}

bool ShmWire::Flush() {
  bool any = false;
  for (const std::unique_ptr<Peer>& peer : peers_) {
    bool more = false;
    {
      const std::lock_guard<std::mutex> lock(peer->mutex);
      more = Flush(*peer);
    }
    if (more) peer->doorbell->Ring();
    any = any || more;
  }
  return any;
}

bool ShmWire::HasRoom() {
  for (const std::unique_ptr<Peer>& peer : peers_) {
    const std::lock_guard<std::mutex> lock(peer->mutex);
    if (!peer->waiting.empty() && peer->ring.HasRoom()) return true;
  }
  return false;
}

bool ShmWire::SendBlock(WorkerId to, const BlockMessage& message) {
  ShmToken token = {.kind = message.key.kind, .tag = message.key.tag, .bytes = message.bytes};
  if (message.bytes <= kShmSmallBytes) {
    token.type = ShmToken::Type::kSmall;
    Send(to, token, {reinterpret_cast<const char*>(message.data), message.bytes});
    return true;
  }
  const auto arena = std::ranges::find_if(arenas_, [&](const auto& each) {
    return each->Contains({message.data, message.bytes});
  });
  RZ_CHECK(arena != arenas_.end(), ToString(message.key));
  token.type = ShmToken::Type::kBlock;
  token.use = static_cast<uint8_t>((*arena)->use());
  token.offset = static_cast<uint64_t>(message.data - (*arena)->memory().data());
  Send(to, token);
  return false;
}

bool ShmWire::Move(WorkerId from, const BlockMessage& message, std::span<std::byte> block) {
  std::memcpy(block.data(), message.data, block.size());
  if (!message.passes) {
    Send(from,
         {.type = ShmToken::Type::kTaken, .kind = message.key.kind, .number = message.number});
  }
  return true;
}

void ShmWire::SendWord(WorkerId to, MessageKey key) {
  Send(to, {.type = ShmToken::Type::kWord, .kind = key.kind, .tag = key.tag});
}

void ShmWire::SendNote(WorkerId to, Note note) {
  Send(to,
       {.type = ShmToken::Type::kNote,
        .kind = static_cast<uint8_t>(note.kind),
        .code = static_cast<int32_t>(note.code),
        .tag = note.number,
        .bytes = note.text.size()},
       note.text);
}

void ShmWire::Wake() {
  woken_.store(true, std::memory_order_seq_cst);
  bell_.Ring();
}

void ShmWire::Drop(Peer& peer) {
  if (!peer.waiting.empty()) full_.fetch_sub(1, std::memory_order_seq_cst);
  peer.waiting.clear();
}

void ShmWire::Close(Peer& peer) {
  const std::lock_guard<std::mutex> lock(peer.mutex);
  peer.open = false;
  Drop(peer);
}

void ShmWire::GiveUp(WorkerId worker) {
  Peer& peer = *PeerOf(worker);
  const std::lock_guard<std::mutex> lock(peer.mutex);
  peer.given_up = true;
  Flush(peer);
  if (!peer.waiting.empty()) peer.open = false;  // nothing may follow what is lost
  Drop(peer);
}

void ShmWire::Disconnect() {
  for (const std::unique_ptr<Peer>& peer : peers_) Close(*peer);
}

}  // namespace ringzero
