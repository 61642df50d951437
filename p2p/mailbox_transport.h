// MailboxTransport: a Transport made of a Mailbox and two Arenas; those of every wire derive from it.
//
// A derived class brings the Wire and the message thread, starts that thread last and stops it in
// its own destructor. Thread-safe, as Transport says.
#ifndef RINGZERO_P2P_MAILBOX_TRANSPORT_H_
#define RINGZERO_P2P_MAILBOX_TRANSPORT_H_

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "p2p/arena.h"
#include "p2p/mailbox.h"
#include "p2p/transport.h"

namespace ringzero {

class MailboxTransport : public Transport {
 public:
  WorkerId self() const override { return mailbox_->self(); }
  int workers() const override { return mailbox_->workers(); }
  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryUse use) override {
    return MyArena(use).Allocate(bytes);
  }
  absl::Status Send(WorkerId to, MessageKey key, std::span<const std::byte> block,
                    Done sent) override {
    if (arenas_[0]->Contains(block) || arenas_[1]->Contains(block)) {
      return mailbox_->Send(to, key, block, std::move(sent));
    }
    return InvalidArgument("a message to worker ", to.value, " (", ToString(key), ") of ",
                           block.size(), " bytes that are not of Allocate");
  }
  absl::Status Post(WorkerId from, MessageKey key, std::span<std::byte> block,
                    Done arrived) override {
    return mailbox_->Post(from, key, block, std::move(arrived));
  }
  absl::Status SendWord(WorkerId to, MessageKey key) override {
    return mailbox_->SendWord(to, key);
  }
  absl::Status ExpectWord(WorkerId from, MessageKey key, Done arrived) override {
    return mailbox_->ExpectWord(from, key, std::move(arrived));
  }
  void Abort(const absl::Status& why) override { mailbox_->Abort(why); }
  absl::Status status() const override { return mailbox_->status(); }
  std::vector<Undelivered> undelivered() const override { return mailbox_->undelivered(); }
  absl::Status Ask(WorkerId to, const std::string& question, AnswerArrival arrival) override {
    return mailbox_->Ask(to, question, std::move(arrival));
  }
  void AnswerWith(Answerer answerer) override { mailbox_->AnswerWith(std::move(answerer)); }
  absl::Status Close() override { return mailbox_->Close(); }
  TransportStats stats() const override { return mailbox_->stats(); }

 protected:
  MailboxTransport(std::shared_ptr<Mailbox> mailbox, Arenas arenas)
      : mailbox_(std::move(mailbox)), arenas_(std::move(arenas)) {}

  Mailbox& mailbox() const { return *mailbox_; }
  Arena& MyArena(MemoryUse use) const { return *arenas_[static_cast<size_t>(use)]; }

 private:
  const std::shared_ptr<Mailbox> mailbox_;
  const Arenas arenas_;
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_MAILBOX_TRANSPORT_H_
