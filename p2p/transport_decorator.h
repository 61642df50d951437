// Transports around a transport: one that checks every payload, one with faults, for tests; and the
// base of others, TransportDecorator, which passes everything on.
//
//   TransportOptions options = WithChecksumRoom(TransportNeeds(…));
//   RZ_ASSIGN_OR_RETURN(auto transport, CreateShmTransport(endpoint, options));
//   transport = MakeChecksummed(std::move(transport));         // on every worker, or on none
//
//   transport = MakeFaulty(std::move(transport), {.seed = 7, .flip_message = 3});
//
// Both are thread-safe, as Transport says.
#ifndef RINGZERO_P2P_TRANSPORT_DECORATOR_H_
#define RINGZERO_P2P_TRANSPORT_DECORATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "p2p/transport.h"

namespace ringzero {

// Decorators override what they change. Thread-safe if what derives from it is.
class TransportDecorator : public Transport {
 public:
  WorkerId self() const override { return inner_->self(); }
  int workers() const override { return inner_->workers(); }
  std::string name() const override { return inner_->name(); }
  std::string LinkTo(WorkerId to) const override { return inner_->LinkTo(to); }
  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryUse use) override {
    return inner_->Allocate(bytes, use);
  }
  absl::Status Send(WorkerId to, MessageKey key, std::span<const std::byte> block,
                    Done sent) override {
    return inner_->Send(to, key, block, std::move(sent));
  }
  absl::Status Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                    Done arrived) override {
    return inner_->Post(from, key, block, std::move(arrived));
  }
  absl::Status SendWord(WorkerId to, MessageKey key) override { return inner_->SendWord(to, key); }
  absl::Status ExpectWord(WorkerId from, MessageKey key, Done arrival) override {
    return inner_->ExpectWord(from, key, std::move(arrival));
  }
  MappedMemory MemoryOf(WorkerId owner, MemoryUse use) override {
    return inner_->MemoryOf(owner, use);
  }
  void Abort(const absl::Status& why) override { inner_->Abort(why); }
  absl::Status status() const override { return inner_->status(); }
  std::vector<Undelivered> undelivered() const override { return inner_->undelivered(); }
  absl::Status Ask(WorkerId to, const std::string& question, AnswerArrival arrival) override {
    return inner_->Ask(to, question, std::move(arrival));
  }
  void AnswerWith(Answerer answerer) override { inner_->AnswerWith(std::move(answerer)); }
  absl::Status Close() override { return inner_->Close(); }
  bool Poll() override { return inner_->Poll(); }
  TransportStats stats() const override { return inner_->stats(); }

 protected:
  explicit TransportDecorator(std::unique_ptr<Transport> inner) : inner_(inner.release()) {}
  ~TransportDecorator() override { DestroyInner(); }
  // Callbacks may come until this has returned, and may still use inner(). Whoever's own members
  // they use calls it as the last thing in its destructor, when it still has them.
  void DestroyInner() {
    delete inner_;
    inner_ = nullptr;
  }
  Transport& inner() const { return *inner_; }

 private:
  Transport* inner_;  // owned; a unique_ptr would be empty while it destroys
};

// `options` with memory for the checksums of all that may be allocated.
TransportOptions WithChecksumRoom(TransportOptions options);

// Each payload has 8 bytes more, behind what its receiver sees: its checksum, written when it is
// sent and read when it arrives. A copy that is relayed keeps the one that its owner gave it.
// Damage ends the transport with DataLoss "worker 1 sent worker 2 …: checksum … expected, found …".
// Costs one pass over every payload at either end, on the thread that sends and on the message
// thread. Nothing is copied but what lies outside of Allocate's memory. `describe`: what a message
// is called in errors.
std::unique_ptr<Transport> MakeChecksummed(
    std::unique_ptr<Transport> transport,
    std::function<std::string(MessageKey)> describe = [](MessageKey key) { return ToString(key); });

struct FaultOptions {
  // How long a message waits before it is sent, with locks held. Null: none waits.
  std::function<std::chrono::microseconds(WorkerId to, MessageKey key)> delay;
  uint64_t seed = 0;
  // In the n-th message that arrives at this worker (from 1, all channels) one bit, chosen by the
  // seed, is not what was sent. 0: none.
  uint64_t flip_message = 0;
  // Called when the n-th message (from 1, all channels) is to be sent, before it is, with locks
  // held: for ends of processes. 0: never.
  uint64_t act_at_message = 0;
  std::function<void()> act;
};

// Delays messages, damages one, or does something worse at one. Order within a channel is kept.
// Delayed sends come from a thread of its own. Close says goodbye once everything delayed has been
// sent, so it may return OK and fail later; errors of a delayed send that are not the transport's
// end abort it.
std::unique_ptr<Transport> MakeFaulty(std::unique_ptr<Transport> transport, FaultOptions faults);

}  // namespace ringzero

#endif  // RINGZERO_P2P_TRANSPORT_DECORATOR_H_
