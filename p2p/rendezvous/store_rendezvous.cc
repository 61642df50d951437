// Gathering at a store, puts and gets under the name of the start, and the thread of a Presence.
#include "p2p/rendezvous/store_rendezvous.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/system_names.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"
#include "p2p/random_bytes.h"

namespace ringzero {
namespace {

// A sign of life is "<number> <count>", "<number> left", or "<number> failed <code> <words>".
constexpr int kBeatsInTimeout = 10;
constexpr std::chrono::milliseconds kLongestInterval(500);  // what is found adds little to it
constexpr size_t kLastWordsBytes = 16 << 10;
constexpr absl::string_view kLeft = " left";
constexpr absl::string_view kFailed = " failed ";

std::string AliveKey(int worker) { return absl::StrCat(kAliveKeys, worker); }

// Signals are for the program's own threads.
std::thread ThreadWithoutSignals(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread = NamedThread("rz-presence", std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

// What "<code> <words>" says.
absl::Status ReadLastWords(absl::string_view text) {
  const size_t space = text.find(' ');
  int code = 0;
  if (space == absl::string_view::npos || !absl::SimpleAtoi(text.substr(0, space), &code) ||
      code < 1 || code > 16) {
    return absl::UnknownError("it ended with words that cannot be read");
  }
  return absl::Status(static_cast<absl::StatusCode>(code), text.substr(space + 1));
}

constexpr char kJoin[] = "join.";
constexpr char kAccepted[] = "accepted.";
constexpr char kStartKey[] = "start";
std::string JoinKey(int worker) { return absl::StrCat(kJoin, worker); }
std::string AcceptedKey(int worker) { return absl::StrCat(kAccepted, worker); }

double Seconds(std::chrono::milliseconds limit) {
  return std::chrono::duration<double>(limit).count();
}

// "worker 2", "workers 2, 3".
std::string Workers(const std::vector<int>& workers) {
  return absl::StrCat(workers.size() == 1 ? "worker " : "workers ", absl::StrJoin(workers, ", "));
}

// A worker's place at the store, before and after the workers have gathered.
struct Meeting {
  std::shared_ptr<CheckedStore> store;
  std::unique_ptr<Presence> presence;
  std::string number;  // this worker's
};

// One worker's side of the gathering; its result is the name of the start.
class Gatherer {
 public:
  Gatherer(Meeting& meeting, const Gathering& gathering)
      : store_(*meeting.store),
        presence_(*meeting.presence),
        gathering_(gathering),
        number_(meeting.number),
        numbers_(gathering.workers) {}

  absl::StatusOr<std::string> Run() {
    const bool leads = gathering_.self.value == 0;
    if (leads) {
      RZ_ASSIGN_OR_RETURN(const std::string name, RandomHex(8));
      start_ = absl::StrCat("r", gathering_.restart, "-", name);
    }
    RZ_RETURN_IF_ERROR(store_.Write(JoinKey(gathering_.self.value), number_));
    Patience patience(gathering_.limit);
    while (true) {
      RZ_RETURN_IF_ERROR(StayJoined());
      RZ_ASSIGN_OR_RETURN(const bool done, leads ? Lead() : Follow());
      if (done) break;
      RZ_RETURN_IF_ERROR(presence_.status());
      if (patience.over()) return Missing();
      patience.Wait();
    }
    presence_.Know(numbers_);
    return start_;
  }

 private:
  // What lies there and is no worker's counts as nothing: it may be gone as soon as worker 0 comes.
  absl::StatusOr<std::string> Read(const std::string& key) { return store_.ReadOrEmpty(key); }

  // Worker 0 clears the store when it comes, maybe after us.
  absl::Status StayJoined() {
    const std::string key = JoinKey(gathering_.self.value);
    RZ_ASSIGN_OR_RETURN(const std::string there, Read(key));
    if (there == number_) return absl::OkStatus();
    if (there.empty()) return store_.Write(key, number_);
    return absl::AlreadyExistsError(absl::StrCat(
        "rendezvous ", store_.name(), ": another process is worker ", gathering_.self.value,
        " there, too: another job needs another place, or a job id of its own (RINGZERO_JOB_ID)"));
  }

  absl::StatusOr<bool> Lead() {
    for (int w = 0; w < gathering_.workers; ++w) {
      RZ_ASSIGN_OR_RETURN(numbers_[w], Read(JoinKey(w)));
      if (numbers_[w].empty()) return false;
    }
    const std::string answer = absl::StrCat(start_, " ", absl::StrJoin(numbers_, " "));
    RZ_ASSIGN_OR_RETURN(const std::string there, Read(kStartKey));
    if (there != answer) RZ_RETURN_IF_ERROR(store_.Write(kStartKey, answer));
    for (int w = 1; w < gathering_.workers; ++w) {
      RZ_ASSIGN_OR_RETURN(const std::string accepted, Read(AcceptedKey(w)));
      if (accepted != start_) return false;
    }
    return true;
  }

  absl::StatusOr<bool> Follow() {
    RZ_ASSIGN_OR_RETURN(const std::string answer, Read(kStartKey));
    const std::vector<std::string> words = absl::StrSplit(answer, ' ');
    const size_t mine = static_cast<size_t>(gathering_.self.value) + 1;
    if (words.size() <= mine || words[mine] != number_) return false;
    if (const size_t theirs = words.size() - 1; theirs != numbers_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rendezvous ", store_.name(), ": worker ", gathering_.self.value,
                       " was told of ", numbers_.size(), " workers, worker 0 of ", theirs));
    }
    start_ = words[0];
    numbers_.assign(words.begin() + 1, words.end());
    RZ_RETURN_IF_ERROR(store_.Write(AcceptedKey(gathering_.self.value), start_));
    return true;
  }

  absl::Status Missing() {
    std::vector<int> missing;
    std::vector<int> silent;  // left a number, maybe long ago, and did not take the answer
    for (int w = 0; w < gathering_.workers; ++w) {
      RZ_ASSIGN_OR_RETURN(const std::string number, Read(JoinKey(w)));
      if (number.empty()) missing.push_back(w);
      if (gathering_.self.value != 0 || w == 0) continue;
      RZ_ASSIGN_OR_RETURN(const std::string accepted, Read(AcceptedKey(w)));
      if (accepted != start_) silent.push_back(w);
    }
    if (missing.empty()) missing = silent;
    // All have left their numbers; then it is worker 0 who did not answer.
    if (missing.empty()) missing.push_back(0);
    return absl::DeadlineExceededError(
        absl::StrCat("rendezvous ", store_.name(), ": ", Workers(missing), " of ",
                     gathering_.workers, " did not come within ", Seconds(gathering_.limit), " s"));
  }

  CheckedStore& store_;
  Presence& presence_;
  const Gathering gathering_;
  const std::string number_;          // mine
  std::vector<std::string> numbers_;  // all, as worker 0 has them
  std::string start_;
};

class StoreRendezvous final : public Rendezvous {
 public:
  StoreRendezvous(Meeting meeting, const Gathering& gathering, std::string start)
      : meeting_(std::move(meeting)),
        store_(*meeting_.store),
        gathering_(gathering),
        start_(std::move(start)) {}
  ~StoreRendezvous() override { End(); }

  std::string name() const override { return store_.name(); }
  std::string start() const override { return start_; }

  absl::Status Put(const std::string& key, const std::string& value) override {
    RZ_RETURN_IF_ERROR(CheckSize(key, value));
    return store_.WriteOnce(Full(key), value);
  }

  absl::StatusOr<std::string> Get(const std::string& key,
                                  std::chrono::milliseconds limit) override {
    return WaitFor(key, limit, [&] { return store_.Read(Full(key)); });
  }

  absl::Status status() override { return meeting_.presence->status(); }
  void Leave(const absl::Status& why) override { meeting_.presence->Leave(why); }

 private:
  std::string Full(const std::string& key) const { return absl::StrCat(start_, "/", key); }
  std::string LeftKey(int worker) const { return Full(absl::StrCat("left.", worker)); }

  bool HasLeft(int worker) const {
    const auto left = store_.Read(LeftKey(worker));
    return left.ok() && left->has_value();
  }

  // All but those who never will.
  bool OthersHaveLeft() const {
    for (int w = 0; w < gathering_.workers; ++w) {
      if (!HasLeft(w) && !meeting_.presence->IsSilent(WorkerId(w))) return false;
    }
    return true;
  }

  void End() {
    Leave(absl::UnavailableError("it ended before it was connected"));
    if (!store_.Write(LeftKey(gathering_.self.value), "").ok()) return;
    Patience patience(gathering_.leave_limit);
    while (!OthersHaveLeft() && !patience.over()) patience.Wait();
    for (int w = 0; w < gathering_.workers; ++w) {
      if (!HasLeft(w)) return;
    }
    store_.Clear(Full(""));
    // Unless the job has started again meanwhile.
    const absl::StatusOr<std::string> start = store_.ReadOrEmpty(kStartKey);
    if (!start.ok() || !absl::StartsWith(*start, start_)) return;
    for (const char* prefix : {kJoin, kAccepted, kStartKey, kAliveKeys}) store_.Clear(prefix);
  }

  const Meeting meeting_;
  CheckedStore& store_;
  const Gathering gathering_;
  const std::string start_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Rendezvous>> GatherAt(std::unique_ptr<RendezvousStore> store,
                                                     const Gathering& gathering) {
  if (gathering.workers < 1 || gathering.self.value < 0 ||
      gathering.self.value >= gathering.workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no worker ", gathering.self.value, " among ", gathering.workers));
  }
  Meeting meeting{.store = std::make_shared<CheckedStore>(std::move(store)), .presence = nullptr};
  RZ_ASSIGN_OR_RETURN(meeting.number, RandomHex(16));
  if (gathering.self.value == 0) meeting.store->Clear("");  // whatever earlier starts have left
  meeting.presence = std::make_unique<Presence>(
      meeting.store, PresenceOptions{.self = gathering.self,
                                     .workers = gathering.workers,
                                     .number = meeting.number,
                                     .peer_timeout = gathering.peer_timeout});
  absl::StatusOr<std::string> start = Gatherer(meeting, gathering).Run();
  if (start.ok()) {
    meeting.store->Gathered();
    return std::make_shared<StoreRendezvous>(std::move(meeting), gathering, *std::move(start));
  }
  if (!absl::IsAlreadyExists(start.status())) {  // else another process speaks for this worker
    meeting.presence->Leave(start.status());
    meeting.presence->AwaitOthers(gathering.leave_limit);
  }
  return start.status();
}

Presence::Presence(std::shared_ptr<CheckedStore> store, PresenceOptions options)
    : store_(std::move(store)),
      options_(std::move(options)),
      interval_(
          std::min<Clock::duration>(options_.peer_timeout / kBeatsInTimeout, kLongestInterval)),
      // A look may take a while; twice this is no time to be silent in (p2p/heartbeat.h).
      clock_(Clock::now(), options_.peer_timeout / 5),
      peers_(static_cast<size_t>(options_.workers)) {
  thread_ = ThreadWithoutSignals([this] { Run(); });
}

Presence::~Presence() { Stop(); }

void Presence::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Presence::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    absl::Status status = Beat();
    if (status.ok()) status = Look();
    lock.lock();
    if (lost_.ok()) lost_ = status;
    stopped_.wait_for(lock, interval_, [this] { return stopping_; });
  }
}

absl::Status Presence::Beat() {
  return store_->Write(AliveKey(options_.self.value), absl::StrCat(options_.number, " ", beats_++));
}

absl::Status Presence::Look() {
  absl::Status found;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    now_ = clock_.Tick(Clock::now());
  }
  for (int w = 0; w < options_.workers; ++w) {
    if (w == options_.self.value) continue;
    RZ_ASSIGN_OR_RETURN(const std::string sign, store_->ReadOrEmpty(AliveKey(w)));
    const std::lock_guard<std::mutex> lock(mutex_);
    const absl::Status taken = Take(w, sign);
    if (found.ok()) found = taken;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  looked_ = true;
  return found;
}

absl::Status Presence::Take(int worker, const std::string& sign) {
  Peer& peer = peers_[static_cast<size_t>(worker)];
  if (sign == std::exchange(peer.sign, sign) || sign.empty()) {
    const Clock::duration silence = now_ - peer.heard;
    if (peer.state != Peer::State::kAlive || silence < options_.peer_timeout) {
      return absl::OkStatus();
    }
    peer.state = Peer::State::kSilent;
    return WorkerSilent(WorkerId(worker),
                        std::chrono::duration_cast<std::chrono::milliseconds>(silence));
  }
  // At the first look it may be what an earlier start has left.
  if (!looked_) return absl::OkStatus();
  const absl::string_view text = sign;
  const size_t number = text.find(' ');
  if (!numbers_.empty() && text.substr(0, number) != numbers_[static_cast<size_t>(worker)]) {
    return absl::OkStatus();
  }
  absl::string_view rest = text.substr(std::min(number, text.size()));
  peer.state = Peer::State::kLeft;
  if (rest == kLeft) return absl::OkStatus();
  if (absl::ConsumePrefix(&rest, kFailed)) {
    return ReportedBy(WorkerId(worker), ReadLastWords(rest));
  }
  peer.state = Peer::State::kAlive;
  peer.heard = now_;
  return absl::OkStatus();
}

void Presence::Know(std::vector<std::string> numbers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_ = std::move(numbers);
  // From now on each of them is missed, and the next look takes its sign as new: it may be dead.
  looked_ = true;
  now_ = clock_.Tick(Clock::now());
  std::fill(peers_.begin(), peers_.end(), Peer{.state = Peer::State::kAlive, .heard = now_});
}

absl::Status Presence::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return left_ ? absl::OkStatus() : lost_;
}

bool Presence::IsSilent(WorkerId worker) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return peers_[static_cast<size_t>(worker.value)].state == Peer::State::kSilent;
}

void Presence::Leave(const absl::Status& why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(left_, true)) return;
  }
  Stop();
  const std::string last = why.ok() ? std::string(kLeft)
                                    : absl::StrCat(kFailed, static_cast<int>(why.code()), " ",
                                                   why.message().substr(0, kLastWordsBytes));
  // Who cannot be told finds out by our silence.
  store_->Write(AliveKey(options_.self.value), options_.number + last).IgnoreError();
}

void Presence::AwaitOthers(std::chrono::milliseconds limit) {
  const auto all_gone = [this] {
    return std::none_of(peers_.begin(), peers_.end(),
                        [](const Peer& peer) { return peer.state == Peer::State::kAlive; });
  };
  Patience patience(limit);
  while (!all_gone() && !patience.over()) {
    patience.Wait();
    Look().IgnoreError();
  }
}

}  // namespace ringzero
