// Symbol: what a block holds, in a run on symbols (meaning.h).
//
//   const Symbol sum{Symbol::Of::kSum, 2, 4, 8};
//   SymbolText(sum);   // "the sum of micro-batches 4 to 7 of stage 2"
#ifndef RINGZERO_SHARDING_SYMBOL_H_
#define RINGZERO_SHARDING_SYMBOL_H_

#include <cstdint>
#include <string>

#include "sharding/op.h"

namespace ringzero {

// `first` and `end` are numbers of micro-batches (of the run, or of an
// iteration), of iterations or of versions.
struct Symbol {
  enum class Of : uint8_t {
    kNothing,
    kTheta,       // version `first`, as it travels
    kMasters,     // of version `first`, where they are apart
    kPrediction,  // of version `first`
    kState,       // of the optimizer, after `first` updates
    kGradient,    // of micro-batch `first`
    kBatch,       // statistics of micro-batch `first`
    kStatistics,  // of micro-batches 0 to `end` - 1
    kLosses,      // of micro-batch `end` of iteration (or evaluation) `first`
    kFold,        // of micro-batches 0 to `end` - 1 of iteration (or evaluation) `first`
    kSum,         // of the gradients of micro-batches `first` to `end` - 1
    kSquares,     // of iteration `first`
    kNorm,        // of iteration `first`
    kForwardDone,
    kBackwardDone  // of micro-batch `first`
  };
  Of of = Of::kNothing;
  int stage = -1;
  int64_t first = 0;
  int64_t end = 0;
  Copy copy = Copy::kNone;
  bool operator==(const Symbol&) const = default;
};

std::string SymbolText(const Symbol& symbol);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_SYMBOL_H_
