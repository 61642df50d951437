// Drops the payload first and then returns the credit.
#include "p2p/slot_cell.h"

#include <utility>

namespace ringzero {

SlotCell::SlotCell(std::shared_ptr<Mailbox> mailbox, const Slot& slot, Buffer root)
    : BufferCell(root.data(), root.size()),
      mailbox_(std::move(mailbox)),
      slot_(slot),
      root_(std::move(root)) {}

Buffer SlotCell::Wrap(std::shared_ptr<Mailbox> mailbox, const Slot& slot, Buffer root) {
  void* const memory = mailbox->slot_cells().Take();
  return Buffer(new (memory) SlotCell(std::move(mailbox), slot, std::move(root)));
}

Buffer SlotCell::Unwrap(Buffer handle) {
  if (handle.cell()->root() == handle.cell()) return handle;  // sooner said than by a cast
  auto* slot = dynamic_cast<SlotCell*>(handle.cell());
  if (slot == nullptr) return handle;
  if (slot->holders_.load(std::memory_order_acquire) == 1) {
    Buffer root = std::move(slot->root_);  // ours alone: nobody is left who could add a holder
    handle.Detach();
    slot->FreeSlot();
    return root;
  }
  slot->root()->AddHolder();
  return Buffer(slot->root());  // and `handle` drops its own, after the root has the new one
}

void SlotCell::DropHolder() {
  if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) FreeSlot();
}

int SlotCell::holders() const {
  return holders_.load(std::memory_order_acquire) + root_.cell()->holders() - 1;
}

void SlotCell::FreeSlot() {
  const std::shared_ptr<Mailbox> mailbox = mailbox_;
  const Slot slot = slot_;
  this->~SlotCell();
  mailbox->slot_cells().Return(this);
  mailbox->wire().SendCredit(slot.from, slot.kind);
}

}  // namespace ringzero
