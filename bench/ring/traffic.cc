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

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

// Kinds of the engine's messages: 1 for forward copies (kCopyKind), 5 for sums.
constexpr uint8_t kSumKind = 5;

// What has come: a copy, or a sum.
struct Arrival {
  int operation = 0;
  SharedBuffer copy;
  Buffer sum;
};

class HopTraffic final : public Traffic {
 public:
  explicit HopTraffic(const TrafficSetup& setup)
      : setup_(setup),
        transport_(setup.waiting->transport()),
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
  // Whether what comes here are a stream's answers.
  bool IsAnswered() const { return streams() && self_.value == 0; }
  int ArrivalsOfIteration() const { return IsAnswered() ? 1 : setup_.aggregate; }
  // Whether this worker begins operations by itself; the others react.
  bool Begins() const { return setup_.mode == RingMode::kShift || self_.value == 0; }
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
  int last() const { return transport_.workers() - 1; }

  absl::Status Run(int iterations);
  absl::Status Expect(int operation);
  void OnArrival(Arrival arrival);  // message thread
  absl::Status BeginIteration(int iteration);
  absl::Status Begin(int operation);
  absl::Status Handle(Arrival arrival);
  absl::Status HandleCopy(Arrival arrival);
  absl::Status HandleSum(Arrival arrival);
  absl::Status EndOperation();
  absl::StatusOr<Buffer> NewSum(int slot);
  absl::Status ShareOwn(int operation);
  absl::Status Renew(int slot);
  void Fail(const absl::Status& why);

  const TrafficSetup setup_;
  Transport& transport_;
  Payload& payload_;
  const WorkerId self_, left_, right_;

  std::vector<SharedBuffer> own_;  // what this worker sends
  std::vector<Buffer> terms_;      // what it adds, in its own memory
  std::vector<Buffer> copies_;     // where it copies what comes
  SharedBuffer answer_;            // what a stream's worker 1 sends after each iteration

  // State of the current run. In the run it belongs to the thread that handles arrivals: the caller
  // if that reads payload; otherwise actor_mutex_ guards it (the caller begins, callbacks go on).
  std::mutex actor_mutex_;
  bool checking_ = false;
  uint64_t repetition_ = 0;
  uint64_t tag_;
  int arrivals_ = 0;  // that come here in the run
  int expected_ = 0;  // arrivals that have been asked for
  int handled_ = 0;
  std::vector<Clock::time_point> stamps_;  // ends of iterations
  int64_t wrong_ = 0;

  // Guarded by waiting's mutex.
  std::deque<Arrival> queue_;  // for the calling thread
  bool done_ = false;
  absl::Status failed_;
};

absl::Status HopTraffic::Prepare() {
  if (streams() && self_.value == 1) {
    RZ_ASSIGN_OR_RETURN(Buffer answer,
                        transport_.Allocate(kStreamAnswerBytes, MemoryUse::kParameters));
    RZ_RETURN_IF_ERROR(payload_.FillData({self_, 0}, answer));
    answer_ = std::move(answer).Seal();
  }
  for (int i = 0; i < setup_.buffers; ++i) {
    const DataKey key{self_, static_cast<uint64_t>(i)};
    if (sums()) {
      RZ_ASSIGN_OR_RETURN(Buffer terms, payload_.Make(setup_.bytes));
      RZ_RETURN_IF_ERROR(payload_.FillTerms(setup_.type, key, terms));
      terms_.push_back(std::move(terms));
    } else if (SendsOwn()) {
      RZ_ASSIGN_OR_RETURN(Buffer own, transport_.Allocate(setup_.bytes, MemoryUse::kParameters));
      RZ_RETURN_IF_ERROR(payload_.FillData(key, own));
      own_.push_back(std::move(own).Seal());
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
  for (int slot = 0; slot < renewed; ++slot) RZ_RETURN_IF_ERROR(Renew(slot));
  RZ_RETURN_IF_ERROR(Run(1));
  return wrong_;
}

// New contents for the buffers of one slot: what this worker sends or adds, and poison where it
// receives.
absl::Status HopTraffic::Renew(int slot) {
  const DataKey key = KeyOf(self_.value, slot);
  if (sums()) RZ_RETURN_IF_ERROR(payload_.FillTerms(setup_.type, key, terms_[slot]));
  if (!copies_.empty()) RZ_RETURN_IF_ERROR(payload_.Poison(copies_[slot]));
  if (own_.empty()) return absl::OkStatus();
  RZ_ASSIGN_OR_RETURN(Buffer own, Reopen(*setup_.waiting, own_[slot]));
  RZ_RETURN_IF_ERROR(payload_.FillData(key, own));
  own_[slot] = std::move(own).Seal();
  return absl::OkStatus();
}

absl::Status HopTraffic::Run(int iterations) {
  arrivals_ = iterations * ArrivalsOfIteration();
  expected_ = handled_ = 0;
  stamps_.clear();
  stamps_.reserve(iterations);
  done_ = false;
  {
    const std::lock_guard<std::mutex> lock(actor_mutex_);
    const int first = std::min(Ahead(), iterations);
    for (int i = 0; i < first; ++i) RZ_RETURN_IF_ERROR(BeginIteration(i));
  }
  while (true) {
    RZ_RETURN_IF_ERROR(setup_.waiting->Until(
        absl::StrCat(ToString(setup_.mode), ", ", setup_.bytes, " bytes"), Manner::kBusy,
        [this] { return done_ || !queue_.empty() || !failed_.ok(); }));
    std::deque<Arrival> taken;
    {
      const std::lock_guard<std::mutex> lock(setup_.waiting->mutex());
      RZ_RETURN_IF_ERROR(failed_);
      if (queue_.empty()) break;
      taken.swap(queue_);
    }
    for (Arrival& arrival : taken) RZ_RETURN_IF_ERROR(Handle(std::move(arrival)));
  }
  const std::lock_guard<std::mutex> lock(actor_mutex_);  // waits for the last callback to end
  tag_ += static_cast<uint64_t>(iterations) * setup_.aggregate;
  return absl::OkStatus();
}

absl::Status HopTraffic::Expect(int operation) {
  const MessageKey key{sums() ? kSumKind : kCopyKind, tag_ + operation};
  if (sums()) {
    return transport_.ExpectOwned(left_, key, setup_.bytes,
                                  [this, operation](absl::StatusOr<Buffer> got) {
                                    if (!got.ok()) return Fail(got.status());
                                    OnArrival({operation, SharedBuffer(), *std::move(got)});
                                  });
  }
  return transport_.ExpectShared(left_, key, IsAnswered() ? kStreamAnswerBytes : setup_.bytes,
                                 [this, operation](absl::StatusOr<SharedBuffer> got) {
                                   if (!got.ok()) return Fail(got.status());
                                   OnArrival({operation, *std::move(got), Buffer()});
                                 });
}

void HopTraffic::OnArrival(Arrival arrival) {
  if (ReadsPayload()) {
    Waiting& waiting = *setup_.waiting;
    {
      const std::lock_guard<std::mutex> lock(waiting.mutex());
      queue_.push_back(std::move(arrival));
    }
    return waiting.Notify();  // this may be gone: the waiting thread has all that it waited for
  }
  const std::lock_guard<std::mutex> lock(actor_mutex_);
  if (absl::Status handled = Handle(std::move(arrival)); !handled.ok()) Fail(handled);
}

absl::Status HopTraffic::BeginIteration(int iteration) {
  // Expects one iteration ahead: no sender waits for receive memory. (A stream begins two at once.)
  const int wanted = std::min(arrivals_, (iteration + (streams() ? 1 : 2)) * ArrivalsOfIteration());
  const int first = iteration * setup_.aggregate;
  if (Begins()) {
    for (int a = 0; a < setup_.aggregate; ++a) RZ_RETURN_IF_ERROR(Begin(first + a));
  }
  while (expected_ < wanted) RZ_RETURN_IF_ERROR(Expect(expected_++));
  return absl::OkStatus();
}

absl::Status HopTraffic::Begin(int operation) {
  if (!sums()) return ShareOwn(operation);
  RZ_ASSIGN_OR_RETURN(Buffer sum, NewSum(operation % setup_.buffers));
  // The first contribution is a copy.
  RZ_RETURN_IF_ERROR(payload_.Copy(sum, terms_[operation % setup_.buffers].data()));
  return transport_.Give(right_, {kSumKind, tag_ + operation}, std::move(sum));
}

// The slot's own block, which held the slot's previous sum. The previous sum has come back, but its
// last handle may still be on its way out.
absl::StatusOr<Buffer> HopTraffic::NewSum(int slot) {
  absl::StatusOr<Buffer> sum;
  RZ_RETURN_IF_ERROR(setup_.waiting->Until("the memory of a sum", Manner::kBusy, [&] {
    sum = transport_.AllocateNumbered(setup_.first_sum + slot, setup_.bytes);
    return !absl::IsResourceExhausted(sum.status());
  }));
  return sum;
}

absl::Status HopTraffic::ShareOwn(int operation) {
  return transport_.Share(right_, {kCopyKind, tag_ + operation}, own_[operation % setup_.buffers]);
}

absl::Status HopTraffic::Handle(Arrival arrival) {
  return sums() ? HandleSum(std::move(arrival)) : HandleCopy(std::move(arrival));
}

absl::Status HopTraffic::HandleCopy(Arrival arrival) {
  if (IsAnswered()) return EndOperation();
  const int operation = arrival.operation;
  const int slot = operation % setup_.buffers;
  if (setup_.mode == RingMode::kRelay && self_.value != 0) {
    RZ_RETURN_IF_ERROR(transport_.Share(right_, {kCopyKind, tag_ + operation}, arrival.copy));
  }
  if (setup_.mode == RingMode::kPingpong && self_.value != 0) {
    RZ_RETURN_IF_ERROR(ShareOwn(operation));
  }
  std::span<const std::byte> bytes(arrival.copy.data(), arrival.copy.size());
  if (setup_.copy) {
    RZ_RETURN_IF_ERROR(payload_.Copy(copies_[slot], bytes.data()));
    bytes = copies_[slot].as<std::byte>();
  }
  if (checking_) {
    const int from = setup_.mode == RingMode::kRelay ? 0 : left_.value;
    RZ_ASSIGN_OR_RETURN(const int64_t wrong,
                        payload_.CountWrong(setup_.type, KeyOf(from, operation), bytes));
    wrong_ += wrong;
  }
  if (streams()) arrival.copy.Reset();  // before it is answered
  return EndOperation();                // the arrival is dropped after the next one has left
}

absl::Status HopTraffic::HandleSum(Arrival arrival) {
  const int operation = arrival.operation;
  const int slot = operation % setup_.buffers;
  if (checking_) {
    RZ_ASSIGN_OR_RETURN(const int64_t wrong,
                        payload_.CountWrongSums(setup_.type, KeyOf(left_.value, operation),
                                                arrival.sum.as<std::byte>()));
    wrong_ += wrong;
  }
  if (self_.value == 0) {
    if (setup_.copy) {
      RZ_RETURN_IF_ERROR(payload_.Copy(copies_[slot], arrival.sum.data()));
    }
    arrival.sum.Reset();
  } else {
    RZ_RETURN_IF_ERROR(payload_.AddTerms(setup_.type, terms_[slot], arrival.sum));
    RZ_RETURN_IF_ERROR(
        transport_.Give(right_, {kSumKind, tag_ + operation}, std::move(arrival.sum)));
  }
  return EndOperation();
}

absl::Status HopTraffic::EndOperation() {
  ++handled_;
  if (handled_ % ArrivalsOfIteration() != 0) return absl::OkStatus();
  const int ended = handled_ / ArrivalsOfIteration();
  if (streams() && !IsAnswered()) {
    const MessageKey key{kCopyKind, tag_ + static_cast<uint64_t>(ended) - 1};
    RZ_RETURN_IF_ERROR(transport_.Share(left_, key, answer_));
  }
  stamps_.push_back(Clock::now());
  const int next = ended + Ahead() - 1;
  if (next * ArrivalsOfIteration() < arrivals_) RZ_RETURN_IF_ERROR(BeginIteration(next));
  if (handled_ < arrivals_) return absl::OkStatus();
  {
    const std::lock_guard<std::mutex> lock(setup_.waiting->mutex());
    done_ = true;
  }
  setup_.waiting->Notify();
  return absl::OkStatus();
}

void HopTraffic::Fail(const absl::Status& why) {
  {
    const std::lock_guard<std::mutex> lock(setup_.waiting->mutex());
    if (failed_.ok()) failed_ = why;
  }
  setup_.waiting->Notify();
}

// One block as a transport counts it.
size_t Block(size_t bytes) { return AlignPayload(bytes) + kPayloadAlignment; }

}  // namespace

std::vector<double> SecondsBetween(
    const std::vector<std::chrono::steady_clock::time_point>& stamps) {
  std::vector<double> seconds;
  for (size_t i = 1; i < stamps.size(); ++i) {
    seconds.push_back(std::chrono::duration<double>(stamps[i] - stamps[i - 1]).count());
  }
  return seconds;
}

absl::StatusOr<Buffer> Reopen(Waiting& waiting, SharedBuffer& buffer) {
  RZ_RETURN_IF_ERROR(waiting.Until("the last handle on a buffer", Manner::kBusy,
                                   [&buffer] { return buffer.holders() == 1; }));
  return std::move(buffer).Unseal();
}

absl::StatusOr<std::unique_ptr<Traffic>> MakeTraffic(const TrafficSetup& setup) {
  auto traffic = std::make_unique<HopTraffic>(setup);
  RZ_RETURN_IF_ERROR(traffic->Prepare());
  return traffic;
}

TrafficMemory MemoryOf(const TrafficSetup& setup, WorkerId self, int slots) {
  TrafficMemory memory;
  const bool sums = setup.mode == RingMode::kReduce, streams = setup.mode == RingMode::kStream;
  const bool first = self.value == 0;
  const size_t all = static_cast<size_t>(setup.buffers) * Block(setup.bytes);
  // Messages that hold a slot, and as many again that were passed on and are still leaving.
  (sums ? memory.received_sum_bytes : memory.received_parameter_bytes) =
      2 * static_cast<size_t>(slots) * Block(streams && first ? kStreamAnswerBytes : setup.bytes);
  if (sums) {
    memory.own_bytes += all;
    if (first) memory.sum_bytes = all;
  } else if (first || (setup.mode != RingMode::kRelay && !streams)) {
    memory.parameter_bytes = all;
  } else if (streams) {
    memory.parameter_bytes = Block(kStreamAnswerBytes);
  }
  if (setup.copy && !(streams && first)) memory.own_bytes += all;
  return memory;
}

}  // namespace ringzero
