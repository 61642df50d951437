// Symbols in words.
#include "sharding/symbol.h"

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

// "micro-batches 0 to 3", "micro-batch 2".
std::string MicroBatches(int64_t first, int64_t end) {
  if (end == first + 1) return absl::StrCat("micro-batch ", first);
  return absl::StrCat("micro-batches ", first, " to ", end - 1);
}

}  // namespace

std::string SymbolText(const Symbol& s) {
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
      return absl::StrCat("the statistics of ", MicroBatches(0, s.end), stage);
    case Symbol::Of::kLosses: return absl::StrCat("the losses of micro-batch ", s.end, iteration);
    case Symbol::Of::kFold: return absl::StrCat("the fold of ", MicroBatches(0, s.end), iteration);
    case Symbol::Of::kSum: return absl::StrCat("the sum of ", MicroBatches(s.first, s.end), stage);
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
