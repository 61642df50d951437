// Messages from block to block: posts meet what comes, and what has left ends.
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "p2p/mailbox.h"

namespace ringzero {
namespace {

// A peer may be so many messages ahead of what is posted here.
constexpr uint32_t kMostAhead = 1 << 16;

std::string Words(WorkerId worker, const char* what, MessageKey key, size_t bytes) {
  return absl::StrCat("worker ", worker.value, " ", what, " ", ToString(key), ", ", bytes,
                      " bytes");
}

}  // namespace

absl::Status Mailbox::Send(WorkerId to, MessageKey key, std::span<const std::byte> block,
                           Done sent) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RZ_RETURN_IF_ERROR(CheckSend(to, key));
  NumberedQueue<Sending>& sends = peers_[to.value].channels[key.kind].sends;
  const uint32_t number = sends.end();
  Sending& sending = sends.Reach(number);
  sending = {key, std::move(sent)};
  stats_.bytes_sent[key.kind] += block.size();
  ++stats_.messages_sent[key.kind];
  const bool has_left = wire_->SendBlock(
      to, {.key = key, .number = number, .bytes = block.size(), .data = block.data()});
  if (has_left) EndSend(sends, sending);
  return absl::OkStatus();
}

absl::Status Mailbox::Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                           Done arrived) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RZ_RETURN_IF_ERROR(CheckCall(from, key, "a message from"));
  Channel& channel = peers_[from.value].channels[key.kind];
  const bool has_come = channel.receives.end() != channel.posted;
  if (closing_ || (peers_[from.value].said_goodbye && !has_come)) {
    return FailedPrecondition("a message expected from worker ", from.value, " (", ToString(key),
                              ") after a goodbye");
  }
  Receiving& receiving = channel.receives.Reach(channel.posted++);
  receiving.is_posted = true;
  receiving.key = key;
  receiving.block = block;
  receiving.arrived = std::move(arrived);
  if (!receiving.has_come || !Fits(from, receiving)) return absl::OkStatus();
  Next().moving.push_back({from, receiving.message, block});
  wire_->Wake();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::span<std::byte>>> Mailbox::OnBlock(WorkerId from,
                                                                     BlockMessage message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.ok()) return std::nullopt;
  RZ_CHECK(message.key.kind < kMaxMessageKinds, ToString(message.key));
  return Meet(from, peers_[from.value].channels[message.key.kind], std::move(message));
}

absl::Status Mailbox::OnNextBlock(WorkerId from, BlockMessage message) {
  std::optional<std::span<std::byte>> block;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return absl::OkStatus();
    RZ_CHECK(message.key.kind < kMaxMessageKinds, ToString(message.key));
    Channel& channel = peers_[from.value].channels[message.key.kind];
    message.number = channel.came;
    RZ_ASSIGN_OR_RETURN(block, Meet(from, channel, message));
  }
  if (block.has_value()) Move({from, std::move(message), *block});
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::span<std::byte>>> Mailbox::Meet(WorkerId from, Channel& channel,
                                                                  BlockMessage message) {
  const Receiving* const known = channel.receives.Find(message.number);
  const bool is_ahead = message.number - channel.posted < kMostAhead;
  if (known == nullptr ? !is_ahead : known->has_come) {
    return Internal("message ", message.number, " of kind ", static_cast<int>(message.key.kind),
                    " comes, but ", channel.posted, " were expected, and ",
                    known == nullptr ? "it is none of the next" : "it has come before");
  }
  Receiving& receiving = channel.receives.Reach(message.number);
  receiving.has_come = true;
  receiving.message = std::move(message);
  ++channel.came;
  if (receiving.is_posted) {
    if (!Fits(from, receiving)) return std::nullopt;
    return receiving.block;
  }
  BlockMessage& kept = receiving.message;
  if (kept.passes) {
    std::shared_ptr<std::byte[]> copy(new std::byte[kept.bytes]);
    std::memcpy(copy.get(), kept.data, kept.bytes);
    kept.data = copy.get();
    kept.copy = std::move(copy);
  }
  return std::nullopt;
}

void Mailbox::Move(const Moving& moving) {
  if (!wire_->Move(moving.from, moving.message, moving.block)) return;
  OnMoved(moving.from, moving.message.key.kind, moving.message.number);
}

// Ends the transport if what came is not what was expected.
bool Mailbox::Fits(WorkerId from, const Receiving& receiving) {
  const BlockMessage& message = receiving.message;
  if (message.key == receiving.key && message.bytes == receiving.block.size()) return true;
  EndOutOfStep(from, Words(from, "sent", message.key, message.bytes),
               Words(self_, "expected", receiving.key, receiving.block.size()));
  return false;
}

void Mailbox::OnMoved(WorkerId from, uint8_t kind, uint32_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  NumberedQueue<Receiving>& receives = peers_[from.value].channels[kind].receives;
  Receiving* const receiving = receives.Find(number);
  if (receiving == nullptr || receiving->ended) return;  // the transport has ended
  Next().ready.push_back({nullptr, nullptr, Buffer(), std::move(receiving->arrived)});
  receiving->ended = true;
  while (!receives.empty() && receives[0].ended) receives.pop_front();
  wire_->Wake();
}

void Mailbox::OnSent(WorkerId to, uint8_t kind, uint32_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  NumberedQueue<Sending>& sends = peers_[to.value].channels[kind].sends;
  Sending* const sending = sends.Find(number);
  if (sending == nullptr || sending->ended) return;
  EndSend(sends, *sending);
  if (closing_) SayGoodbyes();
}

void Mailbox::EndSend(NumberedQueue<Sending>& sends, Sending& sending) {
  Next().ready.push_back({nullptr, nullptr, Buffer(), std::move(sending.sent)});
  sending.ended = true;
  while (!sends.empty() && sends[0].ended) sends.pop_front();
  wire_->Wake();
}

void Mailbox::EndBlocks(Channel& channel, const absl::Status& why) {
  for (size_t i = 0; i < channel.receives.size(); ++i) {
    Receiving& each = channel.receives[i];
    if (!each.is_posted || each.ended) continue;
    Next().ready.push_back({nullptr, nullptr, why, std::move(each.arrived)});
  }
  for (size_t i = 0; i < channel.sends.size(); ++i) {
    Sending& each = channel.sends[i];
    if (!each.ended) Next().ready.push_back({nullptr, nullptr, why, std::move(each.sent)});
  }
  channel.receives.clear();
  channel.sends.clear();
}

}  // namespace ringzero
