// NonfiniteWatch: which losses and gradient norms of a run were not finite, and what to say of it:
// a line at the first of them, and one at the end.
//
//   NonfiniteWatch watch(/*iterations=*/20);
//   watch.Note(NonfiniteWatch::Value::kLoss, 4, NAN, "from 3 of 8 micro-batches");
//       // "iteration 4/20: the loss is nan, from 3 of 8 micro-batches"
//   watch.Note(NonfiniteWatch::Value::kLoss, 5, NAN, "");   // nothing: the first one was said
//   watch.Summary();
//       // "not finite: the loss 2 times, first in iteration 4/20"
//
// Iterations count from 1, as the progress line does. One thread.
#ifndef RINGZERO_INTEGRATIONS_CLI_NONFINITE_WATCH_H_
#define RINGZERO_INTEGRATIONS_CLI_NONFINITE_WATCH_H_

#include <array>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "integrations/cli/run_log.h"
#include "sharding/plan.h"

namespace ringzero {

class NonfiniteWatch {
 public:
  enum class Value { kLoss, kGradientNorm, kHeldOutLoss };

  explicit NonfiniteWatch(int iterations) : iterations_(iterations) {}

  // The line, if this is the run's first value that is not finite. `done`: iterations, the value's
  // own included. `from`: where it comes from, as far as that is known.
  std::optional<std::string> Note(Value what, int done, double value, absl::string_view from);
  // Nothing if all were finite.
  std::optional<std::string> Summary() const;

 private:
  struct Seen {
    int times = 0;
    int first = 0;
  };
  const int iterations_;
  std::array<Seen, 3> seen_ = {};  // by Value
  bool said_ = false;
};

// Where an iteration's loss comes from that is not finite: the micro-batches whose own is not.
std::string OriginOf(const RunLog::Loss& loss, const Plan& plan);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_NONFINITE_WATCH_H_
