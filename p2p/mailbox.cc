// Matches what arrives with what is expected, spends credit, ends once.
#include "p2p/mailbox.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"
#include "p2p/slot_cell.h"

namespace ringzero {
namespace {

constexpr size_t kReadyPerPeer = 16;  // so many messages wait for their callbacks without growth

}  // namespace

std::string ToString(MessageKey key) {
  return absl::StrCat("kind ", static_cast<int>(key.kind), ", tag ", key.tag);
}

absl::StatusOr<std::vector<int>> ResolveSlots(const TransportOptions& options) {
  std::vector<int> slots = options.slots;
  if (slots.empty() || slots.size() > kMaxMessageKinds) {
    return InvalidArgument("slots has ", slots.size(), " entries; 1 to ", kMaxMessageKinds,
                           " can be given");
  }
  slots.resize(kMaxMessageKinds, slots.back());
  for (int kind = 0; kind < kMaxMessageKinds; ++kind) {
    if (slots[kind] < 1) {
      return InvalidArgument("kind ", kind, " has ", slots[kind], " slots; at least 1 is needed");
    }
  }
  return slots;
}

absl::Status CheckPeerTimeout(const TransportOptions& options) {
  if (options.peer_timeout >= std::chrono::milliseconds(1)) return absl::OkStatus();
  return InvalidArgument("peer_timeout is ", options.peer_timeout.count(),
                         " ms; at least 1 ms is needed");
}

Mailbox::Mailbox(WorkerId self, int workers, std::function<void(const absl::Status&)> on_failure,
                 std::shared_ptr<Wire> wire)
    : self_(self),
      wire_(std::move(wire)),
      slot_cells_(sizeof(SlotCell)),
      on_failure_(std::move(on_failure)),
      peers_(workers) {
  stats_.bytes_sent.resize(kMaxMessageKinds);
  stats_.messages_sent.resize(kMaxMessageKinds);
  // How many are ready at once depends on who runs when: not a first time that allocates.
  for (Runnable* each : {&running_, &next_}) each->ready.reserve(kReadyPerPeer * peers_.size());
}

absl::Status Mailbox::CheckCall(WorkerId peer, MessageKey key, const char* what) const {
  if (!status_.ok()) return status_;
  if (peer.value < 0 || peer.value >= workers()) {
    return InvalidArgument(what, " worker ", peer.value, ", but there are ", workers());
  }
  if (key.kind >= kMaxMessageKinds) {
    return InvalidArgument(what, " worker ", peer.value, ": ", ToString(key), ": kinds end at ",
                           kMaxMessageKinds - 1);
  }
  return absl::OkStatus();
}

absl::Status Mailbox::CheckSend(WorkerId to, MessageKey key) const {
  RZ_RETURN_IF_ERROR(CheckCall(to, key, "a message to"));
  if (!closing_ && !peers_[to.value].said_goodbye) return absl::OkStatus();
  return FailedPrecondition("a message to worker ", to.value, " (", ToString(key),
                            ") after a goodbye");
}

absl::Status Mailbox::SendWord(WorkerId to, MessageKey key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RZ_RETURN_IF_ERROR(CheckSend(to, key));
  ++stats_.messages_sent[key.kind];
  wire_->SendParcel(to, {key, Ownership::kWord, Buffer()});
  return absl::OkStatus();
}

absl::Status Mailbox::Send(WorkerId to, Parcel parcel) {
  if (!parcel.buffer) return absl::InvalidArgumentError("an empty buffer cannot be sent");
  const std::lock_guard<std::mutex> lock(mutex_);
  RZ_RETURN_IF_ERROR(CheckSend(to, parcel.key));
  const uint8_t kind = parcel.key.kind;
  Channel& channel = peers_[to.value].channels[kind];
  if (channel.credit > 0) {  // then nothing waits
    Spend(to, channel, std::move(parcel));
  } else {
    channel.waiting.push_back(std::move(parcel));
    if (channel.waiting.size() == 1) wire_->AwaitCredit(to, kind);
  }
  return absl::OkStatus();
}

void Mailbox::Spend(WorkerId to, Channel& channel, Parcel parcel) {
  --channel.credit;
  stats_.bytes_sent[parcel.key.kind] += parcel.buffer.size();
  ++stats_.messages_sent[parcel.key.kind];
  // Our own hold ends before the message leaves: what the receiver does next already sees that.
  parcel.buffer = SlotCell::Unwrap(std::move(parcel.buffer));
  wire_->SendParcel(to, std::move(parcel));
}

void Mailbox::Pump(WorkerId to, uint8_t kind) {
  Channel& channel = peers_[to.value].channels[kind];
  if (channel.waiting.empty()) return;
  while (channel.credit > 0 && !channel.waiting.empty()) {
    Parcel parcel = std::move(channel.waiting.front());
    channel.waiting.pop_front();
    Spend(to, channel, std::move(parcel));
  }
  if (channel.waiting.empty()) wire_->StopAwaitingCredit(to, kind);
}

absl::Status Mailbox::Expect(WorkerId from, Expected expected) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RZ_RETURN_IF_ERROR(CheckCall(from, expected.key, "a message from"));
  const uint8_t kind = expected.key.kind;
  Channel& channel = peers_[from.value].channels[kind];
  if (closing_ || (peers_[from.value].said_goodbye && channel.arrived.empty())) {
    return FailedPrecondition("a message expected from worker ", from.value, " (",
                              ToString(expected.key), ") after a goodbye");
  }
  wire_->AwaitParcel(from, {expected.key, expected.ownership, expected.bytes});
  channel.expected.push_back(std::move(expected));
  if (!channel.arrived.empty() && Match(from, channel.arrived.front(), channel)) {
    channel.arrived.pop_front();
  }
  return absl::OkStatus();
}

std::string Mailbox::Describe(WorkerId from, const char* what, MessageKey key, Ownership ownership,
                              size_t bytes) const {
  if (ownership == Ownership::kWord) {
    return absl::StrCat("worker ", from.value, " ", what, " ", ToString(key), ", a word");
  }
  return absl::StrCat("worker ", from.value, " ", what, " ", ToString(key), ", ", bytes, " bytes ",
                      ownership == Ownership::kShared ? "shared" : "owned");
}

// Hands the parcel to the first one who expects something, and is false if that is something else.
bool Mailbox::Match(WorkerId from, Parcel& parcel, Channel& channel) {
  Expected& expected = channel.expected.front();
  const bool word = parcel.ownership == Ownership::kWord;
  const size_t bytes = word ? 0 : parcel.buffer.size();
  if (parcel.key != expected.key || parcel.ownership != expected.ownership ||
      bytes != expected.bytes) {
    EndOutOfStep(from, Describe(from, "sent", parcel.key, parcel.ownership, bytes),
                 Describe(self_, "expected", expected.key, expected.ownership, expected.bytes));
    return false;
  }
  Buffer delivered;
  if (!word) {
    delivered =
        SlotCell::Wrap(shared_from_this(), {from, parcel.key.kind}, std::move(parcel.buffer));
  }
  Next().ready.push_back(
      {std::move(expected.arrival), std::move(expected.shared_arrival), std::move(delivered), {}});
  channel.expected.pop_front();
  wire_->Wake();
  return true;
}

void Mailbox::EndOutOfStep(WorkerId from, const std::string& sent, const std::string& awaited) {
  End(Internal("channel ", from.value, " -> ", self_.value, " out of step: ", sent, "; ", awaited),
      Tell::kPeers);
}

void Mailbox::OnMisfit(WorkerId from, MessageKey key, Ownership ownership, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Channel& channel = peers_[from.value].channels[key.kind];
  if (!status_.ok()) return;
  RZ_CHECK(!channel.expected.empty(), ToString(key));
  const Expected& expected = channel.expected.front();
  EndOutOfStep(from, Describe(from, "sent", key, ownership, bytes),
               Describe(self_, "expected", expected.key, expected.ownership, expected.bytes));
}

void Mailbox::OnParcel(WorkerId from, Parcel parcel) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.ok()) return;
  const uint8_t kind = parcel.key.kind;
  RZ_CHECK(kind < kMaxMessageKinds, ToString(parcel.key));
  Channel& channel = peers_[from.value].channels[kind];
  if (channel.expected.empty()) {
    channel.arrived.push_back(std::move(parcel));
  } else {
    Match(from, parcel, channel);  // then nothing else has arrived
  }
}

absl::Status Mailbox::OnSlots(WorkerId from, uint8_t kind, int slots) {
  RZ_CHECK(kind < kMaxMessageKinds, absl::StrCat("kind ", kind));
  const std::lock_guard<std::mutex> lock(mutex_);
  Channel& channel = peers_[from.value].channels[kind];
  if (slots < 1) {  // we would never send, and wait
    return Internal("it has ", slots, " slots for kind ", kind, "; at least 1 is needed");
  }
  if (channel.slots != 0 || channel.credit != 0) {
    return Internal("it gave credit for kind ", kind, " before its slots");
  }
  if (!status_.ok()) return absl::OkStatus();
  channel.slots = slots;
  channel.credit = slots;
  Pump(from, kind);
  if (closing_) SayGoodbyes();
  return absl::OkStatus();
}

void Mailbox::OnCredit(WorkerId from, uint8_t kind, int count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.ok()) return;
  RZ_CHECK(kind < kMaxMessageKinds, absl::StrCat("kind ", kind));
  Channel& channel = peers_[from.value].channels[kind];
  channel.credit += count;
  if (channel.slots != 0 && channel.credit > channel.slots) {
    End(Internal("worker ", from.value, " gave credit for ", channel.credit, " messages of kind ",
                 kind, ", but has ", channel.slots, " slots"),
        Tell::kPeers);
    return;
  }
  Pump(from, kind);
  if (closing_) SayGoodbyes();
}

void Mailbox::OnAbort(WorkerId from, const absl::Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Passed on, though `from` tells everybody: we may leave before the others have read that, and
  // must not be taken for the one that began it. An OK would leave us half dead: it is no reason.
  End(AbortedBy(from, why.ok() ? absl::UnknownError("it gave no reason") : why), Tell::kPeers);
}

void Mailbox::OnGoodbye(WorkerId from) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer& peer = peers_[from.value];
  peer.said_goodbye = true;
  FailQuestions(FailedPrecondition("worker ", from.value, " said goodbye before it answered"),
                from);
  if (!next_.answers.empty()) wire_->Wake();
  for (const Channel& channel : peer.channels) {
    const bool awaited = !channel.expected.empty();
    if (awaited || !channel.waiting.empty()) {
      const MessageKey key = awaited ? channel.expected.front().key : channel.waiting.front().key;
      return EndUnmet(from, awaited, key);
    }
    for (size_t i = 0; i < channel.receives.size(); ++i) {
      if (!channel.receives[i].has_come) return EndUnmet(from, true, channel.receives[i].key);
    }
  }
}

void Mailbox::EndUnmet(WorkerId from, bool awaited, MessageKey key) {
  End(Internal("worker ", from.value, " said goodbye, but worker ", self_.value,
               awaited ? " expects" : " has for it", " a message: ", ToString(key)),
      Tell::kPeers);
}

void Mailbox::OnDisconnect(WorkerId from) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Peer& peer = peers_[from.value];
  if (Needs(peer)) return End(WorkerDied(from), Tell::kPeers);
  // What it took before its goodbye has left by now.
  for (const Channel& channel : peer.channels) {
    if (!channel.sends.empty()) return EndUnmet(from, false, channel.sends[0].key);
  }
}

void Mailbox::OnSilence(WorkerId from, std::chrono::milliseconds lasted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Needs(peers_[from.value])) End(WorkerSilent(from, lasted), Tell::kPeers);
}

void Mailbox::Fail(const absl::Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  End(why, Tell::kPeers);
}

void Mailbox::Abort(const absl::Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.ok()) return;
  on_failure_ = nullptr;
  End(why.ok() ? absl::InternalError("aborted without a reason") : why, Tell::kPeers);
}

void Mailbox::End(const absl::Status& why, Tell tell) {
  if (!status_.ok()) return;
  status_ = why;
  report_failure_ = true;
  Next();
  for (Peer& peer : peers_) {
    for (Channel& channel : peer.channels) {
      for (size_t i = 0; i < channel.expected.size(); ++i) {
        Expected& each = channel.expected[i];
        Next().ready.push_back({std::move(each.arrival), std::move(each.shared_arrival), why, {}});
      }
      // Dropping handles under our lock is fine: no cell's drop takes it.
      channel.expected.clear();
      channel.waiting.clear();
      channel.arrived.clear();
      EndBlocks(channel, why);
    }
  }
  FailQuestions(why, std::nullopt);
  for (int worker = 0; tell == Tell::kPeers && worker < workers(); ++worker) {
    if (worker != self_.value) wire_->SendAbort(WorkerId(worker), why);
  }
  wire_->Wake();
  drained_.notify_all();
}

void Mailbox::RunCallbacks() {
  // Whoever of several message threads is here runs what the others have made ready, too.
  const std::lock_guard<std::mutex> one_at_a_time(callbacks_mutex_);
  while (has_next_.load(std::memory_order_acquire)) {
    Answerer answerer;
    std::function<void(const absl::Status&)> on_failure;
    absl::Status status;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      running_.ready.swap(next_.ready);
      running_.moving.swap(next_.moving);
      running_.answers.swap(next_.answers);
      running_.questions.swap(next_.questions);
      has_next_.store(false, std::memory_order_relaxed);
      if (!running_.questions.empty()) answerer = answerer_;
      if (std::exchange(report_failure_, false)) {
        status = status_;
        on_failure = std::exchange(on_failure_, nullptr);
      }
    }
    auto& [ready, moving, answers, questions] = running_;
    if (on_failure != nullptr) on_failure(status);
    for (const Moving& each : moving) Move(each);
    for (Ready& each : ready) Call(each);
    for (ReadyAnswer& each : answers) each.arrival(std::move(each.result));
    for (const Question& each : questions) {
      const std::string answer = answerer ? answerer(each.from, each.text) : std::string();
      wire_->SendAnswer(each.from, each.number, answer.substr(0, kMaxTextBytes));
    }
    ready.clear();
    moving.clear();
    answers.clear();
    questions.clear();
  }
}

void Mailbox::Call(Ready& ready) {
  if (ready.done != nullptr) return ready.done(ready.result.status());
  if (ready.shared_arrival == nullptr) return ready.arrival(std::move(ready.result));
  if (!ready.result.ok()) return ready.shared_arrival(ready.result.status());
  ready.shared_arrival(SharedBuffer(ready.result->Detach()));
}

std::optional<Mailbox::FromPeer> Mailbox::Channel::First() const {
  if (!expected.empty()) return FromPeer{expected.front().key, true};
  if (!arrived.empty()) return FromPeer{arrived.front().key, false};
  if (receives.empty()) return std::nullopt;
  const Receiving& first = receives[0];
  return FromPeer{first.is_posted ? first.key : first.message.key, first.is_posted};
}

absl::Status Mailbox::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  RZ_RETURN_IF_ERROR(status_);
  if (closing_) return absl::OkStatus();
  for (int worker = 0; worker < workers(); ++worker) {
    for (const Channel& channel : peers_[worker].channels) {
      const std::optional<FromPeer> first = channel.First();
      if (!first.has_value()) continue;
      return FailedPrecondition(
          "worker ", self_.value, " cannot say goodbye: a message from worker ", worker, " (",
          ToString(first->key), ") ",
          first->is_expected ? "is still expected" : "came and was never expected");
    }
  }
  closing_ = true;
  SayGoodbyes();
  return absl::OkStatus();
}

void Mailbox::SayGoodbyes() {
  for (int worker = 0; worker < workers(); ++worker) {
    Peer& peer = peers_[worker];
    bool empty = true;
    for (const Channel& channel : peer.channels) empty = empty && channel.IsEmpty();
    if (!empty || peer.told_goodbye) continue;
    peer.told_goodbye = true;
    if (worker != self_.value) wire_->SendGoodbye(WorkerId(worker));
  }
  if (SaidGoodbyes()) drained_.notify_all();
}

std::vector<Undelivered> Mailbox::undelivered() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Undelivered> waiting;
  for (int worker = 0; worker < workers(); ++worker) {
    for (const Channel& channel : peers_[worker].channels) {
      for (size_t i = 0; i < channel.waiting.size(); ++i) {
        waiting.push_back({WorkerId(worker), channel.waiting[i].key});
      }
      for (size_t i = 0; i < channel.sends.size(); ++i) {
        if (!channel.sends[i].ended) waiting.push_back({WorkerId(worker), channel.sends[i].key});
      }
    }
  }
  return waiting;
}

absl::Status Mailbox::Ask(WorkerId to, const std::string& question, AnswerArrival arrival) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RZ_RETURN_IF_ERROR(CheckCall(to, MessageKey(), "a question to"));
  if (to == self_) return absl::InvalidArgumentError("a question to oneself");
  if (!Needs(peers_[to.value])) {
    return FailedPrecondition("a question to worker ", to.value, " after a goodbye");
  }
  const uint64_t number = questions_asked_++;
  asked_[number] = {to, std::move(arrival)};
  wire_->SendQuestion(to, number, question.substr(0, kMaxTextBytes));
  return absl::OkStatus();
}

void Mailbox::AnswerWith(Answerer answerer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  answerer_ = std::move(answerer);
}

void Mailbox::OnQuestion(WorkerId from, uint64_t number, std::string question) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.ok()) return;
  Next().questions.push_back({from, number, std::move(question)});
}

void Mailbox::OnAnswer(WorkerId from, uint64_t number, std::string answer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto asked = asked_.find(number);
  if (asked == asked_.end() || asked->second.to != from) return;
  Next().answers.push_back({std::move(asked->second.arrival), std::move(answer)});
  asked_.erase(asked);
}

void Mailbox::FailQuestions(const absl::Status& why, std::optional<WorkerId> to) {
  for (auto asked = asked_.begin(); asked != asked_.end();) {
    if (to.has_value() && asked->second.to != *to) {
      ++asked;
      continue;
    }
    Next().answers.push_back({std::move(asked->second.arrival), why});
    asked = asked_.erase(asked);
  }
}

bool Mailbox::SaidGoodbyes() const {
  if (!status_.ok()) return true;
  for (const Peer& peer : peers_) {
    if (!peer.told_goodbye) return false;
  }
  return true;
}

bool Mailbox::waits_for_credit() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return closing_ && !SaidGoodbyes();
}

void Mailbox::Shutdown(std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (closing_) WaitUntil(lock, drained_, Deadline(limit), [this] { return SaidGoodbyes(); });
  if (!SaidGoodbyes() || !closing_) {
    on_failure_ = nullptr;
    End(absl::CancelledError(absl::StrCat("worker ", self_.value, "'s transport was destroyed")),
        Tell::kNobody);
  }
  FailQuestions(absl::CancelledError("the transport was destroyed"), std::nullopt);
}

absl::Status Mailbox::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

TransportStats Mailbox::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

}  // namespace ringzero
