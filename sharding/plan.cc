// Checking, printing and parsing of plans.
#include "sharding/plan.h"

#include <array>
#include <numeric>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

// In the order of Rule, and of Clipping.
constexpr std::array<const char*, 3> kRuleNames = {"dp", "cdp_v1", "cdp_v2"};
constexpr std::array<const char*, 4> kClippingNames = {"off", "exact", "per_stage", "previous"};

absl::Status Wrong(const std::string& field, const std::string& wanted, int64_t found) {
  return InvalidArgument("plan: ", field, " must be ", wanted, ", found ", found);
}

absl::Status CheckLeast(const std::string& field, int64_t found, int64_t least) {
  return found >= least ? absl::OkStatus() : Wrong(field, absl::StrCat("at least ", least), found);
}
absl::Status CheckRange(const std::string& field, int found, int least, int most) {
  if (found >= least && found <= most) return absl::OkStatus();
  return Wrong(field, absl::StrCat(least, " to ", most), found);
}

absl::Status CheckStage(const Plan& plan, int j) {
  const StagePlan& stage = plan.stages[j];
  const std::string name = absl::StrCat("stage ", j, " (", stage.name, ")");
  RZ_RETURN_IF_ERROR(CheckRange("owner of " + name, stage.owner.value, 0, plan.workers - 1));
  if (stage.parameter_bytes < 0 || stage.sum_bytes < 0 || stage.buffer_bytes < 0 ||
      stage.state_bytes < 0 || stage.master_bytes < 0) {
    return Wrong(absl::StrCat("bytes of ", name), "at least 0", -1);
  }
  if (stage.master_bytes > 0 && stage.parameter_bytes == 0) {
    return Wrong(absl::StrCat("master_bytes of ", name, ", which has no parameters,"), "0",
                 stage.master_bytes);
  }
  RZ_RETURN_IF_ERROR(CheckLeast("trained_parameters of " + name, stage.trained_parameters, 0));
  if (stage.forward_cost < 0 || stage.backward_cost < 0) {
    return Wrong(absl::StrCat("costs of ", name), "at least 0", -1);
  }
  if (stage.sum_bytes > 0 && !stage.has_backward) {
    return Wrong(absl::StrCat("sum_bytes of ", name, ", which has no backward,"), "0",
                 stage.sum_bytes);
  }
  if (stage.streamed_bytes < 0 || (stage.streams() && stage.sum_bytes == 0)) {
    return Wrong(absl::StrCat("streamed_bytes of ", name), "at least 0, of what is trained",
                 stage.streamed_bytes);
  }
  const bool may_stream = stage.streams() && stage.master_bytes > 0 && plan.masters_may_stream();
  if (stage.streams_masters && !may_stream) {
    return Wrong(absl::StrCat("streams_masters of ", name), "0", 1);
  }
  if (stage.streams_parameters && !plan.parameters_may_stream(StageId(j))) {
    return Wrong(absl::StrCat("streams_parameters of ", name), "0", 1);
  }
  if (stage.streams_parameters)
    RZ_RETURN_IF_ERROR(CheckLeast("resident_slots", plan.resident_slots, 2));
  if (stage.streams() && plan.exchange && plan.staging_bytes <= 0)
    return Wrong("staging_bytes of a plan that streams", "at least 1", plan.staging_bytes);
  const int last_use = plan.last_use(StageId(j)).value;
  RZ_RETURN_IF_ERROR(CheckRange("last_use of " + name, last_use, j, plan.stage_count() - 1));
  if (j > 0 && plan.stages[j - 1].has_backward && !stage.has_backward) {
    return Wrong(absl::StrCat("has_backward of ", name, ", which follows a stage with a backward,"),
                 "1", 0);
  }
  return absl::OkStatus();
}

absl::Status CheckIterations(const Plan& plan) {
  RZ_RETURN_IF_ERROR(CheckLeast("iterations", plan.iterations, 0));
  RZ_RETURN_IF_ERROR(CheckRange("first_iteration", plan.first_iteration, 0, plan.iterations));
  RZ_RETURN_IF_ERROR(CheckLeast("warmup_updates", plan.warmup_updates, 0));
  if (plan.warmup_updates > 0 && plan.rule == Rule::kDp) {
    return Wrong("warmup_updates with rule dp, which is its own warm-up,", "0",
                 plan.warmup_updates);
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
  RZ_RETURN_IF_ERROR(CheckLeast("collection.every", collection.every, 0));
  const int collector = collection.worker.value;
  RZ_RETURN_IF_ERROR(CheckRange("collection.worker", collector, 0, plan.workers - 1));
  if (plan.requests && !plan.exchange) {
    return absl::InvalidArgumentError("plan: requests travel with the losses: they need exchange");
  }
  RZ_RETURN_IF_ERROR(CheckLeast("checkpoint.every", plan.checkpoint.every, 0));
  if (plan.checkpoint.any() && !plan.exchange) {
    return InvalidArgument("plan: a checkpoint is of what updates make: it needs exchange");
  }
  RZ_RETURN_IF_ERROR(CheckVersions("checkpoint.versions", plan.checkpoint.versions));
  return CheckVersions("collection.versions", collection.versions);
}

// Writes keys, each with its values behind it.
class LineWriter {
 public:
  template <typename... Values>
  void Field(const char* key, const Values&... values) {
    absl::StrAppend(&text_, text_.empty() ? "" : " ", key);
    (absl::StrAppend(&text_, " ", values), ...);
  }
  // A count, then as many numbers.
  void Field(const char* key, const std::vector<int>& values) {
    Field(key, values.size());
    for (const int value : values) absl::StrAppend(&text_, " ", value);
  }
  void Rest(const char* key, const std::string& rest) { Field(key, rest); }
  // Whether a field that may be missing is there.
  bool Has(const char*, int64_t value) const { return value > 0; }
  bool Has(const char*, const std::vector<int>& values) const { return !values.empty(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Reads what LineWriter writes.
class LineReader {
 public:
  explicit LineReader(const std::string& line) : in_(line) {}
  template <typename... Values>
  void Field(const char* key, Values&... values) {
    std::string word;
    if (!(in_ >> word) || word != key || !(true && ... && bool(in_ >> values))) Fail(key);
  }
  void Field(const char* key, std::vector<int>& values) {
    int count = 0, value = 0;
    Field(key, count);
    for (; count > 0 && in_ >> value; --count) values.push_back(value);
    if (count != 0) Fail(key);
  }
  void Rest(const char* key, std::string& rest) {
    Field(key);
    std::getline(in_ >> std::ws, rest);
  }
  // Whether `key` comes next, and all before it was right.
  bool Has(const char* key, const auto&) {
    if (!wrong_.empty() || (in_ >> std::ws).eof()) return false;
    const std::streampos here = in_.tellg();
    std::string word;
    const bool next = in_ >> word && word == key;
    in_.clear();
    in_.seekg(here);
    return next;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  void Fail(const char* key) {
    if (wrong_.empty()) wrong_ = key;
  }
  std::istringstream in_;
  std::string wrong_;
};

// Keys and values in turn.
void Fields(auto&) {}
void Fields(auto& line, const char* key, auto& value, auto&... more) {
  line.Field(key, value);
  Fields(line, more...);
}
void Optional(auto& line, const char* key, auto& value) {
  if (line.Has(key, value)) line.Field(key, value);
}

// The first line of a plan's text, and that of a stage: written, or read.
void PlanLine(auto& line, auto& plan, auto& rule, auto& clipping) {
  line.Field("plan");
  Fields(line, "workers", plan.workers, "zero_stage", plan.zero_stage, "laps", plan.laps);
  Fields(line, "rule", rule, "slack", plan.slack, "predict", plan.predict);
  Fields(line, "pending", plan.pending, "window", plan.window, "stagger", plan.stagger);
  Fields(line, "retain", plan.retain, "exchange", plan.exchange, "iterations", plan.iterations);
  Fields(line, "strict", plan.strict, "clipping", clipping);
  Fields(line, "skip_overflows", plan.skip_overflows, "evaluate_every", plan.evaluation.every);
  Fields(line, "evaluation_laps", plan.evaluation.laps, "collect_every", plan.collection.every);
  Fields(line, "collector", plan.collection.worker.value);
  Fields(line, "collect_versions", plan.collection.versions);
  Optional(line, "first_iteration", plan.first_iteration);
  Optional(line, "warmup_updates", plan.warmup_updates);
  Optional(line, "evaluate_versions", plan.evaluation.versions);
  Optional(line, "save_every", plan.checkpoint.every);
  Optional(line, "save_versions", plan.checkpoint.versions);
  Optional(line, "save_at_end", plan.checkpoint.at_end);
  Optional(line, "save_on_request", plan.checkpoint.on_request);
  Optional(line, "requests", plan.requests);
  Optional(line, "collect_on_request", plan.collection.on_request);
  Optional(line, "parameters_only", plan.collection.parameters_only);
  Optional(line, "staging_bytes", plan.staging_bytes);
  Optional(line, "resident_slots", plan.resident_slots);
  Optional(line, "hosts", plan.hosts);
  if (!line.Has("epoch_samples", plan.samples.per_epoch)) return;
  Fields(line, "epoch_samples", plan.samples.per_epoch, "micro_batch", plan.samples.micro_batch);
}
void StageLine(auto& line, auto& stage) {
  line.Field("stage");
  line.Field("layers", stage.first_layer, stage.end_layer);
  Fields(line, "parameter_bytes", stage.parameter_bytes, "master_bytes", stage.master_bytes);
  Fields(line, "sum_bytes", stage.sum_bytes, "buffer_bytes", stage.buffer_bytes);
  Fields(line, "state_bytes", stage.state_bytes, "trained_parameters", stage.trained_parameters);
  line.Field("costs", stage.forward_cost, stage.backward_cost);
  Fields(line, "owner", stage.owner.value, "last_use", stage.last_use.value);
  line.Field("has_backward", stage.has_backward);
  Optional(line, "streamed_bytes", stage.streamed_bytes);
  Optional(line, "streams_masters", stage.streams_masters);
  Optional(line, "streams_parameters", stage.streams_parameters);
  line.Rest("name", stage.name);
}

}  // namespace

std::string ToString(Rule rule) { return kRuleNames[static_cast<size_t>(rule)]; }

absl::StatusOr<Rule> ParseRule(const std::string& text) {
  for (const Rule rule : {Rule::kDp, Rule::kCdpV1, Rule::kCdpV2}) {
    if (text == ToString(rule)) return rule;
  }
  return InvalidArgument("\"", text, "\" is no rule: dp, cdp_v1 or cdp_v2");
}

std::string ToString(Clipping clipping) { return kClippingNames[static_cast<size_t>(clipping)]; }

absl::StatusOr<Clipping> ParseClipping(const std::string& text) {
  for (const Clipping clipping :
       {Clipping::kOff, Clipping::kExact, Clipping::kPerStage, Clipping::kPrevious}) {
    if (text == ToString(clipping)) return clipping;
  }
  return InvalidArgument("\"", text, "\" is no clipping: off, exact, per_stage or previous");
}

absl::Status CheckPlan(const Plan& plan) {
  RZ_RETURN_IF_ERROR(CheckLeast("workers", plan.workers, 1));
  RZ_RETURN_IF_ERROR(CheckRange("zero_stage", plan.zero_stage, 0, 3));
  RZ_RETURN_IF_ERROR(CheckLeast("laps", plan.laps, 1));
  RZ_RETURN_IF_ERROR(CheckLeast("stages", plan.stage_count(), 1));
  RZ_RETURN_IF_ERROR(CheckLeast("slack", plan.slack, 0));
  RZ_RETURN_IF_ERROR(CheckLeast("pending", plan.pending, 1));
  RZ_RETURN_IF_ERROR(CheckLeast("window", plan.window, 0));
  RZ_RETURN_IF_ERROR(CheckIterations(plan));
  RZ_RETURN_IF_ERROR(CheckRange("retain", plan.retain, 0, plan.stage_count()));
  if (plan.stagger && plan.rule == Rule::kDp) {
    return absl::InvalidArgumentError(
        "plan: stagger spaces the workers of cdp_v1 and cdp_v2; with dp it would only make them "
        "wait");
  }
  if (plan.predict && plan.rule == Rule::kDp) {
    return absl::InvalidArgumentError(
        "plan: predict stands in for stale parameters (cdp_v1 and cdp_v2); with dp nothing is "
        "stale");
  }
  const std::vector<int>& hosts = plan.hosts;
  const int placed = std::accumulate(hosts.begin(), hosts.end(), 0);
  if (!hosts.empty() && (placed != plan.workers || *std::ranges::min_element(hosts) < 1)) {
    return Wrong("hosts", absl::StrCat("each at least 1, and together ", plan.workers), placed);
  }
  RZ_RETURN_IF_ERROR(CheckLeast("samples.per_epoch", plan.samples.per_epoch, 0));
  RZ_RETURN_IF_ERROR(CheckLeast("samples.micro_batch", plan.samples.micro_batch, 1));
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
    cost += plan.stages[j].computed_cost();
  }
  return CheckLeast("the cost of all stages together", cost, 1);
}

std::string PlanToString(const Plan& plan) {
  const std::string rule = ToString(plan.rule), clipping = ToString(plan.clipping);
  LineWriter head;
  PlanLine(head, plan, rule, clipping);
  std::string text = absl::StrCat(head.text(), "\n");
  for (const StagePlan& stage : plan.stages) {
    LineWriter line;
    StageLine(line, stage);
    absl::StrAppend(&text, line.text(), "\n");
  }
  return text;
}

absl::StatusOr<Plan> ParsePlan(const std::string& text) {
  std::istringstream lines(text);
  std::string line, rule, clipping;
  Plan plan;
  std::getline(lines, line);
  LineReader head(line);
  PlanLine(head, plan, rule, clipping);
  if (!head.wrong().empty()) {
    return InvalidArgument("plan text, line 1: bad \"", head.wrong(), "\"");
  }
  RZ_ASSIGN_OR_RETURN(plan.rule, ParseRule(rule));
  RZ_ASSIGN_OR_RETURN(plan.clipping, ParseClipping(clipping));
  for (int number = 2; std::getline(lines, line); ++number) {
    LineReader in(line);
    StageLine(in, plan.stages.emplace_back());
    if (!in.wrong().empty()) {
      return InvalidArgument("plan text, line ", number, ": bad \"", in.wrong(), "\"");
    }
  }
  return plan;
}

}  // namespace ringzero
