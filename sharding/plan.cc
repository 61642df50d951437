// Checking, printing and parsing of plans.
#include "sharding/plan.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace ringzero {
namespace {

absl::Status Wrong(const std::string& field, const std::string& wanted, int64_t found) {
  return InvalidArgument("plan: ", field, " must be ", wanted, ", found ", found);
}

absl::Status CheckStage(const Plan& plan, int j) {
  const StagePlan& stage = plan.stages[j];
  const std::string name = absl::StrCat("stage ", j, " (", stage.name, ")");
  if (stage.owner.value < 0 || stage.owner.value >= plan.workers) {
    return Wrong(absl::StrCat("owner of ", name), absl::StrCat("0 to ", plan.workers - 1),
                 stage.owner.value);
  }
  if (stage.parameter_bytes < 0 || stage.sum_bytes < 0 || stage.buffer_bytes < 0 ||
      stage.state_bytes < 0 || stage.master_bytes < 0) {
    return Wrong(absl::StrCat("bytes of ", name), "at least 0", -1);
  }
  if (stage.master_bytes > 0 && stage.parameter_bytes == 0) {
    return Wrong(absl::StrCat("master_bytes of ", name, ", which has no parameters,"), "0",
                 stage.master_bytes);
  }
  if (stage.trained_parameters < 0) {
    return Wrong(absl::StrCat("trained_parameters of ", name), "at least 0",
                 stage.trained_parameters);
  }
  if (stage.forward_cost < 0 || stage.backward_cost < 0) {
    return Wrong(absl::StrCat("costs of ", name), "at least 0", -1);
  }
  if (stage.sum_bytes > 0 && !stage.has_backward) {
    return Wrong(absl::StrCat("sum_bytes of ", name, ", which has no backward,"), "0",
                 stage.sum_bytes);
  }
  const int last_use = plan.last_use(StageId(j)).value;
  if (last_use < j || last_use >= plan.stage_count()) {
    return Wrong(absl::StrCat("last_use of ", name),
                 absl::StrCat(j, " to ", plan.stage_count() - 1), last_use);
  }
  if (j > 0 && plan.stages[j - 1].has_backward && !stage.has_backward) {
    return Wrong(absl::StrCat("has_backward of ", name, ", which follows a stage with a backward,"),
                 "1", 0);
  }
  return absl::OkStatus();
}

absl::Status CheckIterations(const Plan& plan) {
  if (plan.iterations < 0) return Wrong("iterations", "at least 0", plan.iterations);
  if (plan.first_iteration < 0 || plan.first_iteration > plan.iterations) {
    return Wrong("first_iteration", absl::StrCat("0 to ", plan.iterations), plan.first_iteration);
  }
  if (plan.warmup_updates < 0) {
    return Wrong("warmup_updates", "at least 0", plan.warmup_updates);
  }
  if (plan.warmup_updates > 0 && plan.rule == Rule::kDp) {
    return Wrong("warmup_updates with rule dp, which is its own warm-up,", "0",
                 plan.warmup_updates);
  }
  return absl::OkStatus();
}

absl::Status CheckPrediction(const Plan& plan) {
  if (!plan.predict) return absl::OkStatus();
  if (plan.rule == Rule::kDp) {
    return absl::InvalidArgumentError(
        "plan: predict stands in for stale parameters (cdp_v1 and cdp_v2); with dp nothing is "
        "stale");
  }
  return absl::OkStatus();
}

absl::Status CheckVersions(const char* name, const std::vector<int>& versions) {
  int last = 0;
  for (const int version : versions) {
    if (version <= last) return Wrong(name, "ascending and at least 1", version);
    last = version;
  }
  return absl::OkStatus();
}

absl::Status CheckShown(const Plan& plan) {
  RZ_RETURN_IF_ERROR(CheckVersions("evaluation.versions", plan.evaluation.versions));
  const CollectionPlan& collection = plan.collection;
  if (collection.every < 0) return Wrong("collection.every", "at least 0", collection.every);
  if (collection.worker.value < 0 || collection.worker.value >= plan.workers) {
    return Wrong("collection.worker", absl::StrCat("0 to ", plan.workers - 1),
                 collection.worker.value);
  }
  if (plan.requests && !plan.exchange) {
    return absl::InvalidArgumentError("plan: requests travel with the losses: they need exchange");
  }
  if (plan.checkpoint.every < 0)
    return Wrong("checkpoint.every", "at least 0", plan.checkpoint.every);
  if (plan.checkpoint.any() && !plan.exchange) {
    return absl::InvalidArgumentError(
        "plan: a checkpoint is of what updates make: it needs exchange");
  }
  RZ_RETURN_IF_ERROR(CheckVersions("checkpoint.versions", plan.checkpoint.versions));
  return CheckVersions("collection.versions", collection.versions);
}

}  // namespace

std::string ToString(Rule rule) {
  switch (rule) {
    case Rule::kDp: return "dp";
    case Rule::kCdpV1: return "cdp_v1";
    case Rule::kCdpV2: return "cdp_v2";
  }
  return "?";
}

absl::StatusOr<Rule> ParseRule(const std::string& text) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    if (text == ToString(rule)) return rule;
  }
  return InvalidArgument("\"", text, "\" is no rule: dp, cdp_v1 or cdp_v2");
}

std::string ToString(Clipping clipping) {
  switch (clipping) {
    case Clipping::kOff: return "off";
    case Clipping::kExact: return "exact";
    case Clipping::kPerStage: return "per_stage";
    case Clipping::kPrevious: return "previous";
  }
  return "?";
}

absl::StatusOr<Clipping> ParseClipping(const std::string& text) {
  for (const Clipping clipping :
       {Clipping::kOff, Clipping::kExact, Clipping::kPerStage, Clipping::kPrevious}) {
    if (text == ToString(clipping)) return clipping;
  }
  return InvalidArgument("\"", text, "\" is no clipping: off, exact, per_stage or previous");
}

absl::Status CheckPlan(const Plan& plan) {
  if (plan.workers < 1) return Wrong("workers", "at least 1", plan.workers);
  if (plan.zero_stage < 0 || plan.zero_stage > 3) {
    return Wrong("zero_stage", "0 to 3", plan.zero_stage);
  }
  if (plan.laps < 1) return Wrong("laps", "at least 1", plan.laps);
  if (plan.stages.empty()) return Wrong("stages", "at least 1", 0);
  if (plan.slack < 0) return Wrong("slack", "at least 0", plan.slack);
  if (plan.pending < 1) return Wrong("pending", "at least 1", plan.pending);
  if (plan.window < 0) return Wrong("window", "at least 0", plan.window);
  RZ_RETURN_IF_ERROR(CheckIterations(plan));
  if (plan.retain < 0 || plan.retain > plan.stage_count()) {
    return Wrong("retain", absl::StrCat("0 to ", plan.stage_count()), plan.retain);
  }
  if (plan.stagger && plan.rule == Rule::kDp) {
    return absl::InvalidArgumentError(
        "plan: stagger spaces the workers of cdp_v1 and cdp_v2; with dp it would only make them "
        "wait");
  }
  RZ_RETURN_IF_ERROR(CheckPrediction(plan));
  const std::vector<int>& hosts = plan.hosts;
  const int placed = std::accumulate(hosts.begin(), hosts.end(), 0);
  if (!hosts.empty() && (placed != plan.workers || *std::ranges::min_element(hosts) < 1)) {
    return Wrong("hosts", absl::StrCat("each at least 1, and together ", plan.workers), placed);
  }
  if (plan.samples.per_epoch < 0) {
    return Wrong("samples.per_epoch", "at least 0", plan.samples.per_epoch);
  }
  if (plan.samples.micro_batch < 1) {
    return Wrong("samples.micro_batch", "at least 1", plan.samples.micro_batch);
  }
  if (plan.strict && plan.rule != Rule::kCdpV2) {
    return absl::InvalidArgumentError("plan: strict is a form of cdp_v2, no other rule has it");
  }
  if (plan.takes_sums() && plan.rule == Rule::kCdpV2 && !plan.strict) {
    return InvalidArgument(
        "plan: ", plan.skip_overflows ? "skipping overflows" : "exact clipping",
        " with cdp_v2 needs its strict form: else a version is read before the norm of its update "
        "can be known");
  }
  if (plan.skip_overflows && plan.clipping == Clipping::kPrevious) {
    return absl::InvalidArgumentError(
        "plan: where overflows are skipped every update waits for its own norm: clip by that");
  }
  RZ_RETURN_IF_ERROR(CheckShown(plan));
  int64_t cost = 0;
  for (int j = 0; j < plan.stage_count(); ++j) {
    RZ_RETURN_IF_ERROR(CheckStage(plan, j));
    cost += plan.stages[j].forward_cost;
    if (plan.stages[j].has_backward) cost += plan.stages[j].backward_cost;
  }
  if (cost < 1) return Wrong("the cost of all stages together", "at least 1", cost);
  return absl::OkStatus();
}

std::string PlanToString(const Plan& plan) {
  std::string text = absl::StrCat(
      "plan workers ", plan.workers, " zero_stage ", plan.zero_stage, " laps ", plan.laps, " rule ",
      ToString(plan.rule), " slack ", plan.slack, " predict ", int{plan.predict}, " pending ",
      plan.pending, " window ", plan.window, " stagger ", int{plan.stagger}, " retain ",
      plan.retain, " exchange ", int{plan.exchange}, " iterations ", plan.iterations, " strict ",
      int{plan.strict}, " clipping ", ToString(plan.clipping), " skip_overflows ",
      int{plan.skip_overflows}, " evaluate_every ", plan.evaluation.every, " evaluation_laps ",
      plan.evaluation.laps, " collect_every ", plan.collection.every, " collector ",
      plan.collection.worker.value, " collect_versions ", plan.collection.versions.size());
  for (const int version : plan.collection.versions) absl::StrAppend(&text, " ", version);
  if (plan.first_iteration > 0) {
    absl::StrAppend(&text, " first_iteration ", plan.first_iteration);
  }
  if (plan.warmup_updates > 0) absl::StrAppend(&text, " warmup_updates ", plan.warmup_updates);
  if (!plan.evaluation.versions.empty()) {
    absl::StrAppend(&text, " evaluate_versions ", plan.evaluation.versions.size(), " ",
                    absl::StrJoin(plan.evaluation.versions, " "));
  }
  if (plan.checkpoint.every > 0) absl::StrAppend(&text, " save_every ", plan.checkpoint.every);
  if (!plan.checkpoint.versions.empty()) {
    absl::StrAppend(&text, " save_versions ", plan.checkpoint.versions.size(), " ",
                    absl::StrJoin(plan.checkpoint.versions, " "));
  }
  for (const auto& [key, value] : {std::pair("save_at_end", plan.checkpoint.at_end),
                                   std::pair("save_on_request", plan.checkpoint.on_request),
                                   std::pair("requests", plan.requests),
                                   std::pair("collect_on_request", plan.collection.on_request),
                                   std::pair("parameters_only", plan.collection.parameters_only)}) {
    if (value) absl::StrAppend(&text, " ", key, " 1");
  }
  if (!plan.hosts.empty()) {
    absl::StrAppend(&text, " hosts ", plan.hosts.size(), " ", absl::StrJoin(plan.hosts, " "));
  }
  if (plan.samples.per_epoch > 0) {
    absl::StrAppend(&text, " epoch_samples ", plan.samples.per_epoch, " micro_batch ",
                    plan.samples.micro_batch);
  }
  absl::StrAppend(&text, "\n");
  for (const StagePlan& stage : plan.stages) {
    absl::StrAppend(
        &text, "stage layers ", stage.first_layer, " ", stage.end_layer, " parameter_bytes ",
        stage.parameter_bytes, " master_bytes ", stage.master_bytes, " sum_bytes ", stage.sum_bytes,
        " buffer_bytes ", stage.buffer_bytes, " state_bytes ", stage.state_bytes,
        " trained_parameters ", stage.trained_parameters, " costs ", stage.forward_cost, " ",
        stage.backward_cost, " owner ", stage.owner.value, " last_use ", stage.last_use.value,
        " has_backward ", int{stage.has_backward}, " name ", stage.name, "\n");
  }
  return text;
}

namespace {

// Reads "key value" pairs in the order in which PlanToString writes them.
class LineReader {
 public:
  explicit LineReader(const std::string& line) : in_(line) {}
  template <typename... Values>
  LineReader& Read(const char* key, Values*... values) {
    std::string word;
    if (!(in_ >> word) || word != key || !(true && ... && bool(in_ >> *values))) Fail(key);
    return *this;
  }
  // A count, then as many numbers.
  LineReader& ReadList(const char* key, std::vector<int>* values) {
    int count = 0, value = 0;
    Read(key, &count);
    for (; count > 0 && in_ >> value; --count) values->push_back(value);
    if (count != 0) Fail(key);
    return *this;
  }
  LineReader& ReadRest(const char* key, std::string* rest) {
    Read(key);
    std::getline(in_ >> std::ws, *rest);
    return *this;
  }
  bool more() { return !(in_ >> std::ws).eof(); }
  template <typename Value>
  void ReadIfNext(const char* key, Value* value) {
    if (Next(key)) Read(key, value);
  }
  // Whether `key` comes next, and all before it was right.
  bool Next(const char* key) {
    if (!wrong_.empty() || !more()) return false;
    const std::streampos here = in_.tellg();
    std::string word;
    const bool next = in_ >> word && word == key;
    in_.clear();
    in_.seekg(here);
    return next;
  }
  std::string wrong() const { return wrong_; }

 private:
  void Fail(const char* key) {
    if (wrong_.empty()) wrong_ = key;
  }
  std::istringstream in_;
  std::string wrong_;
};

}  // namespace

absl::StatusOr<Plan> ParsePlan(const std::string& text) {
  std::istringstream lines(text);
  std::string line, rule, clipping;
  std::getline(lines, line);
  Plan plan;
  LineReader head(line);
  head.Read("plan").Read("workers", &plan.workers).Read("zero_stage", &plan.zero_stage);
  head.Read("laps", &plan.laps).Read("rule", &rule);
  head.Read("slack", &plan.slack)
      .Read("predict", &plan.predict)
      .Read("pending", &plan.pending)
      .Read("window", &plan.window);
  head.Read("stagger", &plan.stagger).Read("retain", &plan.retain);
  head.Read("exchange", &plan.exchange).Read("iterations", &plan.iterations);
  head.Read("strict", &plan.strict).Read("clipping", &clipping);
  head.Read("skip_overflows", &plan.skip_overflows).Read("evaluate_every", &plan.evaluation.every);
  head.Read("evaluation_laps", &plan.evaluation.laps);
  head.Read("collect_every", &plan.collection.every)
      .Read("collector", &plan.collection.worker.value);
  head.ReadList("collect_versions", &plan.collection.versions);
  head.ReadIfNext("first_iteration", &plan.first_iteration);
  head.ReadIfNext("warmup_updates", &plan.warmup_updates);
  if (head.Next("evaluate_versions")) {
    head.ReadList("evaluate_versions", &plan.evaluation.versions);
  }
  head.ReadIfNext("save_every", &plan.checkpoint.every);
  if (head.Next("save_versions")) head.ReadList("save_versions", &plan.checkpoint.versions);
  head.ReadIfNext("save_at_end", &plan.checkpoint.at_end);
  head.ReadIfNext("save_on_request", &plan.checkpoint.on_request);
  head.ReadIfNext("requests", &plan.requests);
  head.ReadIfNext("collect_on_request", &plan.collection.on_request);
  head.ReadIfNext("parameters_only", &plan.collection.parameters_only);
  if (head.Next("hosts")) head.ReadList("hosts", &plan.hosts);
  if (head.Next("epoch_samples")) {
    head.Read("epoch_samples", &plan.samples.per_epoch);
    head.Read("micro_batch", &plan.samples.micro_batch);
  }
  if (!head.wrong().empty()) {
    return InvalidArgument("plan text, line 1: bad \"", head.wrong(), "\"");
  }
  RZ_ASSIGN_OR_RETURN(plan.rule, ParseRule(rule));
  RZ_ASSIGN_OR_RETURN(plan.clipping, ParseClipping(clipping));
  for (int number = 2; std::getline(lines, line); ++number) {
    StagePlan stage;
    LineReader in(line);
    in.Read("stage").Read("layers", &stage.first_layer, &stage.end_layer);
    in.Read("parameter_bytes", &stage.parameter_bytes).Read("master_bytes", &stage.master_bytes);
    in.Read("sum_bytes", &stage.sum_bytes);
    in.Read("buffer_bytes", &stage.buffer_bytes).Read("state_bytes", &stage.state_bytes);
    in.Read("trained_parameters", &stage.trained_parameters);
    in.Read("costs", &stage.forward_cost, &stage.backward_cost);
    in.Read("owner", &stage.owner.value).Read("last_use", &stage.last_use.value);
    in.Read("has_backward", &stage.has_backward).ReadRest("name", &stage.name);
    if (!in.wrong().empty()) {
      return InvalidArgument("plan text, line ", number, ": bad \"", in.wrong(), "\"");
    }
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

}  // namespace ringzero
