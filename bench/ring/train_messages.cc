// Reads a plan and asks its programs.
#include "bench/ring/train_messages.h"

#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "sharding/block_table.h"
#include "sharding/program.h"
#include "sharding/verify.h"
#include "zero/transport_needs.h"

namespace ringzero {
absl::StatusOr<Plan> ReadTrafficPlan(const std::string& file) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream) return InvalidArgument("--plan ", file, ": cannot read it");
  absl::StatusOr<Plan> plan = ParsePlan(text.str());
  if (!plan.ok()) return Annotate(plan.status(), absl::StrCat("--plan ", file));
  plan->evaluation = {};
  plan->collection = {};
  plan->iterations = 3;
  if (!plan->exchange) {
    return InvalidArgument("--plan ", file, ": in it nothing travels");
  }
  if (plan->zero_stage != 3) {
    return InvalidArgument("--plan ", file, ": the benchmark plays stage 3 of ZeRO, found ",
                           plan->zero_stage);
  }
  plan->one_host = false;  // here all messages have payload
  RZ_RETURN_IF_ERROR(Annotate(CheckPlan(*plan), absl::StrCat("--plan ", file)));
  const absl::StatusOr<int> window = ChooseWindow(*plan);
  RZ_RETURN_IF_ERROR(Annotate(window.status(), absl::StrCat("--plan ", file)));
  plan->window = *window;
  return plan;
}

absl::StatusOr<size_t> BytesPerIteration(const Plan& plan) {
  Plan longer = plan;
  longer.iterations = 5;
  RZ_ASSIGN_OR_RETURN(const std::vector<Program> programs,
                      MakePrograms(longer, {Iteration(2), Iteration(3)}));
  size_t bytes = 0;
  for (const Program& program : programs) {
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::kSend) continue;
      bytes += static_cast<size_t>(MessageBytes(plan, op, kTrainMetrics));
    }
  }
  return bytes;
}

TransportOptions TrainNeeds(const Plan& plan, WorkerId self) {
  absl::StatusOr<TransportOptions> needs = TransportNeeds(plan, self, kTrainMetrics);
  RZ_CHECK(needs.ok(), needs.status().ToString());  // the plan is verified
  return *std::move(needs);
}

}  // namespace ringzero
