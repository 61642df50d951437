// The queue into the message thread, the thread, its clock, and how it ends.
#include "p2p/ucx/ucx_port.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crypto.h"
#include "base/status.h"
#include "base/system_names.h"
#include "p2p/failure.h"

namespace ringzero {
namespace {

constexpr std::chrono::seconds kFarewellLimit(1);       // for last words and their answers
constexpr int kIdleTurns = 32;                          // before the message thread goes to sleep
constexpr std::chrono::milliseconds kLookAtSockets(1);  // while the thread does not sleep
constexpr uint64_t kStepsPerLook = 16;                  // at the clock
constexpr int kLooksPerTurn = 4;
constexpr int kProgressPerTurn = 16;     // large payloads go on and on
constexpr size_t kCommandsPerPeer = 64;  // so many wait without growth
constexpr size_t kSockets = 2;           // where they begin in UcxPort::events_

// Where a worker's address lies: for those of its host, or for those of other hosts (`network`).
std::string AddressKey(WorkerId worker, bool network) {
  return absl::StrCat("ucx/", worker.value, network ? "/network" : "");
}

std::string AddressHeader() { return absl::StrCat("ringzero ucx ", kUcxVersion, "\n"); }

thread_local const UcxPort* running_callbacks_of = nullptr;  // on the message thread

}  // namespace

UcxPort::UcxPort(UcxPortOptions options, UniqueFd wake)
    : options_(std::move(options)),
      wake_(std::move(wake)),
      links_(options_),
      hello_deadline_(options_.seat.join_limit) {
  events_ = {{wake_.get(), POLLIN, 0}, {-1, POLLIN, 0}};
  for (size_t w = 0; w < options_.ucx.sockets.size(); ++w) {
    if (!options_.ucx.sockets[w]) continue;
    // POLLHUP comes without being asked for.
    events_.push_back({options_.ucx.sockets[w].get(), 0, 0});
    watched_.push_back(WorkerId(w));
  }
}

bool UcxPort::SendBlock(WorkerId to, const BlockMessage& message) {
  if (MaySendAtOnce(to)) return links_.SendBlock(to, message);
  Push({.kind = Command::Kind::kBlock, .worker = to, .block = message});
  return false;
}

bool UcxPort::Move(WorkerId from, const BlockMessage& message, std::span<std::byte> block) {
  if (running_callbacks_of == this) return links_.Fetch(from, message, block);
  Push({.kind = Command::Kind::kFetch, .worker = from, .block = message, .into = block});
  return false;
}

void UcxPort::SendNote(WorkerId to, Note note) {
  Push({.kind = Command::Kind::kNote, .worker = to, .note = std::move(note)});
}

void UcxPort::Wake() {
  callbacks_due_.store(true);
  Rouse();
}

absl::Status UcxPort::OpenWorker() {
  RZ_ASSIGN_OR_RETURN(worker_, UcxWorker::Create(options_, &links_));
  RZ_ASSIGN_OR_RETURN(heard_, PulseBoard::Create(options_.seat.workers));
  const JobSeat& seat = options_.seat;
  nonces_.resize(static_cast<size_t>(seat.workers));
  std::string& mine = nonces_[static_cast<size_t>(seat.self.value)];
  mine = RandomBytes(kUcxNonceBytes);
  const std::string header = AddressHeader() + mine;
  if (!options_.ucx.elsewhere.empty()) {
    RZ_RETURN_IF_ERROR(seat.rendezvous->Put(AddressKey(seat.self, /*network=*/true),
                                            header + worker_->network_address()));
  }
  return seat.rendezvous->Put(AddressKey(seat.self, /*network=*/false),
                              header + worker_->address());
}

absl::Status UcxPort::Join(const Arenas& arenas) {
  for (const auto& arena : arenas) RZ_RETURN_IF_ERROR(worker_->Register(arena->memory()));
  hello_deadline_ = Deadline(options_.seat.join_limit);
  for (const WorkerId peer : options_.peers) {
    if (peer == options_.seat.self) continue;
    const std::string who = absl::StrCat("worker ", peer.value, "'s address for ucx");
    const bool network = std::ranges::count(options_.ucx.elsewhere, peer) > 0;
    absl::StatusOr<std::string> address =
        options_.seat.rendezvous->Get(AddressKey(peer, network), hello_deadline_.Left());
    if (!address.ok()) return WhileWaiting(address.status(), who);
    const std::string header = AddressHeader();
    if (!address->starts_with(header)) {
      return FailedPrecondition(who, " begins with '",
                                address->substr(0, std::min(address->find('\n'), size_t{40})),
                                "', not with '", header.substr(0, header.size() - 1), "'");
    }
    if (address->size() < header.size() + kUcxNonceBytes) {
      return FailedPrecondition(who, " is cut off");
    }
    RZ_RETURN_IF_ERROR(
        worker_->Connect(peer.value, address->substr(header.size() + kUcxNonceBytes)));
    nonces_[static_cast<size_t>(peer.value)] = address->substr(header.size(), kUcxNonceBytes);
  }
  return absl::OkStatus();
}

void UcxPort::Start(Mailbox& mailbox) {
  mailbox_ = &mailbox;
  for (auto* each : {&commands_, &running_}) each->reserve(kCommandsPerPeer * nonces_.size());
  const WorkerId self = options_.seat.self;
  messages_.emplace(self, heard_, options_.transport.peer_timeout);
  if (options_.ucx.board) {
    pulses_.emplace(self, options_.ucx.board, options_.transport.peer_timeout);
  }
  links_.Begin(mailbox_, worker_.get(), std::move(nonces_));
  links_.SayHello();
  if (options_.transport.progress == ProgressMode::kThread)
    thread_ = NamedThread("rz-messages", [this] { RunThread(); });
}

absl::Status UcxPort::Meet() {
  while (options_.transport.progress == ProgressMode::kCaller && !met_) {
    if (!mailbox_->Poll()) std::this_thread::yield();  // a peer may wait for our other port
  }
  met_.wait(false);
  return mailbox_->status();
}

// Met: all hellos have come and ours have left, or that will never be.
void UcxPort::CheckMet() {
  if (met_ || (!links_.Met() && mailbox_->status().ok())) return;
  links_.ReadLanes();
  met_ = true;
  met_.notify_all();
}

void UcxPort::Push(Command command) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!open_) return;
    if (command.kind == Command::Kind::kBlock) sends_wait_.store(true);
    commands_.push_back(std::move(command));
    has_commands_.store(true, std::memory_order_release);
  }
  Rouse();
}

void UcxPort::Rouse() {
  if (!asleep_.load()) return;
  const uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable anyway.
  (void)!write(wake_.get(), &one, sizeof(one));
}

void UcxPort::Run(Command& command) {
  switch (command.kind) {
    case Command::Kind::kBlock:
      if (!links_.SendBlock(command.worker, command.block)) return;
      return mailbox_->OnSent(command.worker, command.block.key.kind, command.block.number);
    case Command::Kind::kFetch:
      if (!links_.Fetch(command.worker, command.block, command.into)) return;
      return mailbox_->OnMoved(command.worker, command.block.key.kind, command.block.number);
    case Command::Kind::kNote: return links_.SendNote(command.worker, std::move(command.note));
  }
}

bool UcxPort::RunCommands() {
  if (!has_commands_.load(std::memory_order_acquire)) return false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_.swap(commands_);
    has_commands_.store(false, std::memory_order_relaxed);
    sends_wait_.store(false);
  }
  for (Command& command : running_) Run(command);
  running_.clear();
  return true;
}

// What a callback sends leaves at once, unless what was sent before still waits: this is the
// message thread, between two words. The mailbox' lock is held, which a message to another worker
// needs not.
bool UcxPort::MaySendAtOnce(WorkerId to) const {
  return running_callbacks_of == this && to != options_.seat.self && !sends_wait_.load();
}

// Messages, until there is something to tell: the next step may fetch a large payload, which takes
// as long as all the telling.
bool UcxPort::Move() {
  int looks = kLooksPerTurn;  // most of a turn without news is spent looking for them
  while (!worker_->Progress()) {
    if (--looks == 0) return false;
  }
  ++steps_;
  const auto tells = [this] {
    return links_.HasDone() || callbacks_due_.load(std::memory_order_relaxed);
  };
  for (int i = 1; i < kProgressPerTurn && !tells(); ++i) {
    if (!worker_->Progress()) break;
    ++steps_;
  }
  return true;
}

bool UcxPort::Turn() {
  bool any = RunCommands();
  if (Move()) any = true;
  links_.TellDone();
  if (callbacks_due_.load() && callbacks_due_.exchange(false)) {
    running_callbacks_of = this;
    mailbox_->RunCallbacks();
    running_callbacks_of = nullptr;
    any = true;
  }
  if (RunCommands()) any = true;
  links_.TellDone();
  idle_turns_ = any ? 0 : std::min(idle_turns_ + 1, kIdleTurns);
  ++steps_;
  links_.CleanUp();
  if (!met_.load(std::memory_order_relaxed)) CheckMet();
  return any;
}

void UcxPort::Look() {
  next_look_ = steps_ + kStepsPerLook;
  const Clock::time_point now = Clock::now();
  CheckHellos();
  CheckPulses(now);
  CheckSockets(now);
  links_.CheckSuspicion(now);
  links_.CleanUp();  // before the thread sleeps
}

void UcxPort::CheckSockets(Clock::time_point now) {
  if (watched_.empty() || now - sockets_seen_ < kLookAtSockets) return;
  sockets_seen_ = now;
  if (poll(events_.data() + kSockets, watched_.size(), 0) > 0) TakeHangUps();
}

void UcxPort::TakeHangUps() {
  for (size_t i = 0; i < watched_.size(); ++i) {
    pollfd& socket = events_[kSockets + i];
    if (socket.revents == 0) continue;
    socket = {-1, 0, 0};
    // What it has said may still lie in UCX's queues.
    for (int turn = 0; turn < kIdleTurns && Turn(); ++turn) {
    }
    links_.OnBroken(watched_[i].value, absl::UnavailableError("its socket is closed"));
  }
}

void UcxPort::CheckHellos() {
  if (hellos_missed_ || met_) return;
  const absl::Status lost = options_.seat.rendezvous->status();
  if (lost.ok() && !hello_deadline_.over()) return;
  hellos_missed_ = true;  // said once
  if (!lost.ok()) return mailbox_->Fail(lost);
  const std::optional<WorkerId> missing = links_.Ungreeted();
  if (!missing.has_value()) return;
  mailbox_->Fail(absl::DeadlineExceededError(
      absl::StrCat("worker ", missing->value, " has not said hello over ucx within ",
                   options_.seat.join_limit.count(), " ms")));
}

void UcxPort::CheckPulses(Clock::time_point now) {
  const auto on_board = [this](WorkerId worker) {
    return options_.ucx.board && options_.ucx.board->LastBeat(worker).has_value();
  };
  links_.TakeHeard([&](WorkerId worker) {
    if (!on_board(worker)) heard_->Beat(worker, now);
  });
  const auto tell = [this](const std::vector<Silence>& silences) {
    for (const Silence& silence : silences) {
      links_.GiveUp(silence.worker);
      mailbox_->OnSilence(silence.worker, silence.lasted);
    }
  };
  if (pulses_) tell(pulses_->Tick(now));
  if (now < messages_->next()) return;
  tell(messages_->Tick(now));
  links_.SendHeartbeats([&](WorkerId worker) { return !on_board(worker); });
  links_.ReadLanes();
}

std::string UcxPort::LinkTo(WorkerId to) const {
  if (to == options_.seat.self) return "self";
  if (to.value < 0 || to.value >= options_.seat.workers) return "not connected";
  const std::string lanes = links_.Lanes(to);
  return lanes.empty() ? "not connected" : "ucx " + lanes;
}

bool UcxPort::Poll() {
  if (options_.transport.progress != ProgressMode::kCaller || mailbox_ == nullptr) return false;
  const bool any = Turn();
  if (steps_ >= next_look_) Look();
  return any;
}

void UcxPort::RunThread() {
  while (!stopping_) {
    Turn();
    if (steps_ >= next_look_) Look();
    if (idle_turns_ >= kIdleTurns) Sleep();
  }
}

void UcxPort::Sleep() {
  asleep_.store(true);
  bool work = callbacks_due_.load() || stopping_;
  if (!work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    work = !commands_.empty();
  }
  // Never for ever: a peer that dies may wake nobody, and Look has to look.
  if (!work && worker_->Arm()) {
    Clock::time_point until = messages_->next();
    if (pulses_) until = std::min(until, pulses_->next());
    // The rendezvous tells who died before it said hello, and wakes nobody.
    if (!hellos_missed_ && !met_) until = std::min(until, Clock::now() + hello_deadline_.Look());
    const auto limit = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    events_[1].fd = worker_->event_descriptor();
    const int64_t most = std::clamp<int64_t>(limit.count(), 0, 3'600'000);
    poll(events_.data(), events_.size(), static_cast<int>(most));
    if ((events_[0].revents & POLLIN) != 0) {
      uint64_t ignored = 0;
      (void)!read(wake_.get(), &ignored, sizeof(ignored));
    }
  }
  asleep_.store(false);
  Look();
}

void UcxPort::Finish() {
  // What was said before a goodbye gets there; a job that failed only says why.
  const bool failed = !mailbox_->status().ok();
  const Deadline drained(failed ? kFarewellLimit : kDrainLimit);
  do {
    Turn();
    Look();
  } while (!links_.Quiet() && !drained.over());
  links_.SayFarewell();
  const Deadline seen = failed ? drained : Deadline(kFarewellLimit);
  while (!links_.FarewellSeen() && !seen.over()) {
    if (!Turn()) std::this_thread::yield();
    Look();
  }
}

void UcxPort::Stop() {
  stopping_ = true;
  Rouse();
  if (thread_.joinable()) thread_.join();
  if (mailbox_ != nullptr) Finish();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;
  }
  if (mailbox_ != nullptr) {
    RunCommands();
    links_.Shut();
    // UCX aborts the process if it is ended in the middle of reading a payload from another one's
    // memory: a cancelled receive that has begun goes on.
    worker_->ProgressWhile(kDrainLimit, [this] { return links_.Fetching(); });
    mailbox_->RunCallbacks();
  }
  worker_.reset();
  options_.ucx.sockets.clear();  // after the farewells
  mailbox_ = nullptr;
}

absl::StatusOr<std::unique_ptr<UcxPort>> UcxPort::Open(UcxPortOptions options) {
  const JobSeat& seat = options.seat;
  if (seat.workers < 1 || seat.self.value < 0 || seat.self.value >= seat.workers ||
      seat.workers > 65535 || seat.rendezvous == nullptr) {
    return InvalidArgument(
        "ucx: worker ", seat.self.value, " of ", seat.workers,
        seat.rendezvous == nullptr ? " has no rendezvous" : " is no seat in a job");
  }
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return SystemError("cannot make an eventfd");
  auto port = std::make_unique<UcxPort>(std::move(options), std::move(wake));
  RZ_RETURN_IF_ERROR(port->OpenWorker());
  return port;
}

}  // namespace ringzero
