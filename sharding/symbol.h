// Symbol: what a block holds, in a run on symbols (verify.h).
//
//   const Symbol sum{Symbol::Of::kSum, 2, 4, 8};
//   SymbolText(sum);   // "the sum of micro-batches 4 to 7 of stage 2"
#ifndef RINGZERO_SHARDING_SYMBOL_H_
#define RINGZERO_SHARDING_SYMBOL_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
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

// "micro-batches 0 to 3", "micro-batch 2".
inline std::string MicroBatchesText(int64_t first, int64_t end) {
  if (end == first + 1) return absl::StrCat("micro-batch ", first);
  return absl::StrCat("micro-batches ", first, " to ", end - 1);
}

inline std::string SymbolText(const Symbol& s) {
  const std::string stage = absl::StrCat(" of stage ", s.stage);
  const std::string iteration = absl::StrCat(
      s.copy == Copy::kEvaluation ? " of the evaluation of version " : " of iteration ", s.first);
  switch (s.of) {
    case Symbol::Of::kNothing: return "nothing";
    case Symbol::Of::kTheta: return absl::StrCat("version ", s.first, stage);
    case Symbol::Of::kMasters: return absl::StrCat("the masters of version ", s.first, stage);
    case Symbol::Of::kPrediction: return absl::StrCat("the prediction of version ", s.first, stage);
    case Symbol::Of::kState: return absl::StrCat("the state after ", s.first, " updates", stage);
    case Symbol::Of::kGradient: return absl::StrCat("the gradient of micro-batch ", s.first, stage);
    case Symbol::Of::kBatch: return absl::StrCat("the statistics of micro-batch ", s.first, stage);
    case Symbol::Of::kStatistics:
      if (s.end == 0) return absl::StrCat("the first statistics", stage);
      return absl::StrCat("the statistics of ", MicroBatchesText(0, s.end), stage);
    case Symbol::Of::kLosses: return absl::StrCat("the losses of micro-batch ", s.end, iteration);
    case Symbol::Of::kFold:
      return absl::StrCat("the fold of ", MicroBatchesText(0, s.end), iteration);
    case Symbol::Of::kSum:
      return absl::StrCat("the sum of ", MicroBatchesText(s.first, s.end), stage);
    case Symbol::Of::kSquares: return absl::StrCat("the squares", iteration, stage);
    case Symbol::Of::kNorm: return absl::StrCat("the norm", iteration);
    case Symbol::Of::kForwardDone:
      return absl::StrCat("the token of F", s.stage, " of micro-batch ", s.first);
    case Symbol::Of::kBackwardDone:
      return absl::StrCat("the token of B", s.stage, " of micro-batch ", s.first);
  }
  return "";
}

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_SYMBOL_H_
