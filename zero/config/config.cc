// From text to a checked configuration, and on to a configuration for a run. And --set: its options
// are parsed, then what they replace is dropped, then their values are written.
#include "zero/config/config.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/status.h"
#include "zero/config/json_value.h"
#include "zero/config/keys.h"
#include "zero/config/steps.h"

namespace ringzero {
namespace {

constexpr size_t kMaxShownOverride = 200;  // bytes of one in messages

struct Override {
  std::string path;
  JsonValue value;
};

void SetPlace(JsonValue& value, const Place& place, Origin origin) {
  value.place = place;
  value.origin = origin;
  for (JsonValue& child : value.children) SetPlace(child, place, origin);
}

// The option as messages show it. Short, because each value that the option gives keeps it.
std::string Shown(absl::string_view text) {
  if (text.size() <= kMaxShownOverride) return std::string(text);
  const absl::string_view shown = text.substr(0, kMaxShownOverride);
  return absl::StrCat(shown.substr(0, WholeUtf8(shown)), "...");
}

absl::StatusOr<Override> ParseOverride(const std::string& text, Origin origin) {
  const size_t equals = text.find('=');
  const Place place = {.text = origin == Origin::kEnvironment
                                   ? absl::StrCat("environment (", Shown(text), ")")
                                   : absl::StrCat("--set ", Shown(text))};
  const auto error = [&](absl::string_view message) {
    return InvalidArgument(place.text, ": ", message);
  };
  if (equals == std::string::npos || equals == 0) {
    return error("wanted KEY.PATH=VALUE, as in --set cyclic.rule=dp");
  }
  Override result{.path = text.substr(0, equals), .value = {}};
  const std::vector<absl::string_view> names = absl::StrSplit(result.path, '.');
  if (names.size() > size_t{kMaxJsonDepth}) {
    return error(absl::StrCat("more than ", kMaxJsonDepth, " levels"));
  }
  for (const absl::string_view name : names) {
    if (name.empty()) return error("an empty key");
  }
  const std::string value = text.substr(equals + 1);
  const absl::StatusOr<JsonValue> json = ReadJson(value, "value");
  result.value = json.ok() ? *json : JsonValue::String(value);
  SetPlace(result.value, place, origin);
  return result;
}

void Drop(JsonValue& object, absl::string_view key) {
  std::erase_if(object.children, [&](const JsonValue& child) { return child.key == key; });
}

// Drops from `object` (at `path`) what does not belong to `type`. Unknown keys stay: the check
// reports them.
void DropOtherTypes(JsonValue& object, const std::string& path, absl::string_view type) {
  std::erase_if(object.children, [&](const JsonValue& child) {
    const KeySpec* key = FindKey(absl::StrCat(path, ".", child.key), type);
    return key != nullptr && !BelongsTo(*key, type);
  });
  for (JsonValue& child : object.children) {
    if (child.is_object()) DropOtherTypes(child, absl::StrCat(path, ".", child.key), type);
  }
}

absl::Status Write(const Override& change, JsonValue& root) {
  JsonValue* at = &root;
  const std::vector<std::string> names = absl::StrSplit(change.path, '.');
  std::string path;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!at->is_object()) {
      return InvalidArgument(change.value.place.text, ": ", path, " is ", Describe(*at),
                             " and has no keys");
    }
    path = Join(path, names[i]);
    JsonValue* next = at->Find(names[i]);
    if (next == nullptr) {
      at->children.push_back(change.value.With({.kind = JsonValue::Kind::kObject}));
      at->children.back().key = names[i];
      next = &at->children.back();
    }
    at = next;
  }
  *at = change.value;
  at->key = names.back();
  return absl::OkStatus();
}

// --set KEY.PATH=VALUE: VALUE is JSON where it parses as JSON, else a string. `X.type=…` replaces
// section X: keys that do not belong to the new type are dropped, unless they are set too.
// `iterations=…` drops `epochs` and the other way round. The order of the overrides does not
// matter, but of two for one key the last wins.
absl::Status ApplyOverrides(const std::vector<std::string>& overrides, Origin origin,
                            JsonValue& root) {
  std::vector<Override> changes;
  for (const std::string& text : overrides) {
    RZ_ASSIGN_OR_RETURN(Override change, ParseOverride(text, origin));
    std::erase_if(changes, [&](const Override& earlier) { return earlier.path == change.path; });
    changes.push_back(std::move(change));
  }
  for (const Override& change : changes) {
    if (change.path == "iterations") Drop(root, "epochs");
    if (change.path == "epochs") Drop(root, "iterations");
    const auto [section, name] =
        std::pair<std::string, std::string>(absl::StrSplit(change.path, absl::MaxSplits('.', 1)));
    if (name != "type" || change.value.kind != JsonValue::Kind::kString) continue;
    if (JsonValue* object = root.Find(section); object != nullptr && object->is_object()) {
      DropOtherTypes(*object, section, change.value.text);
    }
  }
  // Whole sections before their keys, so that the order of the options does not matter.
  std::ranges::stable_sort(
      changes, {}, [](const Override& change) { return std::ranges::count(change.path, '.'); });
  for (const Override& change : changes) RZ_RETURN_IF_ERROR(Write(change, root));
  return absl::OkStatus();
}

absl::StatusOr<JsonValue> ReadSource(absl::string_view text, const ConfigSource& source) {
  RZ_ASSIGN_OR_RETURN(JsonValue root, ReadHjson(text, source.file));
  if (!root.is_object()) return root;  // the file is to blame, not what is set in it
  RZ_RETURN_IF_ERROR(ApplyOverrides(source.overrides, Origin::kCommandLine, root));
  RZ_RETURN_IF_ERROR(ApplyOverrides(source.environment, Origin::kEnvironment, root));
  return root;
}

absl::Status FirstOf(absl::string_view line, size_t count) {
  const std::string more =
      count == 1 ? "" : absl::StrCat(" (and ", count - 1, " more: ringzero config lists them)");
  return InvalidArgument(line, more);
}

}  // namespace

Verdict CheckedConfig::verdict() const {
  using Kind = Finding::Kind;
  if (findings.First(Kind::kError) != nullptr) return Verdict::kReject;
  const bool no_batch =
      !config.keys.Has("train_batch_size") && !config.keys.Has("train_micro_batch_size_per_gpu");
  if (no_batch || findings.HasAuto()) return Verdict::kAcceptAuto;
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
    checked.findings.Add(Finding::Kind::kError, {}, "", status.message());
  };
  const absl::StatusOr<JsonValue> root = ReadSource(text, source);
  if (!root.ok()) {
    fail(root.status());
    return checked;
  }
  // The rules over one key, then the rules over several keys.
  checked.config.keys = ResolveKeys(*root, source.file, checked.findings);
  if (root->is_object()) ApplyRules(checked.config.keys, checked.findings);
  checked.findings.Sort();
  if (!root->is_object() || checked.findings.First(Finding::Kind::kError) != nullptr) {
    return checked;
  }
  for (const absl::Status& status : FillOurs(checked.config)) fail(status);
  return checked;
}

std::vector<std::string> FillForTraining(CheckedConfig& checked, ModelFrom model) {
  std::vector<std::string> refused;
  std::set<std::string> sections;
  for (const Finding& finding : checked.findings.all()) {
    if (!RefusedByTraining(finding.kind)) continue;
    refused.push_back(finding.line);
    sections.insert(finding.path.substr(0, finding.path.find('.')));
  }
  if (checked.findings.First(Finding::Kind::kError) != nullptr) return refused;
  for (const absl::Status& status : FillRun(checked.config, sections, model)) {
    refused.emplace_back(status.message());
  }
  return refused;
}

absl::StatusOr<Config> ParseConfig(absl::string_view text, const ConfigSource& source,
                                   ModelFrom model) {
  CheckedConfig checked = CheckConfig(text, source);
  const Findings& findings = checked.findings;
  if (const Finding* error = findings.First(Finding::Kind::kError); error != nullptr) {
    return FirstOf(error->line, static_cast<size_t>(findings.Count(Finding::Kind::kError)));
  }
  const std::vector<std::string> refused = FillForTraining(checked, model);
  if (!refused.empty()) return FirstOf(refused[0], refused.size());
  for (const Finding& finding : findings.all()) {
    if (!RefusedByTraining(finding.kind)) checked.config.notes.push_back(finding.line);
  }
  return std::move(checked.config);
}

TransportChoice ChoiceOf(CyclicConfig::Transport transport) {
  switch (transport) {
    case CyclicConfig::Transport::kShm: return TransportChoice::kShm;
    case CyclicConfig::Transport::kUcx: return TransportChoice::kUcx;
    case CyclicConfig::Transport::kNccl: return TransportChoice::kNccl;
    case CyclicConfig::Transport::kAuto:
    case CyclicConfig::Transport::kLocal: break;
  }
  return TransportChoice::kAuto;
}

PlanRequest PlanRequestOf(const Config& config) {
  const CyclicConfig& cyclic = config.cyclic;
  return {.workers = cyclic.workers,
          .zero_stage = config.zero_stage,
          .laps = static_cast<int>(config.batch.laps),
          .rule = cyclic.rule,
          .slack = cyclic.slack,
          .predict = cyclic.predict,
          .strict = cyclic.strict,
          .clipping = cyclic.clipping,
          .stages = cyclic.boundaries.empty() ? cyclic.stages
                                              : static_cast<int>(cyclic.boundaries.size()),
          .boundaries = cyclic.boundaries,
          .balance = cyclic.balance,
          .micro_batch = static_cast<int>(config.batch.micro_batch),
          .window = cyclic.window,
          .lends = !cyclic.checksums && cyclic.inject.action != InjectConfig::Action::kFlip,
          .pending = cyclic.pending,
          .stagger = cyclic.stagger,
          .retain = cyclic.retain,
          .exchange = cyclic.exchange,
          .precision = config.precision};
}

absl::StatusOr<RunLength> MeasureRun(const Config& config, int64_t train_samples,
                                     int64_t test_samples) {
  RunLength length{.notes = config.notes};
  const int64_t batch = config.batch.train_batch;
  length.iterations_per_epoch = train_samples / batch;
  if (length.iterations_per_epoch == 0) {
    return config.Error("train_batch_size", absl::StrCat(batch,
                                                         " samples per update, but the data "
                                                         "has only ",
                                                         train_samples));
  }
  const int64_t rest = train_samples % batch;
  if (rest != 0 && !config.data.drop_last) {
    ++length.iterations_per_epoch;
    length.epoch_samples = train_samples;
  }
  const int64_t iterations = config.iterations.has_value()
                                 ? *config.iterations
                                 : *config.epochs * length.iterations_per_epoch;
  if (iterations > std::numeric_limits<int>::max() - 1) {
    return config.Error(config.epochs.has_value() ? "epochs" : "iterations",
                        absl::StrCat(iterations, " iterations are too many"));
  }
  length.iterations = static_cast<int>(iterations);
  if (rest != 0 && iterations >= length.iterations_per_epoch) {
    length.notes.push_back(
        config.data.drop_last
            ? absl::StrCat("the last ", rest, " of ", train_samples,
                           " samples of each epoch's order are left out: batches have ", batch)
            : absl::StrCat("the last batch of each epoch has ", rest, " samples, the others ",
                           batch));
  }
  length.test_samples = test_samples;
  if (config.evaluation.samples != 0) {
    length.test_samples = std::min(length.test_samples, config.evaluation.samples);
  }
  const int64_t per_lap = int64_t{config.evaluation.batch_size} * config.cyclic.workers;
  const int every = config.evaluation.every.value_or(length.iterations);
  if (every == 0 || !config.cyclic.exchange) return length;
  if (length.test_samples == 0) {
    length.notes.push_back("the data has no held-out samples: no evaluation");
    return length;
  }
  length.evaluation.every = std::min(every, length.iterations);
  length.evaluation.laps = static_cast<int>((length.test_samples + per_lap - 1) / per_lap);
  return length;
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& file) {
  return ReadWholeFile(file, kMaxConfigBytes + 1);  // one more than the reader takes: it says so
}

absl::StatusOr<Config> LoadConfig(const ConfigSource& source) {
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(source.file));
  return ParseConfig(text, source);
}

}  // namespace ringzero
