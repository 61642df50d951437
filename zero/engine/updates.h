// Updates: the owner's updates, and what is kept of them for a collection, on the pool.
//
//   updates.Start(op);         // waits until nobody holds what it overwrites
//   updates.StartKeep(keep);
//
// With the executor's lock held.
#ifndef RINGZERO_ZERO_ENGINE_UPDATES_H_
#define RINGZERO_ZERO_ENGINE_UPDATES_H_

#include "zero/block_memory.h"
#include "zero/engine/executor.h"
#include "zero/engine/norms.h"
#include "zero/engine/sums.h"
#include "zero/owned_stages.h"

namespace ringzero {

class Updates {
 public:
  // All must outlive this.
  struct Parts {
    Executor& executor;
    BlockMemory& blocks;
    Sums& sums;
    const Norms& norms;
    OwnedStages& owned;
  };
  explicit Updates(const Parts& parts) : parts_(parts) {}

  void Start(int64_t op);
  void StartKeep(int64_t op);

 private:
  const Parts parts_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_ENGINE_UPDATES_H_
