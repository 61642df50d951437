// MailboxTransport: a Transport made of a Mailbox and two Arenas; local and shm derive from it.
//
// A derived class brings the Wire and the message thread, starts that thread last and stops it in
// its own destructor. Thread-safe, as Transport says.
#ifndef RINGZERO_P2P_MAILBOX_TRANSPORT_H_
#define RINGZERO_P2P_MAILBOX_TRANSPORT_H_

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "p2p/arena.h"
#include "p2p/mailbox.h"
#include "p2p/transport.h"

namespace ringzero {

class MailboxTransport : public Transport {
 public:
  WorkerId self() const override { return mailbox_->self(); }
  int workers() const override { return mailbox_->workers(); }
  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryUse use) override;
  absl::StatusOr<Buffer> AllocateNumbered(int number, size_t bytes) override;
  absl::Status Share(WorkerId to, MessageKey key, SharedBuffer buffer) override;
  absl::Status Give(WorkerId to, MessageKey key, Buffer buffer) override;
  absl::Status Send(WorkerId to, MessageKey key, std::span<const std::byte> block,
                    Done sent) override;
  absl::Status Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                    Done arrived) override;
  absl::Status SendWord(WorkerId to, MessageKey key) override;
  absl::Status ExpectWord(WorkerId from, MessageKey key, Done arrival) override;
  absl::Status ExpectShared(WorkerId from, MessageKey key, size_t bytes,
                            SharedArrival arrival) override;
  absl::Status ExpectOwned(WorkerId from, MessageKey key, size_t bytes,
                           OwnedArrival arrival) override;
  void Abort(const absl::Status& why) override { mailbox_->Abort(why); }
  absl::Status status() const override { return mailbox_->status(); }
  std::vector<Undelivered> undelivered() const override { return mailbox_->undelivered(); }
  absl::Status Ask(WorkerId to, const std::string& question, AnswerArrival arrival) override {
    return mailbox_->Ask(to, question, std::move(arrival));
  }
  void AnswerWith(Answerer answerer) override { mailbox_->AnswerWith(std::move(answerer)); }
  absl::Status Close() override { return mailbox_->Close(); }
  TransportStats stats() const override;

 protected:
  MailboxTransport(std::shared_ptr<Mailbox> mailbox, ArenaPtr parameters, ArenaPtr sums)
      : mailbox_(std::move(mailbox)), parameters_(std::move(parameters)), sums_(std::move(sums)) {}

  // Can the wire carry this cell as it is? If not, it is copied into an arena.
  virtual bool CanCarry(BufferCell* root) const = 0;
  // Whether its wire carries words.
  virtual bool HasWords() const { return false; }
  // Copies the payload of memory from elsewhere into a block of an arena.
  virtual absl::Status CopyIn(const Buffer& into, const std::byte* from) const;
  Mailbox& mailbox() const { return *mailbox_; }
  Arena& MyArena(MemoryUse use) const {
    return use == MemoryUse::kParameters ? *parameters_ : *sums_;
  }
  bool IsMine(std::span<const std::byte> block) const {
    return parameters_->Contains(block) || sums_->Contains(block);
  }
  bool IsMine(const Arena& arena) const {
    return &arena == parameters_.get() || &arena == sums_.get();
  }

 private:
  absl::Status Send(WorkerId to, Parcel parcel, MemoryUse copy_into);

  const std::shared_ptr<Mailbox> mailbox_;
  const ArenaPtr parameters_;
  const ArenaPtr sums_;
  std::atomic<uint64_t> bytes_copied_{0};
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_MAILBOX_TRANSPORT_H_
