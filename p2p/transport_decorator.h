// TransportDecorator: a Transport that passes everything on; decorators override what they change.
//
//   class Counting final : public TransportDecorator { … };
//
// Thread-safe if what derives from it is.
#ifndef RINGZERO_P2P_TRANSPORT_DECORATOR_H_
#define RINGZERO_P2P_TRANSPORT_DECORATOR_H_

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "p2p/transport.h"

namespace ringzero {

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

}  // namespace ringzero

#endif  // RINGZERO_P2P_TRANSPORT_DECORATOR_H_
