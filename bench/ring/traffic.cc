// One state machine for all modes: every operation is, on every worker, one arrival from the left
// neighbour and what follows from it. One exception: worker 0 of a stream receives one answer for
// each iteration.
#include "bench/ring/traffic.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sharding/op.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

// Kinds of the engine's messages.
constexpr auto kCopyKind = static_cast<uint8_t>(Channel::kForwardCopy);
constexpr auto kSumKind = static_cast<uint8_t>(Channel::kSum);
// A stream's answers: a cache line.
constexpr size_t kStreamAnswerBytes = kPayloadAlignment;

class HopTraffic final : public Traffic {
 public:
  explicit HopTraffic(const TrafficSetup& setup)
      : setup_(setup),
        waiting_(*setup.waiting),
        transport_(waiting_.transport()),
        payload_(*setup.payload),
        self_(transport_.self()),
        left_((self_.value + transport_.workers() - 1) % transport_.workers()),
        right_((self_.value + 1) % transport_.workers()),
        tag_(setup.first_tag) {}

  absl::Status Prepare();
  absl::StatusOr<std::vector<double>> Time(int iterations) override;
  absl::StatusOr<int64_t> Check(uint64_t repetition) override;
  uint64_t next_tag() const override { return tag_; }

 private:
  bool sums() const { return setup_.mode == RingMode::kReduce; }
  bool streams() const { return setup_.mode == RingMode::kStream; }
  bool relays() const { return setup_.mode == RingMode::kRelay; }
  // Whether what comes here are a stream's answers.
  bool IsAnswered() const { return streams() && self_.value == 0; }
  int ArrivalsOfIteration() const { return IsAnswered() ? 1 : setup_.aggregate; }
  // Whether this worker begins operations by itself; the others react.
  bool Begins() const { return setup_.mode == RingMode::kShift || self_.value == 0; }
  // Whether it sends what has come, from where it lies.
  bool PassesOn() const { return (sums() || relays()) && self_.value != 0; }
  // Whether the calling thread has something to do with what comes.
  bool ReadsPayload() const { return !IsAnswered() && (sums() || checking_ || setup_.copy); }
  // Iterations on their way at once. Two in a stream, and in a shift whose receivers copy: as
  // between engines, no worker waits for another's copying.
  int Ahead() const {
    const bool copies = setup_.mode == RingMode::kShift && setup_.copy;
    return copies || streams() ? 2 : 1;
  }
  bool SendsOwn() const { return Begins() || setup_.mode == RingMode::kPingpong; }
  DataKey KeyOf(int worker, uint64_t operation) const {
    return {WorkerId(worker), repetition_ * setup_.aggregate + operation % setup_.buffers};
  }
  MessageKey MessageOf(int operation) const {
    return {sums() ? kSumKind : kCopyKind, tag_ + static_cast<uint64_t>(operation)};
  }
  int TurnOf(int operation) const { return operation % setup_.buffers; }
  int SlotOf(int operation) const { return operation % setup_.slots; }
  size_t ArrivingBytes() const { return IsAnswered() ? kStreamAnswerBytes : setup_.bytes; }
  Buffer Own(int turn) const {
    return Buffer(setup_.send.subspan(turn * AlignPayload(setup_.bytes), setup_.bytes));
  }
  std::span<std::byte> Slot(int operation) const {
    return setup_.receive.subspan(SlotOf(operation) * AlignPayload(ArrivingBytes()),
                                  ArrivingBytes());
  }

  absl::Status Run(int iterations);
  absl::Status ExpectMore();
  absl::Status Expect(int operation);
  absl::Status Send(WorkerId to, int operation, std::span<std::byte> block, int slot);
  void OnSent(int slot);          // message thread
  void OnArrival(int operation);  // message thread
  bool TakeTurn();                // waiting's mutex held
  std::span<std::byte> Arrived(int operation) const;
  absl::Status Release(int slot);
  absl::Status BeginIteration(int iteration);
  absl::Status Begin(int operation);
  absl::Status Handle(int operation);
  absl::Status HandleCopy(int operation);
  absl::Status HandleSum(int operation);
  absl::Status EndOperation();
  absl::Status SendOwn(int operation);
  absl::Status Renew(int turn);
  void Fail(const absl::Status& why);

  static constexpr int kNoSlot = -1;

  const TrafficSetup setup_;
  Waiting& waiting_;
  Transport& transport_;
  Payload& payload_;
  const WorkerId self_, left_, right_;

  std::vector<Buffer> terms_;   // what it adds, in its own memory
  std::vector<Buffer> copies_;  // where it copies what comes
  MappedMemory lent_;           // what it reads or adds to; empty: no memory is shared

  // State of the current run. In the run it belongs to the thread that handles arrivals: the caller
  // if that reads payload; otherwise actor_mutex_ guards it (the caller begins, callbacks go on).
  std::mutex actor_mutex_;
  bool checking_ = false;
  uint64_t repetition_ = 0;
  uint64_t tag_;
  int arrivals_ = 0;  // that come here in the run
  int handled_ = 0;
  std::vector<Clock::time_point> stamps_;  // ends of iterations
  int64_t wrong_ = 0;

  // Guarded by waiting's mutex.
  std::vector<int> held_;   // by slot: uses of its block that have not ended
  std::vector<bool> came_;  // by slot: and it is not its turn yet
  int next_ = 0;            // the arrival whose turn it is
  int expected_ = 0;        // arrivals that have been asked for
  int sending_ = 0;         // messages that have not left
  std::deque<int> queue_;   // operations that have come, for the calling thread
  bool done_ = false;
  absl::Status failed_;
};

absl::Status HopTraffic::Prepare() {
  const WorkerId home = sums() || relays() ? WorkerId(0) : left_;
  // Memory that is shared is known here when its owner's hello has come (Transport::MemoryOf). Both
  // ends of a channel must know it: one sends a word, and the other expects one.
  const auto is_known = [this, home] {
    lent_ = transport_.MemoryOf(home, SentFrom(setup_.mode));
    return !lent_.bytes.empty() || transport_.LinkTo(home) != "shm";
  };
  RZ_RETURN_IF_ERROR(
      waiting_.Until(absl::StrCat("the memory of worker ", home.value), Manner::kIdle, is_known));
  held_.assign(static_cast<size_t>(setup_.slots), 0);
  came_.assign(static_cast<size_t>(setup_.slots), false);
  for (int i = 0; i < setup_.buffers; ++i) {
    const DataKey key{self_, static_cast<uint64_t>(i)};
    if (sums()) {
      RZ_ASSIGN_OR_RETURN(Buffer terms, payload_.Make(setup_.bytes));
      RZ_RETURN_IF_ERROR(payload_.FillTerms(setup_.type, key, terms));
      terms_.push_back(std::move(terms));
    } else if (SendsOwn()) {
      RZ_RETURN_IF_ERROR(payload_.FillData(key, Own(i)));
    }
    if (setup_.copy && !IsAnswered()) {
      RZ_ASSIGN_OR_RETURN(Buffer copy, payload_.Make(setup_.bytes));
      RZ_RETURN_IF_ERROR(payload_.Poison(copy));
      copies_.push_back(std::move(copy));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> HopTraffic::Time(int iterations) {
  checking_ = false;
  RZ_RETURN_IF_ERROR(Run(iterations + 1));
  std::vector<double> seconds = SecondsBetween(stamps_);
  // A ping and its pong are two hops; what is reported is one.
  const double parts = setup_.aggregate * (setup_.mode == RingMode::kPingpong ? 2.0 : 1.0);
  for (double& each : seconds) each /= parts;
  return seconds;
}

absl::StatusOr<int64_t> HopTraffic::Check(uint64_t repetition) {
  checking_ = true;
  repetition_ = repetition;
  wrong_ = 0;
  const int renewed = std::min(setup_.aggregate, setup_.buffers);
  for (int turn = 0; turn < renewed; ++turn) RZ_RETURN_IF_ERROR(Renew(turn));
  RZ_RETURN_IF_ERROR(Run(1));
  return wrong_;
}

// New contents for the buffers of one turn: what this worker sends or adds, and poison where it
// receives.
absl::Status HopTraffic::Renew(int turn) {
  const DataKey key = KeyOf(self_.value, turn);
  if (sums()) RZ_RETURN_IF_ERROR(payload_.FillTerms(setup_.type, key, terms_[turn]));
  if (!copies_.empty()) RZ_RETURN_IF_ERROR(payload_.Poison(copies_[turn]));
  return !sums() && SendsOwn() ? payload_.FillData(key, Own(turn)) : absl::OkStatus();
}

absl::Status HopTraffic::Run(int iterations) {
  arrivals_ = iterations * ArrivalsOfIteration();
  handled_ = 0;
  stamps_.clear();
  stamps_.reserve(iterations);
  {
    const std::lock_guard<std::mutex> lock(actor_mutex_);
    {
      const std::lock_guard<std::mutex> counts(waiting_.mutex());
      expected_ = next_ = 0;
      done_ = false;
      RZ_RETURN_IF_ERROR(ExpectMore());
    }
    const int first = std::min(Ahead(), iterations);
    for (int i = 0; i < first; ++i) RZ_RETURN_IF_ERROR(BeginIteration(i));
  }
  while (true) {
    RZ_RETURN_IF_ERROR(waiting_.Until(
        absl::StrCat(ToString(setup_.mode), ", ", setup_.bytes, " bytes"), Manner::kBusy,
        [this] { return (done_ && sending_ == 0) || !queue_.empty() || !failed_.ok(); }));
    std::deque<int> taken;
    {
      const std::lock_guard<std::mutex> lock(waiting_.mutex());
      RZ_RETURN_IF_ERROR(failed_);
      if (queue_.empty()) break;
      taken.swap(queue_);
    }
    for (const int operation : taken) RZ_RETURN_IF_ERROR(Handle(operation));
  }
  const std::lock_guard<std::mutex> lock(actor_mutex_);  // waits for the last callback to end
  tag_ += static_cast<uint64_t>(iterations) * setup_.aggregate;
  return absl::OkStatus();
}

// Asks for arrivals in order, as far as their slots are free.
absl::Status HopTraffic::ExpectMore() {
  while (expected_ < arrivals_ && held_[SlotOf(expected_)] == 0) {
    held_[SlotOf(expected_)] = PassesOn() && lent_.bytes.empty() ? 2 : 1;
    RZ_RETURN_IF_ERROR(Expect(expected_++));
  }
  return absl::OkStatus();
}

absl::Status HopTraffic::Expect(int operation) {
  const auto arrival = [this, operation](const absl::Status& came) {
    return came.ok() ? OnArrival(operation) : Fail(came);
  };
  if (!lent_.bytes.empty()) return transport_.ExpectWord(left_, MessageOf(operation), arrival);
  return transport_.Post(left_, MessageOf(operation), Slot(operation), arrival);
}

// What has come, where it lies.
std::span<std::byte> HopTraffic::Arrived(int operation) const {
  if (lent_.bytes.empty()) return Slot(operation);
  return lent_.bytes.subspan(TurnOf(operation) * AlignPayload(setup_.bytes), setup_.bytes);
}

// `slot`: of which `block` is, or kNoSlot.
absl::Status HopTraffic::Send(WorkerId to, int operation, std::span<std::byte> block, int slot) {
  if (!lent_.bytes.empty()) return transport_.SendWord(to, MessageOf(operation));
  {
    const std::lock_guard<std::mutex> lock(waiting_.mutex());
    ++sending_;
  }
  return transport_.Send(to, MessageOf(operation), block, [this, slot](const absl::Status& left) {
    return left.ok() ? OnSent(slot) : Fail(left);
  });
}

void HopTraffic::OnSent(int slot) {
  if (slot != kNoSlot) {
    if (absl::Status status = Release(slot); !status.ok()) return Fail(status);
  }
  Waiting& waiting = waiting_;
  {
    const std::lock_guard<std::mutex> lock(waiting.mutex());
    if (--sending_ > 0 || !done_) return;
  }
  waiting.Notify();  // this may be gone: the waiting thread has all that it waited for
}

absl::Status HopTraffic::Release(int slot) {
  const std::lock_guard<std::mutex> lock(waiting_.mutex());
  if (--held_[slot] > 0) return absl::OkStatus();
  return ExpectMore();
}

// A channel's arrivals may be told in another order than they were sent: here they take turns.
void HopTraffic::OnArrival(int operation) {
  Waiting& waiting = waiting_;
  if (ReadsPayload()) {
    {
      const std::lock_guard<std::mutex> lock(waiting.mutex());
      came_[SlotOf(operation)] = true;
      while (TakeTurn()) queue_.push_back(next_++);
    }
    return waiting.Notify();  // this may be gone, as above
  }
  const std::lock_guard<std::mutex> actor(actor_mutex_);
  std::unique_lock<std::mutex> lock(waiting.mutex());
  came_[SlotOf(operation)] = true;
  while (TakeTurn()) {
    const int turn = next_++;
    lock.unlock();
    if (absl::Status handled = Handle(turn); !handled.ok()) return Fail(handled);
    lock.lock();
  }
}

bool HopTraffic::TakeTurn() {
  const bool has_come = came_[SlotOf(next_)];
  came_[SlotOf(next_)] = false;
  return has_come;
}

absl::Status HopTraffic::BeginIteration(int iteration) {
  if (!Begins()) return absl::OkStatus();
  const int first = iteration * setup_.aggregate;
  for (int a = 0; a < setup_.aggregate; ++a) RZ_RETURN_IF_ERROR(Begin(first + a));
  return absl::OkStatus();
}

// A sum's memory is free: the sum that was there has been all around the ring.
absl::Status HopTraffic::Begin(int operation) {
  if (sums()) {  // the first contribution is a copy
    const int turn = TurnOf(operation);
    RZ_RETURN_IF_ERROR(payload_.Copy(Own(turn), terms_[turn].data()));
  }
  return SendOwn(operation);
}

absl::Status HopTraffic::SendOwn(int operation) {
  const std::span<std::byte> block = Own(TurnOf(operation)).as<std::byte>();
  const bool damages = setup_.damage && checking_ && repetition_ == 1;
  // The last byte has a float's exponent: no sum hides that.
  if (damages && operation == 0 && self_.value == 0) block.back() ^= std::byte{16};
  return Send(right_, operation, block, kNoSlot);
}

absl::Status HopTraffic::Handle(int operation) {
  if (!IsAnswered()) {
    RZ_RETURN_IF_ERROR(sums() ? HandleSum(operation) : HandleCopy(operation));
  }
  RZ_RETURN_IF_ERROR(EndOperation());
  return Release(SlotOf(operation));  // the next message has left already
}

absl::Status HopTraffic::HandleCopy(int operation) {
  std::span<std::byte> bytes = Arrived(operation);
  if (PassesOn()) RZ_RETURN_IF_ERROR(Send(right_, operation, bytes, SlotOf(operation)));
  if (setup_.mode == RingMode::kPingpong && self_.value != 0) {
    RZ_RETURN_IF_ERROR(SendOwn(operation));
  }
  if (setup_.copy) {
    const Buffer& copy = copies_[TurnOf(operation)];
    RZ_RETURN_IF_ERROR(payload_.Copy(copy, bytes.data()));
    bytes = copy.as<std::byte>();
  }
  if (!checking_) return absl::OkStatus();
  const int from = relays() ? 0 : left_.value;
  RZ_ASSIGN_OR_RETURN(const int64_t wrong,
                      payload_.CountWrong(setup_.type, KeyOf(from, operation), bytes));
  wrong_ += wrong;
  return absl::OkStatus();
}

absl::Status HopTraffic::HandleSum(int operation) {
  const std::span<std::byte> sum = Arrived(operation);
  const int turn = TurnOf(operation);
  if (checking_) {
    RZ_ASSIGN_OR_RETURN(const int64_t wrong,
                        payload_.CountWrongSums(setup_.type, KeyOf(left_.value, operation), sum));
    wrong_ += wrong;
  }
  if (PassesOn()) {
    RZ_RETURN_IF_ERROR(payload_.AddTerms(setup_.type, terms_[turn], Buffer(sum)));
    return Send(right_, operation, sum, SlotOf(operation));
  }
  return setup_.copy ? payload_.Copy(copies_[turn], sum.data()) : absl::OkStatus();
}

absl::Status HopTraffic::EndOperation() {
  ++handled_;
  if (handled_ % ArrivalsOfIteration() != 0) return absl::OkStatus();
  const int ended = handled_ / ArrivalsOfIteration();
  if (streams() && !IsAnswered()) {
    RZ_RETURN_IF_ERROR(Send(left_, ended - 1, setup_.send.first(kStreamAnswerBytes), kNoSlot));
  }
  stamps_.push_back(Clock::now());
  const int next = ended + Ahead() - 1;
  if (next * ArrivalsOfIteration() < arrivals_) RZ_RETURN_IF_ERROR(BeginIteration(next));
  if (handled_ < arrivals_) return absl::OkStatus();
  {
    const std::lock_guard<std::mutex> lock(waiting_.mutex());
    done_ = true;
  }
  waiting_.Notify();
  return absl::OkStatus();
}

void HopTraffic::Fail(const absl::Status& why) {
  {
    const std::lock_guard<std::mutex> lock(waiting_.mutex());
    if (failed_.ok()) failed_ = why;
  }
  waiting_.Notify();
}

}  // namespace

std::vector<double> SecondsBetween(
    const std::vector<std::chrono::steady_clock::time_point>& stamps) {
  std::vector<double> seconds;
  for (size_t i = 1; i < stamps.size(); ++i) {
    seconds.push_back(std::chrono::duration<double>(stamps[i] - stamps[i - 1]).count());
  }
  return seconds;
}

absl::StatusOr<std::unique_ptr<Traffic>> MakeTraffic(const TrafficSetup& setup) {
  auto traffic = std::make_unique<HopTraffic>(setup);
  RZ_RETURN_IF_ERROR(traffic->Prepare());
  return traffic;
}

MemoryUse SentFrom(RingMode mode) {
  return mode == RingMode::kReduce ? MemoryUse::kSums : MemoryUse::kParameters;
}

TrafficMemory MemoryOf(const TrafficSetup& setup, WorkerId self) {
  const bool sums = setup.mode == RingMode::kReduce, streams = setup.mode == RingMode::kStream;
  const bool first = self.value == 0, is_answered = streams && first;
  const bool sends = first || setup.mode == RingMode::kShift || setup.mode == RingMode::kPingpong;
  const size_t all = static_cast<size_t>(setup.buffers) * AlignPayload(setup.bytes);
  TrafficMemory memory;
  memory.send = sends ? all : streams ? kStreamAnswerBytes : 0;
  memory.receive = static_cast<size_t>(setup.slots) *
                   AlignPayload(is_answered ? kStreamAnswerBytes : setup.bytes);
  memory.own = (sums ? all : 0) + (setup.copy && !is_answered ? all : 0);
  return memory;
}

}  // namespace ringzero
