// Labels of versions: θ_t, and the prediction of θ_t that stands in for it where it is not there in
// time (Plan::predict).
//
//   Version v = Prediction(4);   // θ_3 + μ(θ_3 - θ_2), made by the update that makes θ_3
//   LabelText(v);                // "p4"
//   LabelText(Version(4));       // "4"
//
// A prediction is a label like any other: different from all θ, read, relayed, injected and
// overwritten by its name.
#ifndef RINGZERO_SHARDING_LABEL_H_
#define RINGZERO_SHARDING_LABEL_H_

#include <string>

#include "base/ids.h"

namespace ringzero {

// Far above any number of updates; a prediction's label is this plus its t.
inline constexpr int kFirstPrediction = 1 << 30;

constexpr Version Prediction(int t) { return Version(kFirstPrediction + t); }
constexpr bool IsPrediction(Version v) { return v.value >= kFirstPrediction; }

// The t of θ_t or of its prediction.
constexpr int LabelNumber(Version v) {
  return IsPrediction(v) ? v.value - kFirstPrediction : v.value;
}

inline std::string LabelText(Version v) {
  return (IsPrediction(v) ? "p" : "") + std::to_string(LabelNumber(v));
}

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_LABEL_H_
