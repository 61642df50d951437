// Matches what arrives with what is expected, and ends once.
#include "p2p/mailbox.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"

namespace ringzero {
namespace {

constexpr size_t kReadyPerPeer = 16;  // so many messages wait for their callbacks without growth
// A peer may be so many messages ahead of what is expected here.
constexpr uint32_t kMostAhead = 1 << 16;

std::string Describe(WorkerId worker, const char* what, MessageKey key, bool is_word,
                     size_t bytes) {
  return absl::StrCat("worker ", worker.value, " ", what, " ", ToString(key), ", ",
                      is_word ? "a word" : absl::StrCat(bytes, " bytes"));
}

}  // namespace

std::string ToString(MessageKey key) {
  return absl::StrCat("kind ", static_cast<int>(key.kind), ", tag ", key.tag);
}

absl::Status CheckPeerTimeout(const TransportOptions& options) {
  if (options.peer_timeout >= std::chrono::milliseconds(1)) return absl::OkStatus();
  return InvalidArgument("peer_timeout is ", options.peer_timeout.count(),
                         " ms; at least 1 ms is needed");
}

Mailbox::Mailbox(Parts parts)
    : self_(parts.self),
      progress_(parts.options.progress),
      arenas_(std::move(parts.arenas)),
      wire_(parts.wire),
      on_failure_(parts.options.on_failure),
      peers_(parts.workers) {
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

bool Mailbox::MaySend(WorkerId, std::span<const std::byte> block) const {
  return arenas_[0]->Contains(block) || arenas_[1]->Contains(block);
}

absl::Status Mailbox::Send(WorkerId to, MessageKey key, std::span<const std::byte> block,
                           Done sent) {
  if (!MaySend(to, block)) {
    return InvalidArgument("a message to worker ", to.value, " (", ToString(key), ") of ",
                           block.size(), " bytes that are not of Allocate");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  RZ_RETURN_IF_ERROR(CheckSend(to, key));
  NumberedQueue<Sending>& sends = peers_[to.value].channels[key.kind].sends;
  const uint32_t number = sends.end();
  sends.Reach(number) = {key, std::move(sent)};
  stats_.bytes_sent[key.kind] += block.size();
  ++stats_.messages_sent[key.kind];
  const bool has_left = wire_.SendBlock(
      to, {.key = key, .number = number, .bytes = block.size(), .data = block.data()});
  if (has_left) EndCall(sends, number);
  return absl::OkStatus();
}

absl::Status Mailbox::SendWord(WorkerId to, MessageKey key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RZ_RETURN_IF_ERROR(CheckSend(to, key));
  if (!wire_.HasWords(to)) return NoWords();
  ++stats_.messages_sent[key.kind];
  wire_.SendWord(to, key);
  return absl::OkStatus();
}

absl::Status Mailbox::Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                           Done arrived) {
  return Expect(from, {.key = key, .block = block, .done = std::move(arrived)});
}

absl::Status Mailbox::ExpectWord(WorkerId from, MessageKey key, Done arrived) {
  return Expect(from, {.is_word = true, .key = key, .done = std::move(arrived)});
}

absl::Status Mailbox::Expect(WorkerId from, Receiving wanted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const MessageKey key = wanted.key;
  RZ_RETURN_IF_ERROR(CheckCall(from, key, "a message from"));
  if (wanted.is_word && !wire_.HasWords(from)) return NoWords();
  Channel& channel = peers_[from.value].channels[key.kind];
  const bool has_come = channel.receives.end() != channel.posted;
  if (closing_ || (peers_[from.value].said_goodbye && !has_come)) {
    return FailedPrecondition("a message expected from worker ", from.value, " (", ToString(key),
                              ") after a goodbye");
  }
  const uint32_t number = channel.posted++;
  Receiving& receiving = channel.receives.Reach(number);
  receiving.is_posted = true;
  receiving.is_word = wanted.is_word;
  receiving.key = key;
  receiving.block = wanted.block;
  receiving.done = std::move(wanted.done);
  if (!receiving.has_come || !Fits(from, receiving)) return absl::OkStatus();
  if (receiving.is_word) {
    EndCall(channel.receives, number);
    return absl::OkStatus();
  }
  Next().moving.push_back({from, receiving.message, receiving.block});
  wire_.Wake();
  return absl::OkStatus();
}

absl::StatusOr<Mailbox::PostedBlock> Mailbox::OnBlock(WorkerId from, BlockMessage message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.ok()) return std::nullopt;
  RZ_CHECK(message.key.kind < kMaxMessageKinds, ToString(message.key));
  Channel& channel = peers_[from.value].channels[message.key.kind];
  return Meet(from, channel, std::move(message));
}

absl::Status Mailbox::OnNextBlock(WorkerId from, BlockMessage message) {
  PostedBlock block;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return absl::OkStatus();
    RZ_CHECK(message.key.kind < kMaxMessageKinds, ToString(message.key));
    Channel& channel = peers_[from.value].channels[message.key.kind];
    message.number = channel.came;
    RZ_ASSIGN_OR_RETURN(block, Meet(from, channel, message));
    if (block.has_value() && message.is_word) {
      EndCall(channel.receives, message.number);
      return absl::OkStatus();
    }
  }
  if (block.has_value()) Move({from, std::move(message), *block});
  return absl::OkStatus();
}

absl::StatusOr<Mailbox::PostedBlock> Mailbox::Meet(WorkerId from, Channel& channel,
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
  if (!wire_.Move(moving.from, moving.message, moving.block)) return;
  OnMoved(moving.from, moving.message.key.kind, moving.message.number);
}

// Ends the transport if what came is not what was expected.
bool Mailbox::Fits(WorkerId from, const Receiving& receiving) {
  const BlockMessage& message = receiving.message;
  if (message.key == receiving.key && message.is_word == receiving.is_word &&
      message.bytes == receiving.block.size()) {
    return true;
  }
  End(Internal(
      "channel ", from.value, " -> ", self_.value,
      " out of step: ", Describe(from, "sent", message.key, message.is_word, message.bytes), "; ",
      Describe(self_, "expected", receiving.key, receiving.is_word, receiving.block.size())));
  return false;
}

template <typename Call>
void Mailbox::EndCall(NumberedQueue<Call>& queue, uint32_t number) {
  Call* const call = queue.Find(number);
  if (call == nullptr || call->ended) return;  // the transport has ended
  Next().ready.push_back({std::move(call->done), absl::OkStatus()});
  call->ended = true;
  while (!queue.empty() && queue[0].ended) queue.pop_front();
  wire_.Wake();
}

void Mailbox::OnMoved(WorkerId from, uint8_t kind, uint32_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  EndCall(peers_[from.value].channels[kind].receives, number);
}

void Mailbox::OnSent(WorkerId to, uint8_t kind, uint32_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  EndCall(peers_[to.value].channels[kind].sends, number);
  if (closing_ && status_.ok()) SayGoodbyes();
}

void Mailbox::EndCalls(Channel& channel, const absl::Status& why) {
  for (size_t i = 0; i < channel.receives.size(); ++i) {
    Receiving& each = channel.receives[i];
    if (each.is_posted && !each.ended) Next().ready.push_back({std::move(each.done), why});
  }
  for (size_t i = 0; i < channel.sends.size(); ++i) {
    Sending& each = channel.sends[i];
    if (!each.ended) Next().ready.push_back({std::move(each.done), why});
  }
  channel.receives.clear();
  channel.sends.clear();
}

void Mailbox::OnNote(WorkerId from, Note note) {
  const std::lock_guard<std::mutex> lock(mutex_);
  switch (note.kind) {
    case Note::Kind::kAbort: {
      // Passed on, though `from` tells everybody: we may leave before the others have read that,
      // and must not be taken for the one that began it. An OK would leave us half dead: it is no
      // reason.
      const absl::Status why(note.code, note.text);
      return End(AbortedBy(from, why.ok() ? absl::UnknownError("it gave no reason") : why));
    }
    case Note::Kind::kGoodbye: return TakeGoodbye(from);
    case Note::Kind::kQuestion:
      if (!status_.ok()) return;
      Next().questions.push_back({from, std::move(note)});
      return wire_.Wake();
    case Note::Kind::kAnswer: return TakeAnswer(from, std::move(note));
  }
}

void Mailbox::TakeGoodbye(WorkerId from) {
  Peer& peer = peers_[from.value];
  peer.said_goodbye = true;
  FailQuestions(FailedPrecondition("worker ", from.value, " said goodbye before it answered"),
                from);
  if (!next_.answers.empty()) wire_.Wake();
  for (const Channel& channel : peer.channels) {
    for (size_t i = 0; i < channel.receives.size(); ++i) {
      if (!channel.receives[i].has_come) return EndUnmet(from, true, channel.receives[i].key);
    }
  }
}

void Mailbox::EndUnmet(WorkerId from, bool awaited, MessageKey key) {
  End(Internal("worker ", from.value, " said goodbye, but worker ", self_.value,
               awaited ? " expects" : " has for it", " a message: ", ToString(key)));
}

void Mailbox::OnDisconnect(WorkerId from) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Peer& peer = peers_[from.value];
  if (Needs(peer)) return End(WorkerDied(from));
  // What it took before its goodbye has left by now.
  for (const Channel& channel : peer.channels) {
    if (!channel.sends.empty()) return EndUnmet(from, false, channel.sends[0].key);
  }
}

void Mailbox::OnSilence(WorkerId from, std::chrono::milliseconds lasted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Needs(peers_[from.value])) End(WorkerSilent(from, lasted));
}

void Mailbox::Fail(const absl::Status& why) {
  if (why.ok()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  End(why);
}

void Mailbox::Abort(const absl::Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.ok()) return;
  on_failure_ = nullptr;
  End(why.ok() ? absl::InternalError("aborted without a reason") : why);
}

void Mailbox::End(const absl::Status& why, Tell tell) {
  if (!status_.ok()) return;
  status_ = why;
  report_failure_ = true;
  Next();
  for (Peer& peer : peers_) {
    for (Channel& channel : peer.channels) EndCalls(channel, why);
  }
  FailQuestions(why, std::nullopt);
  for (int worker = 0; tell == Tell::kPeers && worker < workers(); ++worker) {
    if (worker == self_.value) continue;
    wire_.SendNote(WorkerId(worker), {.kind = Note::Kind::kAbort,
                                      .code = why.code(),
                                      .text = std::string(why.message().substr(0, kMaxTextBytes))});
  }
  wire_.Wake();
  drained_.notify_all();
}

void Mailbox::RunCallbacks() {
  // Whoever of several message threads is here runs what the others have made ready, too.
  const std::lock_guard<std::mutex> one_at_a_time(callbacks_mutex_);
  while (has_next_.load(std::memory_order_acquire)) {
    std::function<void(const absl::Status&)> on_failure;
    absl::Status status;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::swap(running_, next_);
      has_next_.store(false, std::memory_order_relaxed);
      if (std::exchange(report_failure_, false)) {
        status = status_;
        on_failure = std::exchange(on_failure_, nullptr);
      }
    }
    auto& [ready, moving, answers, questions] = running_;
    if (on_failure != nullptr) on_failure(status);
    for (const Moving& each : moving) Move(each);
    for (const Ready& each : ready) each.done(each.end);
    for (auto& [arrival, answer] : answers) arrival(std::move(answer));
    for (const auto& [from, question] : questions) {
      wire_.SendNote(from, {.kind = Note::Kind::kAnswer,
                            .number = question.number,
                            .text = Answer(from, question.text).substr(0, kMaxTextBytes)});
    }
    ready.clear();
    moving.clear();
    answers.clear();
    questions.clear();
  }
}

absl::Status Mailbox::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  RZ_RETURN_IF_ERROR(status_);
  if (closing_) return absl::OkStatus();
  for (int worker = 0; worker < workers(); ++worker) {
    for (const Channel& channel : peers_[worker].channels) {
      if (channel.receives.empty()) continue;
      const Receiving& first = channel.receives[0];
      return FailedPrecondition(
          "worker ", self_.value, " cannot say goodbye: a message from worker ", worker, " (",
          ToString(first.is_posted ? first.key : first.message.key), ") ",
          first.is_posted ? "is still expected" : "came and was never expected");
    }
  }
  closing_ = true;
  SayGoodbyes();
  return absl::OkStatus();
}

void Mailbox::SayGoodbyes() {
  for (int worker = 0; worker < workers(); ++worker) {
    Peer& peer = peers_[worker];
    const auto is_empty = [](const Channel& channel) { return channel.sends.empty(); };
    if (peer.told_goodbye || !std::ranges::all_of(peer.channels, is_empty)) continue;
    peer.told_goodbye = true;
    if (worker != self_.value) wire_.SendNote(WorkerId(worker), {.kind = Note::Kind::kGoodbye});
  }
  if (SaidGoodbyes()) drained_.notify_all();
}

std::vector<Undelivered> Mailbox::undelivered() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Undelivered> waiting;
  for (int worker = 0; worker < workers(); ++worker) {
    for (const Channel& channel : peers_[worker].channels) {
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
  wire_.SendNote(
      to,
      {.kind = Note::Kind::kQuestion, .number = number, .text = question.substr(0, kMaxTextBytes)});
  return absl::OkStatus();
}

void Mailbox::AnswerWith(Answerer answerer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  answerer_ = std::move(answerer);
}

std::string Mailbox::Answer(WorkerId from, const std::string& question) {
  Answerer answerer;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    answerer = answerer_;
  }
  return answerer ? answerer(from, question) : std::string();
}

void Mailbox::TakeAnswer(WorkerId from, Note note) {
  const auto asked = asked_.find(note.number);
  if (asked == asked_.end() || asked->second.first != from) return;
  Next().answers.push_back({std::move(asked->second.second), std::move(note.text)});
  asked_.erase(asked);
  wire_.Wake();
}

void Mailbox::FailQuestions(const absl::Status& why, std::optional<WorkerId> to) {
  std::erase_if(asked_, [&](auto& question) {
    auto& [asked, arrival] = question.second;
    if (to.has_value() && asked != *to) return false;
    Next().answers.push_back({std::move(arrival), why});
    return true;
  });
}

bool Mailbox::SaidGoodbyes() const {
  return !status_.ok() || std::ranges::all_of(peers_, &Peer::told_goodbye);
}

void Mailbox::ShutDown() {
  const Deadline limit(kDrainLimit);
  const auto said = [this] { return !closing_ || SaidGoodbyes(); };
  std::unique_lock<std::mutex> lock(mutex_);
  while (progress_ == ProgressMode::kCaller && !said() && !limit.over()) {
    lock.unlock();
    if (!Poll()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    lock.lock();
  }
  WaitUntil(lock, drained_, limit, said);
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
