// Looks every rule up, simulates those that were studied, and compares.
#include "zero/rule_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "zero/model_plan.h"
#include "zero/optimizer/optimizer.h"

namespace ringzero {
namespace {

// Of a worker, where no profile says it.
constexpr MachineSpeed kAssumedSpeed = {.flops_per_second = 50e9, .bytes_per_second = 10e9};

bool IsNear(int64_t a, int64_t b) { return a <= 2 * b && b <= 2 * a; }

using Candidate = std::pair<PlannedModel, double>;  // and the seconds of its step

absl::StatusOr<Candidate> Try(const ModelDescription& model, const PlanRequest& request,
                              const RuleQuestion& question) {
  RZ_ASSIGN_OR_RETURN(PlannedModel planned, PlanModel(model, request));
  SimulationOptions speed;
  if (question.profile.has_value()) {
    RZ_ASSIGN_OR_RETURN(speed, TicksOf(*question.profile, planned.plan));
  } else {
    const auto moments = MomentBytes(request.optimizer, planned.layouts);
    speed = EstimateTicks(planned.plan, moments, kAssumedSpeed);
  }
  if (question.cores > 0) ShareCores(question.cores, speed);
  speed.links = question.links;
  RZ_ASSIGN_OR_RETURN(const StepForecast step, ForecastStep(planned.plan, speed));
  return Candidate{std::move(planned), step.seconds};
}

std::string InputsOf(const RuleQuestion& question) {
  return absl::StrCat(question.profile.has_value()
                          ? "a frozen profile"
                          : absl::StrFormat("counted costs at %g GFLOP/s and %g GB/s (assumed)",
                                            1e-9 * kAssumedSpeed.flops_per_second,
                                            1e-9 * kAssumedSpeed.bytes_per_second),
                      question.cores > 0 ? absl::StrFormat(", %.3g cores in all, ", question.cores)
                                         : ", a core for each worker, ",
                      question.links.hosts.size() == 1 ? "one host" : question.links.text);
}

std::string LineOf(Rule rule, double step, double updates, double of_dp) {
  return absl::StrFormat("\n  %-6s  step %.4g ms x %.3f updates = %.3f of dp's time",
                         ToString(rule), 1e3 * step, updates, of_dp);
}

}  // namespace

PlanRequest WithRule(PlanRequest request, Rule rule) {
  request.rule = rule;
  request.question.reset();
  if (rule != Rule::kCdpV2) request.strict = false;
  if (rule != Rule::kDp) return request;
  request.warmup_updates = 0;
  request.predict = request.stagger = false;
  return request;
}

const StudiedRule* FindStudied(const RuleQuestion& question, const PlanRequest& request) {
  const StudiedRule* worst = nullptr;
  for (const StudiedRule& row : question.studied) {
    const bool alike = row.family == question.family && row.optimizer == question.optimizer &&
                       row.rule == request.rule && row.strict == request.strict &&
                       row.predict == request.predict;
    const bool near = IsNear(row.workers, request.workers) && IsNear(row.laps, request.laps) &&
                      IsNear(row.batch, question.batch) &&
                      row.warmup_updates <= request.warmup_updates;
    const auto rank = [](const StudiedRule& each) {
      return std::pair(each.warmup_updates, each.most);
    };
    if (alike && near && (worst == nullptr || rank(row) > rank(*worst))) worst = &row;
  }
  return worst;
}

absl::StatusOr<PlannedModel> PlanFastest(const ModelDescription& model,
                                         const PlanRequest& request) {
  const RuleQuestion& question = *request.question;
  RZ_ASSIGN_OR_RETURN(Candidate best, Try(model, WithRule(request, Rule::kDp), question));
  const double dp_seconds = std::max(best.second, 1e-9);
  double least = 0.98;  // of dp's time; a smaller gain is not worth another rule
  std::string lines = LineOf(Rule::kDp, dp_seconds, 1, 1);
  for (const Rule rule : {Rule::kCdpV1, Rule::kCdpV2}) {
    const PlanRequest of_rule = WithRule(request, rule);
    const StudiedRule* const row = FindStudied(question, of_rule);
    if (row == nullptr) {
      absl::StrAppendFormat(&lines,
                            "\n  %-6s  not measured for %s, %s, N = %d, K = %d, %d samples an "
                            "update, a warm-up of %d updates, %s predictions",
                            ToString(rule), question.family, question.optimizer, request.workers,
                            request.laps, question.batch, of_rule.warmup_updates,
                            of_rule.predict ? "with" : "without");
      continue;
    }
    absl::StatusOr<Candidate> found = Try(model, of_rule, question);
    if (!found.ok()) {
      absl::StrAppendFormat(&lines, "\n  %-6s  cannot be planned: %s", ToString(rule),
                            found.status().message());
      continue;
    }
    const double of_dp = found->second * row->most / dp_seconds;
    absl::StrAppend(&lines, LineOf(rule, found->second, row->most, of_dp));
    absl::StrAppendFormat(&lines, " (mean %.3f, %d seeds: %s)", row->updates, row->seeds,
                          row->command);
    if (of_dp > least) continue;
    least = of_dp;
    best = *std::move(found);
  }
  const Rule chosen = best.first.plan.rule;
  best.first.rule_choice =
      absl::StrCat("rule auto: ", ToString(chosen),
                   chosen == Rule::kDp ? ", as no other is known to be faster by 2 % or more; from "
                                       : ", which comes to dp's loss first; from ",
                   InputsOf(question), lines);
  return std::move(best.first);
}

}  // namespace ringzero
