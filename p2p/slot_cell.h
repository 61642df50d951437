// SlotCell: a delivered payload's handle at its receiver; its last drop frees the slot and the
// payload.
//
//   Buffer delivered = SlotCell::Wrap(mailbox, {from, kind}, std::move(root));
//   Buffer travelling = SlotCell::Unwrap(std::move(delivered));   // credit back, the root goes on
//
// Thread-safe, as BufferCell says. Takes no lock of a Mailbox, so it may be dropped anywhere. Lies
// in the Mailbox's pool, which it keeps alive.
#ifndef RINGZERO_P2P_SLOT_CELL_H_
#define RINGZERO_P2P_SLOT_CELL_H_

#include <atomic>
#include <memory>

#include "base/buffer.h"
#include "base/ids.h"
#include "p2p/mailbox.h"

namespace ringzero {

class SlotCell final : public BufferCell {
 public:
  struct Slot {  // of the channel from `from`
    WorkerId from;
    uint8_t kind;
  };
  static Buffer Wrap(std::shared_ptr<Mailbox> mailbox, const Slot& slot, Buffer root);

  // The root's holder for a journey, in exchange for `handle`'s. A handle that is no SlotCell's is
  // its own root. If it was the last handle its holder moves, so that a payload with one holder
  // never seems to have two.
  static Buffer Unwrap(Buffer handle);

  void AddHolder() override { holders_.fetch_add(1, std::memory_order_relaxed); }
  void DropHolder() override;
  // All handles of this worker and, of each other holder of the payload anywhere, one.
  int holders() const override;
  BufferCell* root() override { return root_.cell(); }

 private:
  SlotCell(std::shared_ptr<Mailbox> mailbox, const Slot& slot, Buffer root);
  ~SlotCell() override = default;
  void FreeSlot();

  const std::shared_ptr<Mailbox> mailbox_;
  const Slot slot_;
  Buffer root_;
  std::atomic<int> holders_{1};
};

}  // namespace ringzero

#endif  // RINGZERO_P2P_SLOT_CELL_H_
