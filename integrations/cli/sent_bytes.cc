// Splits measured bytes by channel.
#include "integrations/cli/sent_bytes.h"

#include <algorithm>

#include "base/status.h"
#include "sharding/op.h"
#include "sharding/program.h"

namespace ringzero {
namespace {

// Bytes that `self` injects in iteration t for anything but training.
absl::StatusOr<uint64_t> OtherInjections(const Plan& plan, WorkerId self, Iteration t) {
  RZ_ASSIGN_OR_RETURN(const Program program, MakeProgram(plan, self, {t, Iteration(t.value + 1)}));
  uint64_t bytes = 0;
  for (const Op& op : program.ops) {
    if (op.kind != OpKind::kSend || op.channel != Channel::kInject) continue;
    if (op.copy != Copy::kEvaluation) continue;
    bytes += static_cast<uint64_t>(plan.stage(op.stage).parameter_bytes);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<SentBytes> SplitSentBytes(const Plan& plan, WorkerId self,
                                         const TransportStats& stats) {
  SentBytes sent;
  for (size_t kind = 0; kind < stats.bytes_sent.size(); ++kind) {
    switch (static_cast<Channel>(kind)) {
      case Channel::kForwardCopy:
      case Channel::kBackwardCopy:
      case Channel::kInject:
      case Channel::kSum:
      case Channel::kRetire:
      case Channel::kFinished: sent.training += stats.bytes_sent[kind]; break;
      default: sent.other += stats.bytes_sent[kind];
    }
  }
  if (!plan.exchange || plan.workers == 1) return sent;
  uint64_t injected = 0;
  if (plan.evaluation.every > 0 && plan.evaluation.laps > 0) {
    for (int e = plan.evaluation.every; e < plan.iterations; e += plan.evaluation.every) {
      RZ_ASSIGN_OR_RETURN(const uint64_t bytes, OtherInjections(plan, self, Iteration(e)));
      injected += bytes;
    }
  }
  RZ_ASSIGN_OR_RETURN(const uint64_t closing,
                      OtherInjections(plan, self, Iteration(plan.iterations)));
  injected += closing;
  sent.training -= injected;
  sent.other += injected;
  return sent;
}

}  // namespace ringzero
