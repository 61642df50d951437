// Offers, goes, and what waits for its turn.
#include "p2p/nccl/lane_transport.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <span>

#include "absl/strings/str_cat.h"
#include "p2p/deadline.h"
#include "p2p/mailbox.h"

namespace ringzero {
namespace {

constexpr size_t kWakeBytes = 64;

MessageKey KeyOf(const LaneWord& word) { return {word.kind, word.tag}; }

// A Mailbox's words over another Transport, its payload over lanes. docs/p2p.md (Transport nccl)
// has a payload's journey, and why both ends start together.
//
// Words are questions of the inner transport, which brings hellos, signs of life, deaths and aborts
// as well. Its message thread runs the mailbox's callbacks. Thread-safe. Lock order: mailbox, wire,
// the inner transport's own.
class LaneWire final : public Wire {
 public:
  // `word_kinds`: LaneParts::word_kinds.
  LaneWire(WorkerId self, LaneRoutes routes, const std::vector<uint8_t>& word_kinds)
      : self_(self), routes_(std::move(routes)), peers_(routes_.to.size()) {
    peers_[self.value].greeted = true;
    for (const uint8_t kind : word_kinds) is_word_[kind % kMaxMessageKinds] = true;
  }

  // Until Detach, `words` and `driver` live. The error of words' Allocate.
  absl::Status Attach(Mailbox* mailbox, Transport* words, LaneDriver* driver) {
    const std::lock_guard<std::mutex> lock(mutex_);
    RZ_ASSIGN_OR_RETURN(wake_from_, words->Allocate(kWakeBytes, MemoryUse::kSums));
    RZ_ASSIGN_OR_RETURN(wake_into_, words->Allocate(kWakeBytes, MemoryUse::kSums));
    mailbox_ = mailbox;
    words_ = words;
    driver_ = driver;
    return absl::OkStatus();
  }
  void SayHello() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int w = 0; w < static_cast<int>(peers_.size()); ++w) {
      if (w == self_.value) continue;
      const auto answered = [this, w](const absl::StatusOr<std::string>& text) {
        // Empty: it is not there yet, and will say hello itself.
        if (text.ok() && !text->empty()) TakeHello(WorkerId(w), *text);
      };
      words_->Ask(WorkerId(w), std::string(kLaneHello), answered)
          .IgnoreError();  // refused: words have ended
    }
  }
  // Ends the connection with both; from now on nothing is sent.
  void Detach() {
    const std::lock_guard<std::mutex> lock(mutex_);
    mailbox_ = nullptr;
    words_ = nullptr;
    driver_ = nullptr;
    ended_ = true;
  }

  bool SendBlock(WorkerId to, const BlockMessage& message) override {
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
    Offer(to, word, {data, message.bytes});
    return false;
  }
  bool Move(WorkerId from, const BlockMessage& message, std::span<std::byte> block) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended_) return false;
    std::vector<LaneWord>& unmet = peers_[from.value].unmet;
    const auto offer = std::find_if(unmet.begin(), unmet.end(), [&](const LaneWord& each) {
      return each.kind == message.key.kind && each.block == message.number;
    });
    const LaneWord word = *offer;
    unmet.erase(offer);
    if (is_word_[word.kind] && from != self_) return true;
    FailLater(StartReceive(from, word, block));
    return false;
  }
  void SendNote(WorkerId to, Note note) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    switch (note.kind) {
      case Note::Kind::kAbort: return End(absl::Status(note.code, note.text));
      case Note::Kind::kGoodbye:
        peers_[to.value].goodbye_wanted = true;
        return SayGoodbyeIfReady(to);
      case Note::Kind::kQuestion: return Ask(to, note);
      case Note::Kind::kAnswer: return;  // `words` answers itself
    }
  }
  void Wake() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (words_ == nullptr || wake_underway_) return;
    wake_underway_ = true;
    // A message to ourselves: so the callbacks run on the thread that gives the signs of life, and
    // a callback that hangs is seen as what it is.
    const MessageKey key = {0, wakes_++};
    const auto woken = [this](const absl::Status&) {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        wake_underway_ = false;
        drained_.notify_all();
      }
      RunCallbacks();
    };
    if (!ended_ && words_->Post(self_, key, wake_into_.as<std::byte>(), woken).ok()) {
      // Refused: `woken` gets that error.
      words_->Send(self_, key, wake_from_.as<std::byte>(), [](const absl::Status&) {})
          .IgnoreError();
      return;
    }
    wake_underway_ = false;  // the words have ended: there is nobody left to look alive to
    driver_->Post([this] { RunCallbacks(); });
  }

  // The inner message thread's side: the answer to a word.
  std::string OnWord(WorkerId from, const std::string& text) {
    if (text == kLaneHello) {
      TakeHello(from, text);
      return text;
    }
    absl::StatusOr<LaneWord> word = ParseLaneWord(text);
    const absl::Status taken = word.ok() ? TakeWord(from, *word) : word.status();
    Fail(Annotate(taken, absl::StrCat("from worker ", from.value)));
    return "";
  }
  // Of the words, and of lanes.
  void OnWordsFailed(const absl::Status& why) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      bool all_told = true;
      for (int w = 0; w < static_cast<int>(peers_.size()); ++w) {
        const Peer& peer = peers_[w];
        // Or would be, had it said hello: it ended before.
        const bool told = peer.goodbye_wanted && peer.offered.empty() && peer.sending == 0;
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

  // Waits until all that was sent and every goodbye is gone, at most `limit`.
  void Drain(std::chrono::milliseconds limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    WaitUntil(lock, drained_, Deadline(limit), [this] {
      if (ended_) return !wake_underway_;
      for (const Peer& peer : peers_) {
        if (!peer.offered.empty() || peer.sending > 0) return false;
        if (peer.goodbye_wanted && !peer.goodbye_said) return false;
      }
      return !wake_underway_;
    });
  }
  bool SaidGoodbye(WorkerId to) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return peers_[to.value].goodbye_wanted;
  }

 private:
  struct Offered {  // by us: waits for its go
    LaneWord word;
    std::span<std::byte> block;
  };
  struct Peer {
    std::vector<LaneWord> unsaid;  // until it is greeted
    std::deque<Offered> offered;
    std::vector<LaneWord> unmet;  // offers by it: their blocks are not posted yet
    uint64_t offers = 0;          // by us, so far
    int sending = 0;              // on a lane
    int receiving = 0;
    bool greeted = false;         // its hello has come
    bool goodbye_wanted = false;  // when all before it is gone
    bool goodbye_said = false;
    bool goodbye_came = false;  // to be told when all before it is here
  };

  // All with mutex_ held.
  void Say(WorkerId to, const LaneWord& word) {
    Peer& peer = peers_[to.value];
    if (!peer.greeted) return peer.unsaid.push_back(word);  // nobody may answer there yet
    // A question that is not accepted has nobody to read it: the words have ended, and say so.
    if (words_ != nullptr) {
      words_->Ask(to, ToText(word), [](const absl::StatusOr<std::string>&) {}).IgnoreError();
    }
  }
  void End(const absl::Status& why) {
    if (ended_) return;
    ended_ = true;
    for (Peer& peer : peers_) peer.offered.clear();
    driver_->Abort();
    words_->Abort(why);  // which tells everybody
    drained_.notify_all();
  }
  void Ask(WorkerId to, const Note& question) {
    if (words_ == nullptr) return;
    const auto answered = [this, to,
                           number = question.number](const absl::StatusOr<std::string>& answer) {
      // Its goodbye fails the question.
      if (answer.ok() && *answer == kLaneGone) return;
      Mailbox* const mailbox = HeldMailbox();
      if (mailbox == nullptr || !answer.ok()) return;  // the end of words is told elsewhere
      mailbox->OnNote(to, {.kind = Note::Kind::kAnswer, .number = number, .text = *answer});
    };
    words_->Ask(to, question.text, answered).IgnoreError();
  }
  void SayGoodbyeIfReady(WorkerId to) {
    Peer& peer = peers_[to.value];
    // A word must not overtake payload.
    if (ended_ || !peer.greeted || peer.goodbye_said) return;
    if (!peer.offered.empty() || peer.sending > 0) return;
    if (peer.goodbye_wanted) {
      peer.goodbye_said = true;
      Say(to, {.type = LaneWord::Type::kGoodbye, .number = peer.offers});
    }
    drained_.notify_all();
  }
  void StartSend(WorkerId to, const Offered& offered) {
    ++peers_[to.value].sending;
    driver_->Start({.lane = routes_.to[to.value],
                    .op = {LaneOp::Direction::kSend, to, offered.block},
                    .done = [this, to, word = offered.word] { Sent(to, word); }});
  }
  void Offer(WorkerId to, const LaneWord& message, std::span<std::byte> block) {
    if (routes_.to[to.value] == kNoLane) {
      return FailLater(InvalidArgument("no lane leads from worker ", self_.value, " to worker ",
                                       to.value, " (", ToString(KeyOf(message)), ")"));
    }
    Peer& peer = peers_[to.value];
    LaneWord word = message;
    word.number = peer.offers++;
    peer.offered.push_back({word, block});
    if (to == self_) {
      return driver_->Post([this, word] { Fail(TakeOffer(self_, word)); });
    }
    Say(to, word);
  }
  // Later, when nobody holds the mailbox's lock.
  void FailLater(const absl::Status& why) {
    if (why.ok()) return;
    driver_->Post([this, why] {
      if (Mailbox* const mailbox = HeldMailbox()) mailbox->Fail(why);
    });
  }
  absl::Status StartReceive(WorkerId from, const LaneWord& offer, std::span<std::byte> block) {
    if (routes_.from[from.value] == kNoLane) {
      return Internal("worker ", from.value, " offers a payload to worker ", self_.value,
                      ", but no lane leads here");
    }
    ++peers_[from.value].receiving;
    driver_->Start({.lane = routes_.from[from.value],
                    .op = {LaneOp::Direction::kReceive, from, block},
                    .done = [this, from, offer] { Received(from, offer); }});
    if (from == self_) return Go(self_, offer);
    LaneWord go = offer;
    go.type = LaneWord::Type::kGo;
    Say(from, go);
    return absl::OkStatus();
  }
  absl::Status Go(WorkerId to, const LaneWord& word) {
    std::deque<Offered>& offered = peers_[to.value].offered;
    const auto which = std::ranges::find(offered, word.number,
                                         [](const Offered& each) { return each.word.number; });
    if (which == offered.end()) return absl::InternalError("a go for what was not offered");
    const Offered next = *which;
    offered.erase(which);
    StartSend(to, next);
    return absl::OkStatus();
  }

  // Without it.
  void TakeHello(WorkerId from, const std::string& text) {
    if (text != kLaneHello) return Fail(Internal("worker ", from.value, " has no lanes"));
    const std::lock_guard<std::mutex> lock(mutex_);
    Peer& peer = peers_[from.value];
    if (std::exchange(peer.greeted, true)) return;
    for (const LaneWord& word : std::exchange(peer.unsaid, {})) Say(from, word);
    SayGoodbyeIfReady(from);
  }
  absl::Status TakeWord(WorkerId from, const LaneWord& word) {
    if (word.type == LaneWord::Type::kOffer) return TakeOffer(from, word);
    bool goodbye = false;
    Mailbox* mailbox = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (ended_) return absl::OkStatus();
      mailbox = mailbox_;
      Peer& peer = peers_[from.value];
      if (word.type == LaneWord::Type::kGo) {
        RZ_RETURN_IF_ERROR(Go(from, word));
      } else {
        peer.goodbye_came = true;
        goodbye = peer.receiving == 0;
      }
    }
    if (goodbye) mailbox->OnNote(from, {.kind = Note::Kind::kGoodbye});
    mailbox->RunCallbacks();
    return absl::OkStatus();
  }
  absl::Status TakeOffer(WorkerId from, const LaneWord& word) {
    Mailbox* mailbox = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (ended_) return absl::OkStatus();
      mailbox = mailbox_;
      peers_[from.value].unmet.push_back(word);
    }
    const BlockMessage message = {.key = KeyOf(word), .number = word.block, .bytes = word.bytes};
    RZ_ASSIGN_OR_RETURN(const auto block, mailbox->OnBlock(from, message));
    if (block.has_value() && Move(from, message, *block)) {
      mailbox->OnMoved(from, word.kind, word.block);
    }
    mailbox->RunCallbacks();
    return absl::OkStatus();
  }
  void Sent(WorkerId to, const LaneWord& word) {
    Mailbox* const mailbox = HeldMailbox();
    if (mailbox != nullptr) mailbox->OnSent(to, word.kind, word.block);
    const std::lock_guard<std::mutex> lock(mutex_);
    --peers_[to.value].sending;
    SayGoodbyeIfReady(to);
  }
  void Received(WorkerId from, const LaneWord& word) {
    Mailbox* const mailbox = HeldMailbox();
    if (mailbox == nullptr) return;
    mailbox->OnMoved(from, word.kind, word.block);
    bool goodbye = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      Peer& peer = peers_[from.value];
      goodbye = --peer.receiving == 0 && peer.goodbye_came;
    }
    if (goodbye) mailbox->OnNote(from, {.kind = Note::Kind::kGoodbye});
  }
  Mailbox* HeldMailbox() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return mailbox_;
  }
  void RunCallbacks() {
    if (Mailbox* const mailbox = HeldMailbox()) mailbox->RunCallbacks();
  }
  void Fail(const absl::Status& why) {
    Mailbox* const mailbox = HeldMailbox();
    if (mailbox == nullptr || why.ok()) return;
    mailbox->Fail(why);
    mailbox->RunCallbacks();
  }

  const WorkerId self_;
  const LaneRoutes routes_;
  bool is_word_[kMaxMessageKinds] = {};

  mutable std::mutex mutex_;
  std::condition_variable drained_;
  Mailbox* mailbox_ = nullptr;  // as the next two, null after Detach
  Transport* words_ = nullptr;
  LaneDriver* driver_ = nullptr;
  Buffer wake_from_, wake_into_;  // of words: a message to ourselves
  std::vector<Peer> peers_;
  bool ended_ = false;
  bool wake_underway_ = false;
  uint64_t wakes_ = 0;
};

class LaneTransport final : public Mailbox {
 public:
  LaneTransport(Parts parts, std::unique_ptr<LaneWire> wire, LaneParts lanes)
      : Mailbox(std::move(parts)),
        name_(std::move(lanes.name)),
        wire_(std::move(wire)),
        news_(std::move(lanes.news)),
        words_(std::move(lanes.words)),
        driver_(std::make_unique<LaneDriver>(
            std::move(lanes.lanes),
            LaneDriverOptions{
                .on_failure = [this](const absl::Status& why) { wire_->OnWordsFailed(why); }})) {}

  absl::Status Open() {
    RZ_RETURN_IF_ERROR(wire_->Attach(this, words_.get(), driver_.get()));
    words_->AnswerWith([this](WorkerId from, const std::string& text) {
      if (IsLaneWord(text)) return wire_->OnWord(from, text);
      if (wire_->SaidGoodbye(from)) return std::string(kLaneGone);
      return Answer(from, text);
    });
    ListenWith([this](const absl::Status& why) { wire_->OnWordsFailed(why); });
    const absl::Status before = words_->status();
    if (!before.ok()) wire_->OnWordsFailed(before);
    wire_->SayHello();
    return absl::OkStatus();
  }

  ~LaneTransport() override {
    ShutDown();
    if (status().ok()) {  // closed
      wire_->Drain(kDrainLimit);
      words_->Close().IgnoreError();  // refused: it has ended, and nobody minds
    }
    wire_->Detach();
    // These call us until they are gone.
    driver_.reset();
    ListenWith(nullptr);
    words_.reset();
    RunCallbacks();
  }

  std::string name() const override { return name_; }
  std::string LinkTo(WorkerId to) const override {
    if (to == self()) return "self";
    return absl::StrCat(name_, " (words: ", words_->LinkTo(to), ")");
  }
  absl::Status Ask(WorkerId to, const std::string& question, AnswerArrival arrival) override {
    if (IsLaneWord(question)) return absl::InvalidArgumentError("a question like a lane's word");
    return Mailbox::Ask(to, question, std::move(arrival));
  }

 private:
  void ListenWith(std::function<void(const absl::Status&)> listener) {
    const std::lock_guard<std::mutex> lock(news_->mutex);
    news_->listener = std::move(listener);
  }

  const std::string name_;
  const std::unique_ptr<LaneWire> wire_;
  const std::shared_ptr<LaneNews> news_;
  std::unique_ptr<Transport> words_;
  std::unique_ptr<LaneDriver> driver_;
};

absl::Status CheckRoutes(const LaneParts& parts, int workers) {
  const int lanes = static_cast<int>(parts.lanes.size());
  for (const std::vector<int>* routes : {&parts.routes.to, &parts.routes.from}) {
    if (static_cast<int>(routes->size()) != workers) {
      return InvalidArgument("routes for ", routes->size(), " workers; there are ", workers);
    }
    for (const int lane : *routes) {
      if (lane == kNoLane) continue;
      if (lane >= 0 && lane < lanes && parts.lanes[lane] != nullptr) continue;
      return InvalidArgument("a route takes lane ", lane, "; there are ", lanes);
    }
  }
  return absl::OkStatus();
}

}  // namespace

TransportOptions LaneWordsOptions(const TransportOptions& options, std::shared_ptr<LaneNews> news) {
  TransportOptions words;
  words.parameter_bytes = 4096;
  words.sum_bytes = 4096;  // for wakes
  words.peer_timeout = options.peer_timeout;
  words.on_failure = [news = std::move(news)](const absl::Status& why) {
    std::unique_lock<std::mutex> lock(news->mutex);
    const auto listener = news->listener;
    lock.unlock();
    if (listener != nullptr) listener(why);
  };
  return words;
}

absl::StatusOr<std::unique_ptr<Transport>> CreateLaneTransport(LaneParts parts,
                                                               const TransportOptions& options) {
  const WorkerId self = parts.words->self();
  const int workers = parts.words->workers();
  RZ_RETURN_IF_ERROR(CheckPeerTimeout(options));
  RZ_RETURN_IF_ERROR(CheckRoutes(parts, workers));
  if (options.progress == ProgressMode::kCaller) {
    return InvalidArgument("progress: transport ", parts.name, " has threads of its own");
  }
  if (options.memory != parts.memory.kind) {
    return InvalidArgument("memory: transport ", parts.name, " carries payload in ",
                           parts.memory.kind == MemoryKind::kCuda ? "a GPU's" : "the host's",
                           " memory only");
  }
  RZ_ASSIGN_OR_RETURN(Arenas arenas, MakeArenas(self, parts.memory, options));
  auto wire = std::make_unique<LaneWire>(self, std::move(parts.routes), parts.word_kinds);
  Mailbox::Parts mailbox = {self, workers, options, std::move(arenas), *wire};
  auto transport =
      std::make_unique<LaneTransport>(std::move(mailbox), std::move(wire), std::move(parts));
  RZ_RETURN_IF_ERROR(transport->Open());
  return transport;
}

}  // namespace ringzero
