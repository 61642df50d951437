// Announcements, goes, and what waits for its turn.
#include "p2p/nccl/lane_wire.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/deadline.h"

namespace ringzero {
namespace {

constexpr size_t kWakeBytes = 64;

MessageKey KeyOf(const LaneWord& word) { return {word.kind, word.tag}; }

}  // namespace

LaneWire::LaneWire(WorkerId self, LaneRoutes routes, const std::vector<uint8_t>& word_kinds)
    : self_(self), routes_(std::move(routes)), peers_(routes_.to.size()) {
  peers_[self.value].greeted = true;
  for (const uint8_t kind : word_kinds) is_word_[kind % kMaxMessageKinds] = true;
}

absl::Status LaneWire::Attach(std::shared_ptr<Mailbox> mailbox, Transport* words,
                              LaneDriver* driver) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RZ_ASSIGN_OR_RETURN(wake_from_, words->Allocate(kWakeBytes, MemoryUse::kSums));
  RZ_ASSIGN_OR_RETURN(wake_into_, words->Allocate(kWakeBytes, MemoryUse::kSums));
  mailbox_ = std::move(mailbox);
  words_ = words;
  driver_ = driver;
  return absl::OkStatus();
}

void LaneWire::Detach() {
  std::shared_ptr<Mailbox> mailbox;  // it holds us: let go of it outside of our lock
  std::vector<Peer> rest(peers_.size());
  const std::lock_guard<std::mutex> lock(mutex_);
  mailbox = std::move(mailbox_);
  rest.swap(peers_);
  words_ = nullptr;
  driver_ = nullptr;
  ended_ = true;
}

void LaneWire::SayHello() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int w = 0; w < static_cast<int>(peers_.size()); ++w) {
    if (w == self_.value) continue;
    const auto answered = [self = shared_from_this(), w](const absl::StatusOr<std::string>& text) {
      // Empty: it is not there yet, and will say hello itself.
      if (text.ok() && !text->empty()) self->TakeHello(WorkerId(w), *text);
    };
    words_->Ask(WorkerId(w), std::string(kLaneHello), answered)
        .IgnoreError();  // refused: words have ended
  }
}

void LaneWire::TakeHello(WorkerId from, const std::string& text) {
  if (text != kLaneHello) return Fail(Internal("worker ", from.value, " has no lanes"));
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer& peer = peers_[from.value];
  if (std::exchange(peer.greeted, true)) return;
  for (const LaneWord& word : std::exchange(peer.unsaid, {})) Say(from, word);
  SayGoodbyeIfReady(from);
}

bool LaneWire::SaidGoodbye(WorkerId to) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return peers_[to.value].goodbye_wanted;
}

bool LaneWire::IsLong(WorkerId from, WorkerId to) const {
  const int lane = from == self_ ? routes_.to[to.value] : routes_.from[from.value];
  return lane == routes_.long_hops;
}

void LaneWire::Say(WorkerId to, const LaneWord& word) {
  Peer& peer = peers_[to.value];
  if (!peer.greeted) return peer.unsaid.push_back(word);  // nobody may answer there yet
  // A question that is not accepted has nobody to read it: the words have ended, and say so.
  if (words_ != nullptr) {
    words_->Ask(to, ToText(word), [](const absl::StatusOr<std::string>&) {}).IgnoreError();
  }
}

bool LaneWire::SendBlock(WorkerId to, const BlockMessage& message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ended_) return false;
  const LaneWord word = {.type = LaneWord::Type::kOffer,
                         .kind = message.key.kind,
                         .block = message.number,
                         .tag = message.key.tag,
                         .bytes = message.bytes};
  if (is_word_[word.kind] && to != self_) {
    Say(to, word);
    return true;
  }
  // Nobody writes to what is sent.
  auto* const data = const_cast<std::byte*>(message.data);
  Announce(to, word, {data, message.bytes});
  return false;
}

void LaneWire::Announce(WorkerId to, const LaneWord& message, std::span<std::byte> block) {
  if (routes_.to[to.value] == kNoLane) {
    return FailLater(InvalidArgument("no lane leads from worker ", self_.value, " to worker ",
                                     to.value, " (", ToString(KeyOf(message)), ")"));
  }
  Peer& peer = peers_[to.value];
  LaneWord word = message;
  word.number = peer.announcements++;
  peer.announced.push_back({word, block});
  if (to == self_) {
    return driver_->Post([self = shared_from_this(), word] {
      const absl::Status taken = self->TakeOffer(self->self_, word);
      if (!taken.ok()) self->Fail(taken);
    });
  }
  Say(to, word);
  if (IsLong(self_, to)) AdvanceLongHops();
}

void LaneWire::FailLater(const absl::Status& why) {
  failure_ = why;
  driver_->Post([self = shared_from_this()] { self->Settle(); });
}

void LaneWire::SendAbort(WorkerId, const absl::Status& why) {
  std::vector<std::deque<Announced>> dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ended_) return;
  ended_ = true;
  for (Peer& peer : peers_) dropped.push_back(std::move(peer.announced));
  for (Peer& peer : peers_) peer.announced.clear();
  driver_->Abort();
  words_->Abort(why);  // which tells everybody
  drained_.notify_all();
}

void LaneWire::SendGoodbye(WorkerId to) {
  const std::lock_guard<std::mutex> lock(mutex_);
  peers_[to.value].goodbye_wanted = true;
  SayGoodbyeIfReady(to);
}

void LaneWire::SayGoodbyeIfReady(WorkerId to) {
  Peer& peer = peers_[to.value];
  // A word must not overtake payload.
  if (ended_ || !peer.greeted || peer.goodbye_said) return;
  if (!peer.announced.empty() || peer.sending > 0) return;
  if (peer.goodbye_wanted) {
    peer.goodbye_said = true;
    Say(to, {.type = LaneWord::Type::kGoodbye, .number = peer.announcements});
  }
  drained_.notify_all();
}

void LaneWire::SendQuestion(WorkerId to, uint64_t number, const std::string& question) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (words_ == nullptr) return;
  words_
      ->Ask(to, question,
            [self = shared_from_this(), to, number](const absl::StatusOr<std::string>& answer) {
              // Its goodbye fails the question.
              if (answer.ok() && *answer == kLaneGone) return;
              const std::shared_ptr<Mailbox> mailbox = self->HeldMailbox();
              if (mailbox == nullptr || !answer.ok()) return;  // the end of words is told elsewhere
              mailbox->OnAnswer(to, number, *answer);
              mailbox->RunCallbacks();
            })
      .IgnoreError();
}

void LaneWire::Wake() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (words_ == nullptr || wake_underway_) return;
  wake_underway_ = true;
  // A message to ourselves: so the callbacks run on the thread that gives the signs of life, and a
  // callback that hangs is seen as what it is.
  const MessageKey key = {0, wakes_++};
  const auto woken = [self = shared_from_this()](const absl::Status&) {
    {
      const std::lock_guard<std::mutex> lock(self->mutex_);
      self->wake_underway_ = false;
      self->drained_.notify_all();
    }
    self->RunTurn();
  };
  if (!ended_ && words_->Post(self_, key, wake_into_.as<std::byte>(), woken).ok()) {
    // Refused: `woken` gets that error.
    words_->Send(self_, key, wake_from_.as<std::byte>(), [](const absl::Status&) {}).IgnoreError();
    return;
  }
  wake_underway_ = false;  // the words have ended: there is nobody left to look alive to
  driver_->Post([self = shared_from_this()] { self->RunTurn(); });
}

std::shared_ptr<Mailbox> LaneWire::HeldMailbox() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return mailbox_;
}

void LaneWire::Settle() {
  std::shared_ptr<Mailbox> mailbox;
  absl::Status failure;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    mailbox = mailbox_;
    failure = std::exchange(failure_, absl::OkStatus());
  }
  if (mailbox != nullptr && !failure.ok()) mailbox->Fail(failure);
}

void LaneWire::RunTurn() {
  Settle();
  const std::shared_ptr<Mailbox> mailbox = HeldMailbox();
  if (mailbox != nullptr) mailbox->RunCallbacks();
}

void LaneWire::Fail(const absl::Status& why) {
  const std::shared_ptr<Mailbox> mailbox = HeldMailbox();
  if (mailbox == nullptr) return;
  mailbox->Fail(why);
  mailbox->RunCallbacks();
}

void LaneWire::OnWordsFailed(const absl::Status& why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    bool all_told = true;
    for (int w = 0; w < static_cast<int>(peers_.size()); ++w) {
      const Peer& peer = peers_[w];
      // Or would be, had it said hello: it ended before.
      const bool told = peer.goodbye_wanted && peer.announced.empty() && peer.sending == 0;
      all_told = all_told && (w == self_.value || told);
    }
    // Nobody needs us, nor we anybody; an abort is still news.
    if (all_told && why.code() == absl::StatusCode::kUnavailable) {
      ended_ = true;
      drained_.notify_all();
      return;
    }
  }
  Fail(why);
}

std::string LaneWire::OnWord(WorkerId from, const std::string& text) {
  if (text == kLaneHello) {
    TakeHello(from, text);
    return text;
  }
  absl::StatusOr<LaneWord> word = ParseLaneWord(text);
  const absl::Status taken = word.ok() ? TakeWord(from, *word) : word.status();
  if (!taken.ok()) Fail(Annotate(taken, absl::StrCat("from worker ", from.value)));
  return "";
}

absl::Status LaneWire::TakeWord(WorkerId from, const LaneWord& word) {
  if (word.type == LaneWord::Type::kOffer) return TakeOffer(from, word);
  bool goodbye = false;
  std::shared_ptr<Mailbox> mailbox;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended_) return absl::OkStatus();
    mailbox = mailbox_;
    Peer& peer = peers_[from.value];
    switch (word.type) {
      case LaneWord::Type::kOffer: break;
      case LaneWord::Type::kGo: RZ_RETURN_IF_ERROR(Go(from, word)); break;
      case LaneWord::Type::kGoodbye:
        peer.goodbye_came = true;
        goodbye = peer.receiving == 0 && peer.waiting.empty();
        break;
    }
  }
  if (goodbye) mailbox->OnGoodbye(from);
  mailbox->RunCallbacks();
  return absl::OkStatus();
}

absl::Status LaneWire::TakeOffer(WorkerId from, const LaneWord& word) {
  std::shared_ptr<Mailbox> mailbox;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended_) return absl::OkStatus();
    mailbox = mailbox_;
    peers_[from.value].offers.push_back(word);
  }
  const BlockMessage message = {.key = KeyOf(word), .number = word.block, .bytes = word.bytes};
  RZ_ASSIGN_OR_RETURN(const auto block, mailbox->OnBlock(from, message));
  if (block.has_value() && Move(from, message, *block)) {
    mailbox->OnMoved(from, word.kind, word.block);
  }
  mailbox->RunCallbacks();
  return absl::OkStatus();
}

bool LaneWire::Move(WorkerId from, const BlockMessage& message, std::span<std::byte> block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ended_) return false;
  std::vector<LaneWord>& offers = peers_[from.value].offers;
  const auto offer = std::find_if(offers.begin(), offers.end(), [&](const LaneWord& each) {
    return each.kind == message.key.kind && each.block == message.number;
  });
  const LaneWord word = *offer;
  offers.erase(offer);
  if (is_word_[word.kind] && from != self_) return true;
  const absl::Status accepted = Accept(from, {word, block});
  if (!accepted.ok()) FailLater(accepted);
  return false;
}

absl::Status LaneWire::Accept(WorkerId from, Arriving arriving) {
  if (routes_.from[from.value] == kNoLane) {
    return Internal("worker ", from.value, " announced a payload to worker ", self_.value,
                    ", but no lane leads here");
  }
  if (IsLong(from, self_)) {
    peers_[from.value].waiting.push_back(arriving);
    AdvanceLongHops();
    return absl::OkStatus();
  }
  StartReceive(from, arriving);
  return from == self_ ? Go(self_, arriving.word) : absl::OkStatus();
}

void LaneWire::StartReceive(WorkerId from, const Arriving& arriving) {
  ++peers_[from.value].receiving;
  driver_->Start({.lane = routes_.from[from.value],
                  .direction = LaneOp::Direction::kReceive,
                  .peer = from,
                  .block = arriving.into,
                  .done = [self = shared_from_this(), from, word = arriving.word] {
                    self->Received(from, word);
                  }});
  LaneWord go = arriving.word;
  go.type = LaneWord::Type::kGo;
  if (from != self_) Say(from, go);
}

absl::Status LaneWire::Go(WorkerId to, const LaneWord& word) {
  std::deque<Announced>& announced = peers_[to.value].announced;
  const auto which = std::find_if(announced.begin(), announced.end(), [&](const Announced& each) {
    return each.word.number == word.number;
  });
  if (which == announced.end()) return absl::InternalError("a go for what was not announced");
  if (IsLong(self_, to)) {
    which->may_go = true;
    AdvanceLongHops();
    return absl::OkStatus();
  }
  const Announced next = *which;
  announced.erase(which);
  StartSend(to, next);
  return absl::OkStatus();
}

void LaneWire::StartSend(WorkerId to, const Announced& announced) {
  ++peers_[to.value].sending;
  driver_->Start(
      {.lane = routes_.to[to.value],
       .direction = LaneOp::Direction::kSend,
       .peer = to,
       .block = announced.block,
       .done = [self = shared_from_this(), to, word = announced.word] { self->Sent(to, word); }});
}

void LaneWire::AdvanceLongHops() {
  while (routes_.order != nullptr) {
    if (!long_hop_.has_value()) long_hop_ = routes_.order(next_long_hop_++);
    if (!long_hop_.has_value()) {
      --next_long_hop_;
      return;
    }
    if (!AdvanceLongHop(*long_hop_)) return;
    long_hop_.reset();
  }
}

bool LaneWire::AdvanceLongHop(const LongHop& hop) {
  if (hop.to == self_) {
    std::deque<Arriving>& waiting = peers_[hop.from.value].waiting;
    const auto next = std::find_if(waiting.begin(), waiting.end(), [&](const Arriving& each) {
      return KeyOf(each.word) == hop.key;
    });
    if (next == waiting.end()) return false;
    StartReceive(hop.from, *next);
    waiting.erase(next);
    return true;
  }
  std::deque<Announced>& announced = peers_[hop.to.value].announced;
  const auto which = std::find_if(announced.begin(), announced.end(), [&](const Announced& each) {
    return KeyOf(each.word) == hop.key;
  });
  if (which == announced.end() || !which->may_go) return false;
  const Announced next = *which;
  announced.erase(which);
  StartSend(hop.to, next);
  return true;
}

void LaneWire::Sent(WorkerId to, const LaneWord& word) {
  const std::shared_ptr<Mailbox> mailbox = HeldMailbox();
  if (mailbox != nullptr) mailbox->OnSent(to, word.kind, word.block);
  const std::lock_guard<std::mutex> lock(mutex_);
  --peers_[to.value].sending;
  SayGoodbyeIfReady(to);
}

void LaneWire::Received(WorkerId from, const LaneWord& word) {
  const std::shared_ptr<Mailbox> mailbox = HeldMailbox();
  if (mailbox == nullptr) return;
  mailbox->OnMoved(from, word.kind, word.block);
  bool goodbye = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Peer& peer = peers_[from.value];
    goodbye = --peer.receiving == 0 && peer.goodbye_came && peer.waiting.empty();
  }
  if (goodbye) mailbox->OnGoodbye(from);
}

void LaneWire::Drain(std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  WaitUntil(lock, drained_, Deadline(limit), [this] {
    if (ended_) return !wake_underway_;
    for (int w = 0; w < static_cast<int>(peers_.size()); ++w) {
      const Peer& peer = peers_[w];
      if (!peer.announced.empty() || peer.sending > 0) return false;
      if (peer.goodbye_wanted && !peer.goodbye_said) return false;
    }
    return !wake_underway_;
  });
}

}  // namespace ringzero
