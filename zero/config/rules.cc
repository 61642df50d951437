// Rules over more than one key. Rules that DeepSpeed has as well are those of its class
// DeepSpeedConfig.
#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status.h"
#include "zero/config/config.h"
#include "zero/config/keys.h"
#include "zero/config/resolve.h"

namespace ringzero {
namespace {

using Found = Finding::Kind;

constexpr char kZeroStage[] = "zero_optimization.stage";
constexpr char kWorkers[] = "cyclic.workers";

class Rules {
 public:
  Rules(ResolvedKeys& keys, Findings& findings) : keys_(keys), findings_(findings) {}

  void Run() {
    FillDefaults(keys_);
    CheckPrecision();
    CheckZero();
    CheckOptimizer();
    CheckScheduler();
    ResolveAutos();
    DropWhatDoesNotMatter();
    ResolveBatch();
    ResolveLength();
    const int64_t micro = Known(kMicroBatchKey);
    if (micro == 0 || keys_.Has("evaluation.batch_size")) return;
    keys_.Set("evaluation.batch_size", JsonValue::Integer(micro), Origin::kDerived);
  }

 private:
  template <typename... Parts>
  void Add(Found kind, absl::string_view path, const Parts&... message) {
    findings_.Add(kind, keys_.PlaceOf(path), path, absl::StrCat(message...));
  }
  template <typename... Parts>
  void ErrorIf(bool wrong, absl::string_view path, const Parts&... message) {
    if (wrong) Add(Found::kError, path, message...);
  }
  template <typename... Parts>
  void NoteIf(bool so, absl::string_view path, const Parts&... message) {
    if (so) Add(Found::kNote, path, message...);
  }
  bool IsFalse(absl::string_view path) const {
    return keys_.Has(path) && keys_.Json(path).kind == JsonValue::Kind::kBool && !keys_.Bool(path);
  }
  // Is it given, and a number below `limit`?
  bool IsBelow(absl::string_view path, double limit) const {
    return keys_.Given(path) && keys_.Json(path).is_number() && keys_.Number(path) < limit;
  }
  // The stage as DeepSpeed reads the file.
  int64_t Stage() const {
    return keys_.Given(kZeroStage) || keys_.HasSection("zero_optimization") ? Known(kZeroStage) : 0;
  }

  void CheckPrecision() {
    constexpr char kHysteresis[] = "fp16.hysteresis";
    const bool fp16 = keys_.IsOn("fp16.enabled");
    ErrorIf(fp16 && keys_.IsOn("bf16.enabled"), "bf16.enabled",
            "fp16.enabled is true, too: only one of them");
    for (const char* path : {"fp16.fp16_master_weights_and_grads",
                             "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states"}) {
      ErrorIf(keys_.IsOn(path) && Stage() == 0, path, "needs zero_optimization.stage 1, 2 or 3");
    }
    if (keys_.HasSection("weight_quantization") && !IsFalse("weight_quantization.enabled")) {
      Add(Found::kOutside, "weight_quantization", "is outside of this engine, which only trains");
    }
    const bool dynamic = fp16 && keys_.Has("fp16.loss_scale") &&
                         keys_.Json("fp16.loss_scale").is_number() &&
                         keys_.Number("fp16.loss_scale") == 0;
    if (!dynamic) return;
    for (const char* path : {"fp16.loss_scale_window", "fp16.min_loss_scale"}) {
      ErrorIf(IsBelow(path, 1), path, "wanted more than 0 for a dynamic loss scale");
    }
    // DeepSpeed has two rules for a dynamic loss scale: one with ZeRO, one without.
    if (!keys_.Has(kZeroStage) || keys_.MustBeSet(kZeroStage)) return;
    const bool sharded = keys_.Integer(kZeroStage) > 0;
    NoteIf(sharded && IsBelow(kHysteresis, 1), kHysteresis,
           "below 1 the loss scale is never lowered, as in DeepSpeed");
    NoteIf(sharded && Stage() == 0, "fp16.enabled",
           "without zero_optimization the loss scale follows stage 3's rule; DeepSpeed's "
           "follows stage 0's, which \"zero_optimization\": {\"stage\": 0} has here, too");
    for (const char* path : {kHysteresis, "fp16.consecutive_hysteresis"}) {
      NoteIf(!sharded && keys_.Given(path), path,
             "does nothing in stage 0, as in DeepSpeed: each overflow lowers the loss scale");
    }
  }

  void CheckZero() {
    constexpr char kLegacy[] = "zero_optimization.legacy_stage1";
    constexpr char kNorm[] = "zero_optimization.compute_grad_norm";
    constexpr char kRatio[] = "zero_optimization.offload_optimizer.ratio";
    constexpr char kDevice[] = "zero_optimization.offload_optimizer.device";
    ErrorIf(keys_.IsOn(kLegacy) && Stage() > 0, kLegacy,
            "DeepSpeed's stage 1 of before 0.5.9 is gone; leave it out");
    ErrorIf(IsFalse(kNorm) && Stage() != 1 && Stage() != 2, kNorm,
            "false needs zero_optimization.stage 1 or 2");
    ErrorIf(IsBelow(kRatio, 1) && Stage() != 3, kRatio, "below 1 needs zero_optimization.stage 3");
    const bool states = CheckDevice(kDevice, kNvmePathKey,
                                    "\"cpu\" changes nothing: optimizer states are in host memory");
    const bool parameters =
        Stage() == 3 && CheckDevice("zero_optimization.offload_param.device", kParameterPathKey,
                                    "\"cpu\" changes nothing: parameters are in host memory");
    if (!states || !parameters || !keys_.Has(kNvmePathKey) || !keys_.Has(kParameterPathKey)) return;
    const std::string& path = keys_.String(kNvmePathKey);
    ErrorIf(keys_.String(kParameterPathKey) != path, kParameterPathKey,
            absl::StrCat("wanted \"", path, "\", as for optimizer states, found \"",
                         keys_.String(kParameterPathKey), "\""));
  }

  // Whether it is on NVMe.
  bool CheckDevice(const char* key, const char* path, const char* of_cpu) {
    const std::string device = keys_.Has(key) ? keys_.String(key) : "none";
    ErrorIf(device == "nvme" && !keys_.Has(path), path, "missing: where on NVMe");
    NoteIf(device == "cpu", key, of_cpu);
    return device == "nvme";
  }

  // Has it a section and a type? Without a type it does nothing.
  bool HasType(absl::string_view section) {
    const bool typed = keys_.Has(Join(section, "type"));
    NoteIf(!typed && keys_.HasSection(section) && findings_.First(Found::kError) == nullptr,
           section, "without a type it is as good as absent");
    return typed;
  }

  void CheckOptimizer() {
    constexpr char kDecay[] = "optimizer.params.weight_decay";
    constexpr char kAmsgrad[] = "optimizer.params.amsgrad";
    if (!HasType("optimizer")) return;
    const std::string& type = keys_.String("optimizer.type");
    const bool torch = keys_.IsOn("optimizer.params.torch_adam");
    // DeepSpeed's own Adam and Lamb refuse amsgrad; its Adagrad takes amsgrad and does without.
    ErrorIf(keys_.IsOn(kAmsgrad) && !torch && type != "Adagrad", kAmsgrad,
            "true is an error in DeepSpeed's own ", type,
            type == "Lamb" ? "" : ", it needs torch_adam true");
    if (!BelongsTo(*FindKey("optimizer.params.torch_adam"), type)) return;
    // Two classes stand behind Adam; each knows some keys that the other class does not.
    const bool decoupled = type == "AdamW" || !IsFalse("optimizer.params.adam_w_mode");
    if (torch && decoupled && !keys_.Given(kDecay) && !keys_.MustBeSet(kDecay)) {
      keys_.Set(kDecay, JsonValue::Number(0.01), Origin::kDerived);
      Add(Found::kNote, "optimizer.params.torch_adam", "so weight_decay is 0.01, torch's default");
    }
    constexpr absl::string_view kOwn = "bias_correction|set_grad_none";
    constexpr absl::string_view kTorch = "maximize|foreach|fused|capturable|differentiable";
    for (const absl::string_view name : absl::StrSplit(torch ? kOwn : kTorch, '|')) {
      const std::string path = absl::StrCat("optimizer.params.", name);
      ErrorIf(keys_.Given(path), path, "has no meaning with torch_adam ", torch ? "true" : "false");
      keys_.Erase(path);
    }
  }

  void CheckScheduler() {
    constexpr char kCycles[] = "scheduler.params.cycle_momentum";
    constexpr char kHighest[] = "scheduler.params.warmup_max_lr";
    constexpr char kRate[] = "optimizer.params.lr";
    constexpr char kTotal[] = "scheduler.params.total_num_steps";
    constexpr char kWarmup[] = "scheduler.params.warmup_num_steps";
    if (!HasType("scheduler")) return;
    NoteIf(
        keys_.IsOn(kCycles) && keys_.Has("optimizer.type") && !keys_.Has("optimizer.params.betas"),
        kCycles, "no effect on an optimizer without betas, as in DeepSpeed");
    if (keys_.IsNull(kHighest) && keys_.Has(kHighest) && keys_.Has(kRate)) {
      keys_.Set(kHighest, keys_.Json(kRate),
                keys_.MustBeSet(kRate) ? Origin::kAuto : Origin::kDerived);
    }
    NoteIf(keys_.Given(kTotal) && Known(kTotal) < Known(kWarmup), kTotal,
           "fewer than warmup_num_steps ", Known(kWarmup),
           ": the rate falls right after the warm-up");
  }

  void ResolveAutos() {
    for (const KeySpec& key : AllKeys()) {
      if (!keys_.MustBeSet(key.path) || !IsOfThisType(key)) continue;
      const absl::string_view source = key.automatic;
      if (source == "batch" || source == "length") continue;  // ResolveBatch, ResolveLength
      if (key.type == KeyType::kSection) {
        Add(Found::kAuto, key.path, "\"auto\" is as good as absent");
        keys_.Erase(key.path);
      } else if (absl::StartsWith(source, "=")) {
        const absl::string_view from = source.substr(1);
        if (!keys_.Has(from) || keys_.MustBeSet(from)) {
          MustSet(key.path, absl::StrCat("or set ", from));
        } else {
          Take(key, WriteJson(keys_.Json(from)), absl::StrCat(", as is ", from));
        }
      } else if (IsOff(key.path) && key.default_json.empty()) {
        Add(Found::kAuto, key.path, "\"auto\" needs no value: the section is off");
        keys_.Erase(key.path);
      } else if (IsOff(key.path)) {
        Take(key, key.default_json, ", its default: the section is off");
      } else if (source.empty()) {
        MustSet(key.path, "");
      } else {
        Take(key, source, "");
      }
    }
  }

  bool IsOfThisType(const KeySpec& key) const {
    const std::string type = absl::StrCat(key.section(), ".type");
    return key.types.empty() || (keys_.Has(type) && BelongsTo(key, keys_.String(type)));
  }

  void MustSet(absl::string_view path, absl::string_view otherwise) {
    Add(Found::kMustSet, path, "\"auto\" has no value here; a run needs --set ", path, "=...",
        otherwise.empty() ? "" : " ", otherwise);
  }

  // Is it in a section whose `enabled` is false, so that any value will do?
  bool IsOff(absl::string_view path) const {
    const size_t dot = path.rfind('.');
    if (dot == absl::string_view::npos) return false;
    const std::string on = absl::StrCat(path.substr(0, dot), ".enabled");
    return path != on && IsFalse(on);
  }

  void Take(const KeySpec& key, absl::string_view json, absl::string_view why) {
    absl::StatusOr<JsonValue> value = ReadJson(json, std::string(key.path));
    RZ_CHECK(value.ok(), std::string(value.status().message()));
    value->place = keys_.Json(key.path).place;
    // A value from another key may be anything: values of an optimizer not ours are not checked.
    const absl::StatusOr<JsonValue> converted = ConvertValue(*value, key);
    if (!converted.ok()) return MustSet(key.path, absl::StrCat("(", WriteJson(*value), why, ")"));
    Add(Found::kAuto, key.path, "\"auto\" is ", WriteJson(*value), why);
    keys_.Set(key.path, *converted, Origin::kAuto);
  }

  // What a section asks for matters only if the section is on. That a value is not built does not
  // matter if the value is an error.
  void DropWhatDoesNotMatter() {
    std::set<std::string> wrong;
    for (const Finding& finding : findings_.all()) {
      if (finding.kind == Found::kError) wrong.insert(finding.path);
    }
    std::erase_if(findings_.all(), [&](const Finding& finding) {
      const bool asks = finding.kind == Found::kNotBuilt || finding.kind == Found::kOutside;
      return asks && (IsOff(finding.path) || wrong.contains(finding.path));
    });
  }

  // 0: not known.
  int64_t Known(absl::string_view path) const {
    return keys_.Has(path) && !keys_.MustBeSet(path) ? keys_.Integer(path) : 0;
  }

  // Fills in what is missing of the batch triple. The triple is an error if no number of workers
  // makes it right, or if the given number of workers does not.
  void ResolveBatch() {
    const BatchTriple given{.train_batch = Known(kTrainBatchKey),
                            .micro_batch = Known(kMicroBatchKey),
                            .laps = Known(kLapsKey)};
    const int64_t parts =
        std::max<int64_t>(given.micro_batch, 1) * std::max<int64_t>(given.laps, 1);
    const bool said = keys_.Given(kWorkers), divides = given.train_batch % parts == 0;
    if (divides && !said && given.train_batch != 0 && keys_.Has(kWorkers)) {
      ChooseWorkers(given, given.train_batch / parts);
    }
    // DeepSpeed's K = 1 is for a K that is not in the file.
    const bool one = given.train_batch == 0 || given.micro_batch == 0;
    const bool none = given.train_batch == 0 && given.micro_batch == 0;
    if (!none && !(divides && one && keys_.MustBeSet(kLapsKey)) && keys_.Has(kWorkers)) {
      const absl::StatusOr<BatchTriple> batch =
          CompleteBatch(given, divides || said ? keys_.Integer(kWorkers) : 1);
      if (batch.ok()) {
        SetMissing(kTrainBatchKey, batch->train_batch);
        SetMissing(kMicroBatchKey, batch->micro_batch);
        SetMissing(kLapsKey, batch->laps);
      } else {
        const char* key = given.train_batch != 0 ? kTrainBatchKey : kMicroBatchKey;
        const absl::string_view more =
            divides || said ? "" : "; no other number of workers makes it right";
        findings_.Add(Found::kError, keys_.PlaceOf(key), "",
                      absl::StrCat(batch.status().message(), more));
        return;
      }
    }
    for (const char* path : {kTrainBatchKey, kMicroBatchKey, kLapsKey}) {
      if (keys_.MustBeSet(path)) MustSet(path, "and another of the batch triple (sizes and K)");
    }
  }

  // A whole triple says how many workers: `parts`. Otherwise the default or, if the default does
  // not divide `parts`, the largest smaller number that does. More than this engine has: no number.
  void ChooseWorkers(const BatchTriple& given, int64_t parts) {
    const int64_t standard = keys_.Integer(kWorkers);
    int64_t workers = standard;
    if (given.micro_batch != 0 && given.laps != 0) workers = parts;
    while (parts % workers != 0) --workers;
    if (workers == standard) return;
    if (const double most = FindKey(kWorkers)->range.max; static_cast<double>(workers) > most) {
      Add(Found::kNotBuilt, kTrainBatchKey, given.train_batch, " is for ", workers,
          " workers; more than ", most, " are not built yet");
      return keys_.Erase(kWorkers);
    }
    keys_.Set(kWorkers, JsonValue::Integer(workers), Origin::kDerived);
    findings_.Add(Found::kNote, {.text = keys_.file()}, kWorkers,
                  absl::StrCat(workers, ", derived from the batch sizes"));
  }

  void SetMissing(absl::string_view path, int64_t value) {
    if (Known(path) != 0) return;
    const bool is_auto = keys_.Has(path);
    if (is_auto) Add(Found::kAuto, path, "\"auto\" is ", value);
    keys_.Set(path, JsonValue::Integer(value), is_auto ? Origin::kAuto : Origin::kDerived);
  }

  // The updates of a schedule that is to end with the run ("auto"), from iterations or from epochs.
  // If epochs are given and only the data says how long an epoch is, the key stays "auto", and the
  // run sets it.
  void ResolveLength() {
    constexpr char kTotal[] = "scheduler.params.total_num_steps";
    if (!keys_.MustBeSet(kTotal)) return;
    if (!keys_.Has("iterations") && !keys_.Has("epochs")) {
      return MustSet(kTotal, "or set iterations or epochs");
    }
    const int64_t batch = Known(kTrainBatchKey), samples = Known("data.samples");
    int64_t updates = Known("iterations");
    std::string why = ", as is iterations";
    if (updates == 0 && (batch == 0 || samples < batch)) {
      Add(Found::kAuto, kTotal, "\"auto\" is as many updates as epochs make of the data");
      return keys_.Set(kTotal, keys_.Json(kTotal), Origin::kDerived);
    }
    if (updates == 0) {
      updates = keys_.Integer("epochs") * (samples / batch);
      why = absl::StrCat(", as epochs x samples / ", kTrainBatchKey, " are");
    }
    Add(Found::kAuto, kTotal, "\"auto\" is ", updates, why);
    keys_.Set(kTotal, JsonValue::Integer(updates), Origin::kAuto);
  }

  ResolvedKeys& keys_;
  Findings& findings_;
};

}  // namespace

void ApplyRules(ResolvedKeys& keys, Findings& findings) { Rules(keys, findings).Run(); }

absl::StatusOr<BatchTriple> CompleteBatch(BatchTriple given, int64_t workers) {
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  const auto& [train, given_micro, given_laps] = given;
  if (train == 0 && given_micro == 0) {
    return InvalidArgument("give ", kTrainBatchKey, " or ", kMicroBatchKey,
                           ": no batch size is there");
  }
  const int64_t micro = std::max<int64_t>(given_micro, 1), laps = std::max<int64_t>(given_laps, 1);
  const std::string product = absl::StrCat(
      given_micro == 0 ? "" : absl::StrCat(kMicroBatchKey, " ", micro, " x "),
      given_laps == 0 ? "" : absl::StrCat(kLapsKey, " ", laps, " x "), workers, " workers");
  if (micro > kLimit / workers / laps) {
    return InvalidArgument(product, " is more than ", kLimit, " samples");
  }
  const int64_t parts = micro * laps * workers;
  const bool whole = given_micro != 0 && given_laps != 0;
  if (train % parts != 0 || (whole && train > parts)) {
    return InvalidArgument(kTrainBatchKey, " ", train, " is not ", whole ? "" : "divisible by ",
                           product, " = ", parts);
  }
  if (train == 0) return BatchTriple{parts, micro, laps};
  if (given_micro == 0) return BatchTriple{train, train / parts, laps};
  return BatchTriple{train, micro, laps * (train / parts)};
}

}  // namespace ringzero
