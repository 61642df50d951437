// Model, data and ring: from keys to fields, and the checks that need more than one key.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "zero/config/fill.h"

namespace ringzero {
namespace {

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

// The place of `name` among the choices of `path`, which has a value.
int ChoiceOf(const ResolvedKeys& keys, absl::string_view path) {
  const std::vector<absl::string_view> choices = absl::StrSplit(FindKey(path)->choices, '|');
  const auto found = std::find(choices.begin(), choices.end(), keys.String(path));
  return static_cast<int>(found - choices.begin());
}

absl::Status FillOverflows(const ResolvedKeys& keys, InjectConfig& inject) {
  constexpr char kKey[] = "cyclic.inject.overflows";
  if (!keys.Has(kKey)) return absl::OkStatus();
  const std::vector<int64_t> numbers = keys.Integers(kKey);
  const auto small = [](int64_t n) { return n >= 0 && n <= std::numeric_limits<int>::max(); };
  if (numbers.size() % 3 != 0 || !std::all_of(numbers.begin(), numbers.end(), small)) {
    return keys.Error(kKey, "wanted three numbers from 0 for each: iteration, stage, micro-batch");
  }
  for (size_t i = 0; i < numbers.size(); i += 3) {
    inject.overflows.push_back({int(numbers[i]), int(numbers[i + 1]), int(numbers[i + 2])});
  }
  return absl::OkStatus();
}

absl::Status FillInject(const ResolvedKeys& keys, int workers, InjectConfig& inject) {
  using Action = InjectConfig::Action;
  using Point = InjectConfig::Point;
  if (keys.Has("cyclic.inject.delay")) {
    inject.delay =
        std::chrono::microseconds(std::llround(keys.Number("cyclic.inject.delay") * 1e6));
  }
  if (keys.Has("cyclic.inject.update_slowness")) {
    inject.update_slowness = keys.Number("cyclic.inject.update_slowness");
  }
  RZ_RETURN_IF_ERROR(FillOverflows(keys, inject));
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

// What is of another rule than the one that is configured.
std::vector<absl::Status> CheckRule(const ResolvedKeys& keys, const CyclicConfig& cyclic) {
  const std::string idle = absl::StrCat("has no meaning with cyclic.rule ", ToString(cyclic.rule));
  std::vector<absl::Status> wrong;
  if (cyclic.stagger && cyclic.rule == Rule::kDp) {
    wrong.push_back(keys.Error("cyclic.stagger", idle));
  }
  if (cyclic.predict && cyclic.rule == Rule::kDp) {
    wrong.push_back(keys.Error("cyclic.predict", absl::StrCat(idle, ": nothing is stale")));
  }
  if (keys.Has("cyclic.slack") && cyclic.rule != Rule::kCdpV2) {
    wrong.push_back(keys.Error("cyclic.slack", idle));
  }
  if (keys.IsOn("cyclic.strict") && cyclic.rule != Rule::kCdpV2) {
    wrong.push_back(keys.Error("cyclic.strict", idle));
  }
  return wrong;
}

absl::Status FillBoundaries(const ResolvedKeys& keys, CyclicConfig& cyclic) {
  constexpr char kKey[] = "cyclic.boundaries";
  if (!keys.Has(kKey)) return absl::OkStatus();
  const std::vector<int64_t> layers = keys.Integers(kKey);
  const bool ascend =
      std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) == layers.end();
  if (layers.empty() || layers[0] != 0 || !ascend) {
    return keys.Error(kKey, absl::StrCat("wanted ascending layers, the first one 0, found ",
                                         WriteJson(keys.Json(kKey))));
  }
  cyclic.boundaries.assign(layers.begin(), layers.end());
  const int count = static_cast<int>(layers.size());
  if (cyclic.stages == 0 || cyclic.stages == count) return absl::OkStatus();
  return keys.Error(kKey, absl::StrCat(count, " stages, but cyclic.stages is ", cyclic.stages));
}

absl::Status FillCyclic(const ResolvedKeys& keys, CyclicConfig& cyclic) {
  RZ_ASSIGN_OR_RETURN(cyclic.rule, ParseRule(keys.String("cyclic.rule")));
  cyclic.predict = keys.Bool("cyclic.predict");
  cyclic.stages = Int(keys, "cyclic.stages");
  // Absent where the batch asks for more than there may be.
  if (keys.Has("cyclic.workers")) cyclic.workers = Int(keys, "cyclic.workers");
  cyclic.transport = TransportOf(keys.String("cyclic.transport"));
  cyclic.window = Int(keys, "cyclic.window");
  cyclic.pending = Int(keys, "cyclic.pending");
  cyclic.stagger = keys.Bool("cyclic.stagger");
  cyclic.retain = Int(keys, "cyclic.retain");
  cyclic.exchange = keys.Bool("cyclic.exchange");
  cyclic.track_activations = keys.Bool("cyclic.track_activations");
  cyclic.flight_recorder = keys.Bool("cyclic.flight_recorder");
  if (keys.String("cyclic.on_nonfinite") == "stop") {
    cyclic.on_nonfinite = CyclicConfig::OnNonfinite::kStop;
  }
  cyclic.balance = keys.String("cyclic.balance") == "bytes" ? CyclicConfig::Balance::kBytes
                                                            : CyclicConfig::Balance::kCost;
  if (keys.Has("cyclic.profile")) cyclic.profile = keys.String("cyclic.profile");
  cyclic.threads = Int(keys, "cyclic.threads");
  cyclic.products_first = keys.Bool("cyclic.products_first");
  cyclic.wait_timeout = Milliseconds(keys, "cyclic.wait_timeout");
  cyclic.peer_timeout = Milliseconds(keys, "cyclic.peer_timeout");
  cyclic.checksums = keys.Bool("cyclic.checksums");
  for (const auto& [path, bytes] :
       {std::pair("cyclic.memory_budget.host", &cyclic.memory_budget.host),
        std::pair("cyclic.memory_budget.device", &cyclic.memory_budget.device),
        std::pair("cyclic.memory_budget.disk", &cyclic.memory_budget.disk)}) {
    if (keys.Has(path)) *bytes = keys.Integer(path);
  }
  return FillInject(keys, cyclic.workers, cyclic.inject);
}

// What gradients are clipped by, and the form of cdp_v2 that this needs.
absl::Status FillClipping(const ResolvedKeys& keys, double max_norm, bool skips,
                          CyclicConfig& cyclic) {
  if (max_norm > 0) {
    RZ_ASSIGN_OR_RETURN(cyclic.clipping, ParseClipping(keys.String("cyclic.clipping")));
  }
  if (skips && cyclic.clipping == Clipping::kPrevious) {
    return keys.Error("cyclic.clipping",
                      "previous, but with fp16 or bf16.check_grad_overflow every update waits for "
                      "the norm of its own iteration anyway: wanted exact");
  }
  if (skips && cyclic.predict) {
    return keys.Error("cyclic.predict",
                      "takes every update for made, but with fp16 or bf16.check_grad_overflow "
                      "an overflow is skipped");
  }
  const bool exact = cyclic.clipping == Clipping::kExact;
  const bool needed = (exact || skips) && cyclic.rule == Rule::kCdpV2;
  cyclic.strict = keys.Has("cyclic.strict") ? keys.Bool("cyclic.strict") : needed;
  if (needed && !cyclic.strict) {
    return keys.Error(
        "cyclic.strict",
        skips ? "must be true with cyclic.rule cdp_v2 where overflows are skipped (fp16, "
                "bf16.check_grad_overflow)"
              : "must be true for exact clipping with cyclic.rule cdp_v2; set it, or "
                "cyclic.clipping per_stage or previous, or gradient_clipping 0");
  }
  cyclic.slack = keys.Has("cyclic.slack") ? Int(keys, "cyclic.slack") : cyclic.strict ? 0 : 1;
  return absl::OkStatus();
}

}  // namespace

bool SkipsOverflows(const ResolvedKeys& keys) {
  const auto is_on = [&](absl::string_view path) { return keys.Has(path) && keys.Bool(path); };
  return is_on("fp16.enabled") || (is_on("bf16.enabled") && is_on("bf16.check_grad_overflow"));
}

std::vector<absl::Status> FillOurs(Config& config) {
  ResolvedKeys& keys = config.keys;
  std::vector<absl::Status> wrong;
  const auto check = [&](const absl::Status& status) {
    if (!status.ok()) wrong.push_back(status);
  };
  if (keys.Has("model.type")) check(FillModel(keys, config.model));
  if (keys.Has("model.type") && keys.Has("data.type")) {
    check(FillData(keys, config.model, config.data));
  }
  check(FillCyclic(keys, config.cyclic));
  for (const absl::Status& status : CheckRule(keys, config.cyclic)) check(status);
  check(FillBoundaries(keys, config.cyclic));
  if (keys.Has("gradient_clipping") && !keys.MustBeSet("gradient_clipping")) {
    config.optimizer.max_norm = keys.Number("gradient_clipping");
  }
  check(FillClipping(keys, config.optimizer.max_norm, SkipsOverflows(keys), config.cyclic));
  config.seed = static_cast<uint64_t>(keys.Integer("seed"));
  config.evaluation.samples = keys.Integer("evaluation.samples");
  if (keys.Has("evaluation.every")) config.evaluation.every = Int(keys, "evaluation.every");
  if (!keys.MustBeSet("steps_per_print") && keys.Has("steps_per_print")) {
    config.steps_per_print = Int(keys, "steps_per_print");
  }
  return wrong;
}

}  // namespace ringzero
