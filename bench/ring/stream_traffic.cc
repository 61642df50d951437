// One worker's side of a stream; what differs between both is what an arrival is.
#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/buffer.h"
#include "base/status.h"
#include "bench/ring/traffic.h"

namespace ringzero {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kIterationsAhead = 2;  // on their way at once

class StreamTraffic final : public Traffic {
 public:
  explicit StreamTraffic(const TrafficSetup& setup)
      : setup_(setup),
        transport_(setup.waiting->transport()),
        payload_(*setup.payload),
        sends_(transport_.self().value == 0),
        peer_(sends_ ? 1 : 0),
        tag_(setup.first_tag) {}

  absl::Status Prepare();
  absl::StatusOr<std::vector<double>> Time(int iterations) override;
  absl::StatusOr<int64_t> Check(uint64_t repetition) override;
  uint64_t next_tag() const override { return tag_; }

 private:
  // What has come: a message, or at worker 0 the answer to an iteration.
  struct Arrival {
    int number = 0;
    SharedBuffer payload;
  };
  bool ReadsPayload() const {
    return !sends_ && (checking_ || setup_.receiving == Receiving::kCopy);
  }
  DataKey KeyOf(uint64_t operation) const {
    return {WorkerId(0), repetition_ * static_cast<uint64_t>(setup_.aggregate) +
                             operation % static_cast<uint64_t>(setup_.buffers)};
  }

  absl::Status Run(int iterations);
  absl::Status BeginIteration(int iteration);
  absl::Status Expect(int number);
  void OnArrival(Arrival arrival);  // message thread
  absl::Status Handle(Arrival arrival);
  absl::Status Take(Arrival arrival);
  absl::Status EndIteration(int iteration);
  absl::Status Renew();
  void Fail(const absl::Status& why);

  const TrafficSetup setup_;
  Transport& transport_;
  Payload& payload_;
  const bool sends_;
  const WorkerId peer_;
  std::vector<SharedBuffer> own_;  // what this worker sends: messages, or its one answer
  std::vector<Buffer> copies_;     // where it copies what comes

  // Of the run at hand: the calling thread's if it reads payload, else guarded by actor_mutex_.
  std::mutex actor_mutex_;
  bool checking_ = false;
  uint64_t repetition_ = 0;
  uint64_t tag_;
  int iterations_ = 0;
  int handled_ = 0;
  std::vector<Clock::time_point> stamps_;  // ends of iterations
  int64_t wrong_ = 0;

  // Guarded by waiting's mutex.
  std::deque<Arrival> queue_;  // for the calling thread
  bool done_ = false;
  absl::Status failed_;
};

absl::Status StreamTraffic::Prepare() {
  const int buffers = sends_ ? setup_.buffers : 1;
  for (int i = 0; i < buffers; ++i) {
    RZ_ASSIGN_OR_RETURN(Buffer own, transport_.Allocate(sends_ ? setup_.bytes : kStreamAnswerBytes,
                                                        MemoryUse::kParameters));
    RZ_RETURN_IF_ERROR(payload_.FillData({transport_.self(), static_cast<uint64_t>(i)}, own));
    own_.push_back(std::move(own).Seal());
  }
  for (int i = 0; i < setup_.buffers; ++i) {
    if (sends_ || setup_.receiving != Receiving::kCopy) break;
    RZ_ASSIGN_OR_RETURN(Buffer copy, payload_.Make(setup_.bytes));
    RZ_RETURN_IF_ERROR(payload_.Poison(copy));
    copies_.push_back(std::move(copy));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> StreamTraffic::Time(int iterations) {
  checking_ = false;
  RZ_RETURN_IF_ERROR(Run(iterations + 1));
  std::vector<double> seconds = SecondsBetween(stamps_);
  for (double& each : seconds) each /= setup_.aggregate;
  return seconds;
}

absl::StatusOr<int64_t> StreamTraffic::Check(uint64_t repetition) {
  checking_ = true;
  repetition_ = repetition;
  wrong_ = 0;
  RZ_RETURN_IF_ERROR(Renew());
  RZ_RETURN_IF_ERROR(Run(1));
  return wrong_;
}

// New contents: what worker 0 sends, and poison where worker 1 receives.
absl::Status StreamTraffic::Renew() {
  for (const Buffer& copy : copies_) RZ_RETURN_IF_ERROR(payload_.Poison(copy));
  if (!sends_) return absl::OkStatus();
  for (int i = 0; i < std::min(setup_.aggregate, setup_.buffers); ++i) {
    RZ_ASSIGN_OR_RETURN(Buffer own, Reopen(*setup_.waiting, own_[i]));
    RZ_RETURN_IF_ERROR(payload_.FillData(KeyOf(static_cast<uint64_t>(i)), own));
    own_[i] = std::move(own).Seal();
  }
  return absl::OkStatus();
}

absl::Status StreamTraffic::Run(int iterations) {
  iterations_ = iterations;
  handled_ = 0;
  stamps_.clear();
  stamps_.reserve(static_cast<size_t>(iterations));
  done_ = false;
  {
    const std::lock_guard<std::mutex> lock(actor_mutex_);
    const int first = std::min(kIterationsAhead, iterations);
    for (int i = 0; i < first; ++i) RZ_RETURN_IF_ERROR(BeginIteration(i));
  }
  while (true) {
    RZ_RETURN_IF_ERROR(
        setup_.waiting->Until(absl::StrCat("stream, ", setup_.bytes, " bytes"), Manner::kBusy,
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
  const std::lock_guard<std::mutex> lock(actor_mutex_);  // the last callback is out of here
  tag_ += static_cast<uint64_t>(iterations) * static_cast<uint64_t>(setup_.aggregate);
  return absl::OkStatus();
}

absl::Status StreamTraffic::BeginIteration(int iteration) {
  if (sends_) RZ_RETURN_IF_ERROR(Expect(iteration));
  for (int a = 0; a < setup_.aggregate; ++a) {
    const int operation = iteration * setup_.aggregate + a;
    if (!sends_) {
      RZ_RETURN_IF_ERROR(Expect(operation));
      continue;
    }
    RZ_RETURN_IF_ERROR(transport_.Share(peer_, {kCopyKind, tag_ + static_cast<uint64_t>(operation)},
                                        own_[operation % setup_.buffers]));
  }
  return absl::OkStatus();
}

absl::Status StreamTraffic::Expect(int number) {
  const MessageKey key{kCopyKind, tag_ + static_cast<uint64_t>(number)};
  return transport_.ExpectShared(peer_, key, sends_ ? kStreamAnswerBytes : setup_.bytes,
                                 [this, number](absl::StatusOr<SharedBuffer> got) {
                                   if (!got.ok()) return Fail(got.status());
                                   OnArrival({number, *std::move(got)});
                                 });
}

void StreamTraffic::OnArrival(Arrival arrival) {
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

absl::Status StreamTraffic::Handle(Arrival arrival) {
  if (!sends_) return Take(std::move(arrival));
  arrival.payload.Reset();
  return EndIteration(arrival.number);
}

absl::Status StreamTraffic::Take(Arrival arrival) {
  std::span<const std::byte> bytes(arrival.payload.data(), arrival.payload.size());
  if (setup_.receiving == Receiving::kCopy) {
    const Buffer& copy = copies_[arrival.number % setup_.buffers];
    RZ_RETURN_IF_ERROR(payload_.Copy(copy, bytes.data()));
    bytes = copy.as<std::byte>();
  }
  if (checking_) {
    RZ_ASSIGN_OR_RETURN(
        const int64_t wrong,
        payload_.CountWrong(setup_.type, KeyOf(static_cast<uint64_t>(arrival.number)), bytes));
    wrong_ += wrong;
  }
  arrival.payload.Reset();
  if (++handled_ % setup_.aggregate != 0) return absl::OkStatus();
  const int iteration = handled_ / setup_.aggregate - 1;
  RZ_RETURN_IF_ERROR(
      transport_.Share(peer_, {kCopyKind, tag_ + static_cast<uint64_t>(iteration)}, own_[0]));
  return EndIteration(iteration);
}

absl::Status StreamTraffic::EndIteration(int iteration) {
  stamps_.push_back(Clock::now());
  const int next = iteration + kIterationsAhead;
  if (next < iterations_) RZ_RETURN_IF_ERROR(BeginIteration(next));
  if (iteration + 1 < iterations_) return absl::OkStatus();
  {
    const std::lock_guard<std::mutex> lock(setup_.waiting->mutex());
    done_ = true;
  }
  setup_.waiting->Notify();
  return absl::OkStatus();
}

void StreamTraffic::Fail(const absl::Status& why) {
  {
    const std::lock_guard<std::mutex> lock(setup_.waiting->mutex());
    if (failed_.ok()) failed_ = why;
  }
  setup_.waiting->Notify();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Traffic>> MakeStreamTraffic(const TrafficSetup& setup) {
  auto traffic = std::make_unique<StreamTraffic>(setup);
  RZ_RETURN_IF_ERROR(traffic->Prepare());
  return traffic;
}

}  // namespace ringzero
