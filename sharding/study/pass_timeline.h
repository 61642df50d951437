// PassTimeline: what one micro-batch allocates and frees, in order; and the most that it has at
// once.
//
//   PassTimeline pass;
//   pass.Allocate(block, bytes);  …  pass.Free(block);  …  pass.EndStage({gradient_block, …});
//   pass.Peak(PassTimeline::Gradients::kNone);   // activations: tensors that are no gradients
//   pass.Peak(PassTimeline::Gradients::kWait, pending);  // and the gradients that may wait
//
// Pure arithmetic on numbers that somebody has measured (integrations/torch/measurements.h). Bytes
// as allocated: whoever records them rounds. A block's number may be used again after its Free.
// Used by one thread.
#ifndef RINGZERO_SHARDING_STUDY_PASS_TIMELINE_H_
#define RINGZERO_SHARDING_STUDY_PASS_TIMELINE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace ringzero {

class PassTimeline {
 public:
  void Allocate(uint64_t block, int64_t bytes);
  // Of a block that was not allocated here: nothing.
  void Free(uint64_t block);
  // A stage's backward is over; these blocks (an address within one will do) are its gradients, and
  // from when they were allocated. They are freed by others, so their Free here does not count.
  void EndStage(const std::vector<uint64_t>& gradients);

  enum class Gradients {
    kNone,     // left out: they go into their sums at once
    kDropped,  // freed at the end of their stage's backward
    kWait,     // those of `pending` stages wait while the next stage's are made
  };
  // Of a pass that has others like it before and after. `pending` counts with kWait alone.
  int64_t Peak(Gradients gradients, int pending = 0) const;

 private:
  enum class Kind { kAllocate, kFree, kEndStage };
  struct Entry {
    Kind kind;
    size_t block = 0;  // its Allocate's entry; kEndStage: of stage_gradients_
  };
  struct Block {
    int64_t bytes = 0;
    bool gradient = false;
    bool freed = false;
  };

  std::vector<Entry> entries_;
  std::vector<Block> blocks_;
  std::vector<int64_t> stage_gradients_;  // bytes, by EndStage
  std::map<uint64_t, size_t> places_;     // the last block at each address
};

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_STUDY_PASS_TIMELINE_H_
