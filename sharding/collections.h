// Collections: what one worker is shown of a version, and the operations that bring it there.
//
//   for (const Collection& c : CollectionsOf(plan, Version(8))) …   // who, and how much
//   AppendCollections(plan, self, Version(8), operands, ops);                 // this worker's part in them
//
// Stage by stage and part by part, so that whoever collects holds no more than its channels' slots
// of messages. Pure.
#ifndef RINGZERO_SHARDING_COLLECTIONS_H_
#define RINGZERO_SHARDING_COLLECTIONS_H_

#include <vector>

#include "base/ids.h"
#include "sharding/block.h"
#include "sharding/operands.h"
#include "sharding/plan.h"

namespace ringzero {

struct Collection {
  WorkerId worker;
  // kWhole: parameters, running statistics, averaged gradients and optimizer state. kResult: the
  // first two, of the last version, for worker 0.
  enum class Parts { kWhole, kResult } parts;
};

// Who has the stage's masters, sums and states for `worker`: the owner, or itself if it has them.
WorkerId KeepsFor(const Plan& plan, WorkerId worker, StageId j);

// At most two, of different workers.
std::vector<Collection> CollectionsOf(const Plan& plan, Version v);

// To whom the last worker sends its snapshot of version v, ascending. An evaluation passes it on
// from worker 0 to all others.
std::vector<WorkerId> SnapshotReceivers(const Plan& plan, Version v);

// The sends, receives and Collects of worker `self`. (The Keeps stand with the updates.)
void AppendCollections(const Plan& plan, WorkerId self, Version v, Operands& operands,
                       std::vector<Instruction>& ops);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_COLLECTIONS_H_
