// The thread, and what a sign of life is: "<number> <count>", "<number> left", or "<number> failed
// <code> <words>".
#include "p2p/rendezvous/presence.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/system_names.h"
#include "p2p/deadline.h"
#include "p2p/failure.h"

namespace ringzero {
namespace {

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

}  // namespace

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

// With the lock held.
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
