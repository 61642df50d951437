// From checked keys to the typed configuration, and the checks that need more than one key.
#include "zero/config/config.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "zero/config/json_value.h"
#include "zero/config/overrides.h"
#include "zero/config/rules.h"
#include "zero/config/values.h"

namespace ringzero {
namespace {

int Int(const ResolvedKeys& keys, absl::string_view path) {
  return static_cast<int>(keys.Integer(path));
}

std::chrono::milliseconds Milliseconds(const ResolvedKeys& keys, absl::string_view seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(keys.Number(seconds) * 1000)));
}

absl::Status FillModel(ResolvedKeys& keys, ModelConfig& model) {
  const std::string type = keys.String("model.type");
  if (type == "resnet") {
    model.type = ModelConfig::Type::kResNet;
    model.depth = keys.Integer("model.depth");
    const bool imagenet = model.depth == 18 || model.depth == 34 || model.depth == 50;
    if (!imagenet && (model.depth - 2) % 6 != 0) {
      return keys.Error(
          "model.depth",
          absl::StrCat("wanted 18, 34 or 50, or 6n + 2 (20, 32, 44, 56), found ", model.depth));
    }
    if (!keys.Has("model.width")) {
      keys.Set("model.width", JsonValue::Integer(imagenet ? 64 : 16), Origin::kDerived);
    }
    model.width = keys.Integer("model.width");
    if (keys.Has("model.channels")) model.channels = keys.Integer("model.channels");
  } else if (type == "gpt") {
    model.type = ModelConfig::Type::kGpt;
    model.layers = keys.Integer("model.layers");
    model.dim = keys.Integer("model.dim");
    model.heads = keys.Integer("model.heads");
    model.vocab = keys.Integer("model.vocab");
    model.seq = keys.Integer("model.seq");
    model.tied = keys.Bool("model.tied");
    model.dropout = keys.Number("model.dropout");
    if (model.dim % model.heads != 0) {
      return keys.Error("model.heads",
                        absl::StrCat(model.heads, " heads do not divide model.dim ", model.dim));
    }
  } else {
    model.type = ModelConfig::Type::kMlp;
    model.hidden = keys.Integers("model.hidden");
  }
  return absl::OkStatus();
}

absl::Status FillData(const ResolvedKeys& keys, const ModelConfig& model, DataConfig& data) {
  data.type = keys.String("data.type");
  const bool is_gpt = model.type == ModelConfig::Type::kGpt;
  if (data.type == "random") {
    data.samples = keys.Integer("data.samples");
    data.input = keys.Integers("data.input");
    data.classes = keys.Integer("data.classes");
    const size_t rank = data.input.size();
    if (rank != 3 && (rank != 1 || model.type == ModelConfig::Type::kResNet)) {
      return keys.Error("data.input", "wanted [channels, height, width], or [features] for an mlp");
    }
    return absl::OkStatus();
  }
  if (!keys.Has("data.path") || keys.String("data.path").empty()) {
    return keys.Error("data.type", absl::StrCat(data.type, " needs data.path"));
  }
  data.path = keys.String("data.path");
  if (is_gpt != (data.type == "text")) {
    return keys.Error(
        "data.type",
        absl::StrCat(data.type, " is not for model.type ", keys.String("model.type"),
                     ", which wants ", is_gpt ? "text" : "idx or cifar10", " (or random)"));
  }
  return absl::OkStatus();
}

absl::Status FillLength(const ResolvedKeys& keys, Config& config) {
  if (keys.Has("iterations")) config.iterations = Int(keys, "iterations");
  if (keys.Has("epochs")) config.epochs = Int(keys, "epochs");
  if (config.iterations.has_value() && config.epochs.has_value()) {
    return keys.Error("epochs", "iterations is given too: only one of them");
  }
  if (!config.iterations.has_value() && !config.epochs.has_value()) {
    return keys.Error("iterations", "missing; give iterations or epochs");
  }
  return absl::OkStatus();
}

absl::Status FillOptimizer(const ResolvedKeys& keys, OptimizerOptions& optimizer) {
  optimizer.learning_rate = keys.Number("optimizer.params.lr");
  const double decay = keys.Number("optimizer.params.weight_decay");
  if (keys.String("optimizer.type") == "SGD") {
    optimizer.type = OptimizerOptions::Type::kSgd;
    SgdOptions& sgd = optimizer.sgd;
    sgd.momentum = keys.Number("optimizer.params.momentum");
    sgd.dampening = keys.Number("optimizer.params.dampening");
    sgd.weight_decay = decay;
    if (keys.Bool("optimizer.params.nesterov")) sgd.nesterov = SgdOptions::Nesterov::kOn;
    if (keys.Bool("optimizer.params.nesterov") && (sgd.momentum <= 0 || sgd.dampening != 0)) {
      return keys.Error("optimizer.params.nesterov", "needs momentum above 0 and no dampening");
    }
    return absl::OkStatus();
  }
  // As in DeepSpeed: "Adam" means AdamW unless adam_w_mode is false; "AdamW" ignores the flag.
  if (keys.String("optimizer.type") == "Adam" && !keys.Bool("optimizer.params.adam_w_mode")) {
    return keys.Error("optimizer.params.adam_w_mode",
                      "false (weight decay inside the gradient) is not built yet, only true");
  }
  optimizer.type = OptimizerOptions::Type::kAdamW;
  const std::vector<double> betas = keys.Numbers("optimizer.params.betas");
  optimizer.adamw = {.beta1 = betas[0],
                     .beta2 = betas[1],
                     .epsilon = keys.Number("optimizer.params.eps"),
                     .weight_decay = decay};
  return absl::OkStatus();
}

RateCurve::Warmup WarmupOf(const ResolvedKeys& keys) {
  const auto number = [&](absl::string_view name, double& out) {
    const std::string path = absl::StrCat("scheduler.params.", name);
    if (keys.Has(path)) out = keys.Number(path);
    return keys.Has(path);
  };
  RateCurve::Warmup warmup;
  double max_rate = 0;
  number("warmup_min_lr", warmup.min_rate);
  if (number("warmup_max_lr", max_rate)) warmup.max_rate = max_rate;
  number("warmup_min_ratio", warmup.min_ratio);
  number("cos_min_ratio", warmup.cosine_min_ratio);
  warmup.updates = keys.Integer("scheduler.params.warmup_num_steps");
  if (keys.Has("scheduler.params.total_num_steps")) {
    warmup.total_updates = keys.Integer("scheduler.params.total_num_steps");
  }
  const bool linear = keys.String("scheduler.params.warmup_type") == "linear";
  warmup.ramp = linear ? RateCurve::Ramp::kLinear : RateCurve::Ramp::kLog;
  return warmup;
}

RateCurve::OneCycle OneCycleOf(const ResolvedKeys& keys) {
  const auto path = [](absl::string_view name) { return absl::StrCat("scheduler.params.", name); };
  RateCurve::OneCycle cycle;
  cycle.min_rate = keys.Number(path("cycle_min_lr"));
  cycle.max_rate = keys.Number(path("cycle_max_lr"));
  cycle.first_updates = keys.Number(path("cycle_first_step_size"));
  if (keys.Has(path("cycle_second_step_size"))) {
    cycle.second_updates = keys.Number(path("cycle_second_step_size"));
  }
  cycle.first_stairs = keys.Integer(path("cycle_first_stair_count"));
  if (keys.Has(path("cycle_second_stair_count"))) {
    cycle.second_stairs = keys.Integer(path("cycle_second_stair_count"));
  }
  cycle.decay_updates = keys.Number(path("decay_step_size"));
  cycle.rate_decay = keys.Number(path("decay_lr_rate"));
  if (!keys.Bool(path("cycle_momentum"))) cycle.momentum = RateCurve::OneCycle::Momentum::kKept;
  cycle.min_momentum = keys.Number(path("cycle_min_mom"));
  cycle.max_momentum = keys.Number(path("cycle_max_mom"));
  cycle.momentum_decay = keys.Number(path("decay_mom_rate"));
  return cycle;
}

void FillRateCurve(const ResolvedKeys& keys, OptimizerOptions& optimizer) {
  if (!keys.Has("scheduler.type")) return;
  const std::string& type = keys.String("scheduler.type");
  RateCurve& curve = optimizer.curve;
  if (type == "OneCycle") {
    curve.type = RateCurve::Type::kOneCycle;
    curve.one_cycle = OneCycleOf(keys);
  } else if (type == "LRRangeTest") {
    curve.type = RateCurve::Type::kRangeTest;
    RateCurve::RangeTest& test = curve.range_test;
    test.min_rate = keys.Number("scheduler.params.lr_range_test_min_lr");
    test.updates = keys.Integer("scheduler.params.lr_range_test_step_size");
    test.growth = keys.Number("scheduler.params.lr_range_test_step_rate");
    if (keys.Bool("scheduler.params.lr_range_test_staircase")) {
      test.shape = RateCurve::RangeTest::Shape::kStairs;
    }
  } else {
    curve.type = type == "WarmupLR"        ? RateCurve::Type::kWarmup
                 : type == "WarmupDecayLR" ? RateCurve::Type::kWarmupDecay
                                           : RateCurve::Type::kWarmupCosine;
    curve.warmup = WarmupOf(keys);
  }
}

// The place of `name` among the choices of `path`, which has a value.
int ChoiceOf(const ResolvedKeys& keys, absl::string_view path) {
  const std::vector<absl::string_view> choices = absl::StrSplit(FindKey(path)->choices, '|');
  const auto found = std::find(choices.begin(), choices.end(), keys.String(path));
  return static_cast<int>(found - choices.begin());
}

absl::Status FillInject(const ResolvedKeys& keys, int workers, InjectConfig& inject) {
  using Action = InjectConfig::Action;
  using Point = InjectConfig::Point;
  if (keys.Has("cyclic.inject.delay")) {
    inject.delay =
        std::chrono::microseconds(std::llround(keys.Number("cyclic.inject.delay") * 1e6));
  }
  if (!keys.Has("cyclic.inject.action")) return absl::OkStatus();
  inject.action = static_cast<Action>(1 + ChoiceOf(keys, "cyclic.inject.action"));
  if (keys.Has("cyclic.inject.at")) {
    inject.at = static_cast<Point>(ChoiceOf(keys, "cyclic.inject.at"));
  }
  if (keys.Has("cyclic.inject.worker")) inject.worker = Int(keys, "cyclic.inject.worker");
  if (keys.Has("cyclic.inject.number")) {
    inject.number = static_cast<uint64_t>(keys.Integer("cyclic.inject.number"));
  }
  if (keys.Has("cyclic.inject.seed")) {
    inject.seed = static_cast<uint64_t>(keys.Integer("cyclic.inject.seed"));
  }
  const bool flip = inject.action == Action::kFlip;
  const bool computing = inject.action == Action::kSlow || inject.action == Action::kHang;
  if (inject.worker >= workers) return keys.Error("cyclic.inject.worker", "there is no such one");
  if ((flip && inject.at != Point::kMessage) || (computing && inject.at != Point::kLap)) {
    return keys.Error("cyclic.inject.at", "flip is for a message, slow and hang are for a lap");
  }
  return absl::OkStatus();
}

CyclicConfig::Transport TransportOf(absl::string_view name) {
  using Transport = CyclicConfig::Transport;
  if (name == "local") return Transport::kLocal;
  if (name == "shm") return Transport::kShm;
  if (name == "ucx") return Transport::kUcx;
  return name == "nccl" ? Transport::kNccl : Transport::kAuto;
}

absl::Status FillCyclic(const ResolvedKeys& keys, CyclicConfig& cyclic) {
  RZ_ASSIGN_OR_RETURN(cyclic.rule, ParseRule(keys.String("cyclic.rule")));
  cyclic.slack = Int(keys, "cyclic.slack");
  cyclic.stages = Int(keys, "cyclic.stages");
  cyclic.workers = Int(keys, "cyclic.workers");
  cyclic.transport = TransportOf(keys.String("cyclic.transport"));
  cyclic.window = Int(keys, "cyclic.window");
  cyclic.pending = Int(keys, "cyclic.pending");
  cyclic.stagger = keys.Bool("cyclic.stagger");
  cyclic.retain = Int(keys, "cyclic.retain");
  cyclic.exchange = keys.Bool("cyclic.exchange");
  cyclic.track_activations = keys.Bool("cyclic.track_activations");
  cyclic.balance = keys.String("cyclic.balance") == "bytes" ? CyclicConfig::Balance::kBytes
                                                            : CyclicConfig::Balance::kCost;
  cyclic.threads = Int(keys, "cyclic.threads");
  cyclic.wait_timeout = Milliseconds(keys, "cyclic.wait_timeout");
  cyclic.peer_timeout = Milliseconds(keys, "cyclic.peer_timeout");
  cyclic.checksums = keys.Bool("cyclic.checksums");
  RZ_RETURN_IF_ERROR(FillInject(keys, cyclic.workers, cyclic.inject));
  if (cyclic.stagger && cyclic.rule == Rule::kDp) {
    return keys.Error("cyclic.stagger", "has no meaning with cyclic.rule dp");
  }
  if (!keys.Has("cyclic.boundaries")) return absl::OkStatus();
  for (int64_t first : keys.Integers("cyclic.boundaries")) {
    const bool good = cyclic.boundaries.empty() ? first == 0 : first > cyclic.boundaries.back();
    if (!good) return keys.Error("cyclic.boundaries", "wanted ascending layers, the first one 0");
    cyclic.boundaries.push_back(static_cast<int>(first));
  }
  const int count = static_cast<int>(cyclic.boundaries.size());
  if (cyclic.stages != 0 && count != 0 && cyclic.stages != count) {
    return keys.Error("cyclic.boundaries",
                      absl::StrCat(count, " stages, but cyclic.stages is ", cyclic.stages));
  }
  return absl::OkStatus();
}

absl::Status FillBatch(const ResolvedKeys& keys, Config& config) {
  constexpr absl::string_view kTrain = "train_batch_size";
  constexpr absl::string_view kMicro = "train_micro_batch_size_per_gpu";
  const auto given = [&](absl::string_view path) {
    return keys.Has(path) ? keys.Integer(path) : 0;
  };
  const absl::StatusOr<BatchTriple> batch =
      CompleteBatch({.train_batch = given(kTrain),
                     .micro_batch = given(kMicro),
                     .laps = given("gradient_accumulation_steps")},
                    config.cyclic.workers);
  if (!batch.ok()) {
    return Annotate(batch.status(), keys.Place(keys.Has(kTrain) ? kTrain : kMicro));
  }
  config.batch = *batch;
  config.evaluation.batch_size = Int(keys, "evaluation.batch_size");
  return absl::OkStatus();
}

// What only a run needs: fills in, or says what is missing.
absl::Status FillRun(Config& config) {
  ResolvedKeys& keys = config.keys;
  for (const KeySpec& key : AllKeys()) {
    if (key.need != KeyNeed::kTraining || keys.HasSection(key.path)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(keys.file(), ": ", key.path, ": missing section (", key.meaning, ")"));
  }
  if (!keys.Has("optimizer.type")) {
    return keys.Error("optimizer.type",
                      absl::StrCat("missing; ", OneOf(FindKey("optimizer.type")->built)));
  }
  RZ_RETURN_IF_ERROR(FillLength(keys, config));
  RZ_RETURN_IF_ERROR(FillOptimizer(keys, config.optimizer));
  FillRateCurve(keys, config.optimizer);
  return FillBatch(keys, config);
}

// Fills in what is given of our own sections; these have no "auto".
absl::Status FillOurs(Config& config) {
  ResolvedKeys& keys = config.keys;
  if (keys.Has("model.type")) RZ_RETURN_IF_ERROR(FillModel(keys, config.model));
  if (keys.Has("model.type") && keys.Has("data.type")) {
    RZ_RETURN_IF_ERROR(FillData(keys, config.model, config.data));
  }
  RZ_RETURN_IF_ERROR(FillCyclic(keys, config.cyclic));
  config.seed = static_cast<uint64_t>(keys.Integer("seed"));
  config.evaluation.samples = keys.Integer("evaluation.samples");
  if (keys.Has("evaluation.every")) config.evaluation.every = Int(keys, "evaluation.every");
  if (!keys.MustBeSet("steps_per_print") && keys.Has("steps_per_print")) {
    constexpr int64_t kMost = std::numeric_limits<int>::max();
    config.steps_per_print = static_cast<int>(std::min(keys.Integer("steps_per_print"), kMost));
  }
  return absl::OkStatus();
}

absl::StatusOr<JsonValue> ReadSource(absl::string_view text, const ConfigSource& source) {
  RZ_ASSIGN_OR_RETURN(JsonValue root, ReadHjson(text, source.file));
  RZ_RETURN_IF_ERROR(ApplyOverrides(source.overrides, OverridesFrom::kCommandLine, root));
  RZ_RETURN_IF_ERROR(ApplyOverrides(source.environment, OverridesFrom::kEnvironment, root));
  return root;
}

// The first thing that `train` refuses, and what else of its kind there is.
absl::Status Refused(const Findings& findings, const Finding& first) {
  std::string others;
  for (const Finding& finding : findings.all()) {
    if (finding.kind != first.kind || &finding == &first) continue;
    absl::StrAppend(&others, others.empty() ? "" : ", ", finding.path);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(first.line, others.empty() ? "" : absl::StrCat(" (and so ", others, ")")));
}

bool Speaks(const Finding& finding) {
  return finding.kind == Finding::Kind::kNoEffect || finding.kind == Finding::Kind::kMinor ||
         finding.kind == Finding::Kind::kNote || finding.kind == Finding::Kind::kAuto;
}

}  // namespace

Verdict CheckedConfig::verdict() const {
  using Kind = Finding::Kind;
  if (findings.First(Kind::kError) != nullptr) return Verdict::kReject;
  const bool no_batch =
      !config.keys.Has("train_batch_size") && !config.keys.Has("train_micro_batch_size_per_gpu");
  if (no_batch || findings.Count(Kind::kAuto) + findings.Count(Kind::kMustSet) > 0) {
    return Verdict::kAcceptAuto;
  }
  const bool warns = findings.Count(Kind::kNoEffect) + findings.Count(Kind::kOutside) > 0;
  return warns ? Verdict::kWarn : Verdict::kAccept;
}

absl::Status CheckedConfig::status() const {
  std::string lines;
  for (const Finding& finding : findings.all()) {
    if (finding.kind != Finding::Kind::kError) continue;
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", finding.line);
  }
  return lines.empty() ? absl::OkStatus() : absl::InvalidArgumentError(lines);
}

CheckedConfig CheckConfig(absl::string_view text, const ConfigSource& source) {
  CheckedConfig checked;
  const auto fail = [&](const absl::Status& status) {
    checked.findings.all().push_back(
        {.kind = Finding::Kind::kError, .path = "", .line = std::string(status.message())});
  };
  const absl::StatusOr<JsonValue> root = ReadSource(text, source);
  if (!root.ok()) {
    fail(root.status());
    return checked;
  }
  ResolvedKeys& keys = checked.config.keys;
  keys = ResolveKeys(*root, source.file, checked.findings);
  if (!root->is_object()) return checked;
  ApplyRules(keys, checked.findings);
  ResolveBatch(keys, checked.findings);
  if (!keys.Has("evaluation.batch_size") && keys.Has("train_micro_batch_size_per_gpu") &&
      !keys.MustBeSet("train_micro_batch_size_per_gpu")) {
    keys.Set("evaluation.batch_size",
             JsonValue::Integer(keys.Integer("train_micro_batch_size_per_gpu")), Origin::kDerived);
  }
  if (checked.findings.First(Finding::Kind::kError) != nullptr) return checked;
  if (const absl::Status status = FillOurs(checked.config); !status.ok()) fail(status);
  return checked;
}

absl::StatusOr<Config> ParseConfig(absl::string_view text, const ConfigSource& source) {
  CheckedConfig checked = CheckConfig(text, source);
  const Findings& findings = checked.findings;
  if (const Finding* error = findings.First(Finding::Kind::kError); error != nullptr) {
    const int more = findings.Count(Finding::Kind::kError) - 1;
    return absl::InvalidArgumentError(
        absl::StrCat(error->line, more == 0 ? ""
                                            : absl::StrCat(" (and ", more,
                                                           " more: ringzero "
                                                           "config lists them)")));
  }
  for (const Finding& finding : findings.all()) {
    const bool refused = finding.kind == Finding::Kind::kNotBuilt ||
                         finding.kind == Finding::Kind::kOutside ||
                         finding.kind == Finding::Kind::kMustSet;
    if (refused) return Refused(findings, finding);
    if (Speaks(finding)) checked.config.notes.push_back(finding.line);
  }
  RZ_RETURN_IF_ERROR(FillRun(checked.config));
  return std::move(checked.config);
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in || (text.fail() && in.peek() != std::ifstream::traits_type::eof())) {
    return absl::NotFoundError(absl::StrCat(file, ": cannot read it: ", std::strerror(errno)));
  }
  return text.str();
}

absl::StatusOr<Config> LoadConfig(const ConfigSource& source) {
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(source.file));
  return ParseConfig(text, source);
}

}  // namespace ringzero
