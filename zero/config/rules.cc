// Rules over more than one key. As far as they are DeepSpeed's, they are those of its
// DeepSpeedConfig.
#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status.h"
#include "zero/config/keys.h"
#include "zero/config/steps.h"

namespace ringzero {
namespace {

using Kind = Finding::Kind;

constexpr char kOffloadOptimizer[] = "zero_optimization.offload_optimizer";
constexpr char kOffloadParam[] = "zero_optimization.offload_param";
constexpr char kWorkers[] = "cyclic.workers";

// train / (divisor × workers), exactly.
absl::StatusOr<int64_t> Divide(int64_t train, int64_t divisor, const char* name, int64_t workers) {
  const int64_t parts = divisor * workers;
  if (train % parts != 0) {
    const std::string by =
        name == nullptr ? absl::StrCat(workers, " workers")
                        : absl::StrCat(name, " ", divisor, " x ", workers, " workers = ", parts);
    return absl::InvalidArgumentError(
        absl::StrCat(kTrainBatchKey, " ", train, " is not divisible by ", by));
  }
  return train / parts;
}

// micro-batch × K × N.
absl::StatusOr<int64_t> Multiply(const BatchTriple& batch, int64_t workers) {
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  if (batch.micro_batch > kLimit / workers / batch.laps) {
    return absl::InvalidArgumentError(absl::StrCat(kMicroBatchKey, " ", batch.micro_batch, " x ",
                                                   kLapsKey, " ", batch.laps, " x ", workers,
                                                   " workers is more than ", kLimit, " samples"));
  }
  return batch.micro_batch * batch.laps * workers;
}

class Rules {
 public:
  Rules(ResolvedKeys& keys, Findings& findings) : keys_(keys), findings_(findings) {}

  void Run() {
    ReplaceOldWords();
    FillDefaults(keys_);
    CheckPrecision();
    CheckZero();
    CheckOptimizer();
    CheckScheduler();
    CheckOthers();
    ResolveAutos();
    DropWhatIsOff();
    DropWhatIsWrong();
    ResolveBatch();
    ResolveLength();
    const int64_t micro = Known(kMicroBatchKey);
    if (micro == 0 || keys_.Has("evaluation.batch_size")) return;
    keys_.Set("evaluation.batch_size", JsonValue::Integer(micro), Origin::kDerived);
  }

 private:
  void Add(Kind kind, absl::string_view path, absl::string_view message) {
    findings_.Add(kind, keys_.PlaceOf(path), path, message);
  }
  void Error(absl::string_view path, absl::string_view message) {
    Add(Kind::kError, path, message);
  }
  bool IsFalse(absl::string_view path) const {
    return keys_.Has(path) && keys_.Json(path).kind == JsonValue::Kind::kBool && !keys_.Bool(path);
  }
  // The stage as DeepSpeed reads the file.
  int64_t Stage() const {
    constexpr char kStage[] = "zero_optimization.stage";
    const bool said = keys_.Given(kStage) || keys_.HasSection("zero_optimization");
    return said && keys_.Has(kStage) && !keys_.MustBeSet(kStage) ? keys_.Integer(kStage) : 0;
  }

  // `old`, a bool, stands for the section `now` with device cpu.
  void ReplaceOffload(const std::string& old, const std::string& now) {
    if (!keys_.Given(old) && !keys_.IsNull(old)) return;
    if (keys_.HasSection(now) || keys_.MustBeSet(now) || keys_.IsNull(now)) {
      return Error(old, absl::StrCat("an old word for ", now, ", which is given, too"));
    }
    if (keys_.IsNull(old)) return;
    const std::string says = absl::StrCat("an old word for ", now, " {\"device\": \"cpu\"}");
    if (!keys_.Bool(old)) {
      Add(Kind::kNote, old, says);
      return keys_.Erase(old);
    }
    JsonValue device = keys_.Json(old);
    device.kind = JsonValue::Kind::kString;
    device.text = "cpu";
    if (now == kOffloadParam && Stage() != 3) {
      Add(Kind::kNoEffect, old,
          absl::StrCat(says, ", which does nothing here: ", kOnlyStage3Shards));
      keys_.Silence(now);
    } else {
      SayOldWord(old, now + ".device", device, says);
    }
    keys_.SetSection(now, keys_.Json(old));
    keys_.Set(now + ".device", device, Origin::kDerived);
    keys_.Erase(old);
  }

  // One line: what `old` means, and whether `value` of `now` is built.
  void SayOldWord(absl::string_view old, absl::string_view now, const JsonValue& value,
                  absl::string_view says) {
    const KeySpec& key = *FindKey(now);
    if (IsBuilt(value, key)) return Add(Kind::kNote, old, says);
    Add(Kind::kNotBuilt, old,
        absl::StrCat(says, ", and ", WriteJson(value), " is not built yet, only ",
                     OneOf(key.built)));
  }

  void ReplaceOldWords() {
    ReplaceOffload("zero_optimization.cpu_offload", kOffloadOptimizer);
    ReplaceOffload("zero_optimization.cpu_offload_param", kOffloadParam);
    const std::string old = "zero_optimization.stage3_gather_fp16_weights_on_model_save";
    const std::string now = "zero_optimization.stage3_gather_16bit_weights_on_model_save";
    if (!keys_.Given(old)) return;
    if (keys_.Given(now) || keys_.MustBeSet(now)) {
      return Error(old, absl::StrCat("an old word for ", now, ", which is given, too"));
    }
    SayOldWord(old, now, keys_.Json(old), absl::StrCat("an old word for ", now));
    keys_.Set(now, keys_.Json(old), Origin::kDerived);
    keys_.Erase(old);
  }

  void CheckPrecision() {
    if (keys_.IsOn("fp16.enabled") && keys_.IsOn("bf16.enabled")) {
      Error("bf16.enabled", "fp16.enabled is true, too: only one of them");
    }
    const bool dynamic = keys_.IsOn("fp16.enabled") && keys_.Has("fp16.loss_scale") &&
                         !IsAuto(keys_.Json("fp16.loss_scale")) &&
                         keys_.Number("fp16.loss_scale") == 0;
    for (const char* path : {"fp16.loss_scale_window", "fp16.min_loss_scale"}) {
      if (dynamic && keys_.Given(path) && keys_.Integer(path) <= 0) {
        Error(path, "wanted more than 0 for a dynamic loss scale");
      }
    }
    if (dynamic) CheckDynamicScale();
    for (const char* path : {"fp16.fp16_master_weights_and_grads",
                             "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states"}) {
      if (keys_.IsOn(path) && Stage() == 0) Error(path, "needs zero_optimization.stage 1, 2 or 3");
    }
  }

  // DeepSpeed has two rules for a dynamic loss scale: one with ZeRO, one without.
  void CheckDynamicScale() {
    constexpr char kStage[] = "zero_optimization.stage", kHysteresis[] = "fp16.hysteresis";
    if (!keys_.Has(kStage) || keys_.MustBeSet(kStage)) return;
    if (keys_.Integer(kStage) > 0) {
      if (keys_.Given(kHysteresis) && keys_.Integer(kHysteresis) < 1) {
        Add(Kind::kNote, kHysteresis, "below 1 the loss scale is never lowered, as in DeepSpeed");
      }
      if (Stage() > 0) return;
      return Add(Kind::kNote, "fp16.enabled",
                 "without zero_optimization the loss scale follows stage 3's rule; DeepSpeed's "
                 "follows stage 0's, which \"zero_optimization\": {\"stage\": 0} has here, too");
    }
    for (const char* path : {kHysteresis, "fp16.consecutive_hysteresis"}) {
      if (!keys_.Given(path)) continue;
      Add(Kind::kNote, path,
          "does nothing in stage 0, as in DeepSpeed: each overflow lowers the loss scale");
    }
  }

  void CheckZero() {
    constexpr char kLegacy[] = "zero_optimization.legacy_stage1";
    if (keys_.IsOn(kLegacy) && Stage() > 0) {
      Error(kLegacy, "DeepSpeed's stage 1 of before 0.5.9 is gone; leave it out");
    } else if (keys_.IsOn(kLegacy)) {
      Add(Kind::kMinor, kLegacy, "does nothing here: stage 0 shards nothing");
    }
    constexpr char kNorm[] = "zero_optimization.compute_grad_norm";
    if (IsFalse(kNorm) && Stage() != 1 && Stage() != 2) {
      Error(kNorm, "false needs zero_optimization.stage 1 or 2");
    } else if (IsFalse(kNorm)) {
      Add(Kind::kNote, kNorm, "does nothing here: it is computed where metrics show it");
    }
    const std::string ratio = absl::StrCat(kOffloadOptimizer, ".ratio");
    if (keys_.Given(ratio) && keys_.Number(ratio) < 1 && Stage() != 3) {
      Error(ratio, "below 1 needs zero_optimization.stage 3");
    }
    for (const std::string section : {kOffloadOptimizer, kOffloadParam}) {
      const std::string device = section + ".device";
      const std::string path = section + ".nvme_path";
      if (keys_.Given(device) && keys_.String(device) == "nvme" && !keys_.Has(path)) {
        Add(Kind::kNote, device, absl::StrCat("nvme needs a folder for a run: ", path));
      }
    }
  }

  void CheckOptimizer() {
    if (keys_.HasSection("optimizer") && !keys_.Has("optimizer.type")) {
      if (findings_.First(Kind::kError) == nullptr) {
        Add(Kind::kNote, "optimizer", "without a type it is as good as absent");
      }
      return;
    }
    if (!keys_.Has("optimizer.type")) return;
    CheckAmsgrad();
    if (!BelongsTo(*FindKey("optimizer.params.torch_adam"), keys_.String("optimizer.type"))) return;
    // Two classes stand behind Adam; each knows some words that the other does not.
    const bool torch = keys_.IsOn("optimizer.params.torch_adam");
    const bool decoupled =
        keys_.String("optimizer.type") == "AdamW" || !IsFalse("optimizer.params.adam_w_mode");
    constexpr char kDecay[] = "optimizer.params.weight_decay";
    if (torch && decoupled && !keys_.Given(kDecay) && !keys_.MustBeSet(kDecay)) {
      keys_.Set(kDecay, JsonValue::Number(0.01), Origin::kDerived);
      Add(Kind::kNote, "optimizer.params.torch_adam", "so weight_decay is 0.01, torch's default");
    }
    constexpr absl::string_view kOwn = "bias_correction|set_grad_none";
    constexpr absl::string_view kTorch = "maximize|foreach|fused|capturable|differentiable";
    for (const absl::string_view name : absl::StrSplit(torch ? kOwn : kTorch, '|')) {
      const std::string path = absl::StrCat("optimizer.params.", name);
      if (!keys_.Given(path)) {
        keys_.Erase(path);
        continue;
      }
      Error(path, absl::StrCat("has no meaning with torch_adam ", torch ? "true" : "false"));
    }
  }

  // DeepSpeed's own Adam and Lamb refuse it; its Adagrad takes it and does without.
  void CheckAmsgrad() {
    constexpr char kAmsgrad[] = "optimizer.params.amsgrad";
    if (!keys_.IsOn(kAmsgrad) || keys_.IsOn("optimizer.params.torch_adam")) return;
    const std::string& type = keys_.String("optimizer.type");
    if (type == "Adagrad") return;
    Error(kAmsgrad, absl::StrCat("true is an error in DeepSpeed's own ", type,
                                 type == "Lamb" ? "" : ", it needs torch_adam true"));
  }

  void CheckScheduler() {
    if (!keys_.HasSection("scheduler")) return;
    if (!keys_.Has("scheduler.type")) {
      if (findings_.First(Kind::kError) == nullptr) {
        Add(Kind::kNote, "scheduler", "without a type it is as good as absent");
      }
      return;
    }
    constexpr char kCycles[] = "scheduler.params.cycle_momentum";
    if (keys_.IsOn(kCycles) && keys_.Has("optimizer.type") &&
        !keys_.Has("optimizer.params.betas")) {
      Add(Kind::kNote, kCycles, "no effect on an optimizer without betas, as in DeepSpeed");
    }
    constexpr char kHighest[] = "scheduler.params.warmup_max_lr";
    constexpr char kRate[] = "optimizer.params.lr";
    if (keys_.IsNull(kHighest) && keys_.Has(kHighest) && keys_.Has(kRate)) {
      keys_.Set(kHighest, keys_.Json(kRate),
                keys_.MustBeSet(kRate) ? Origin::kAuto : Origin::kDerived);
    }
    constexpr char kTotal[] = "scheduler.params.total_num_steps";
    constexpr char kWarmup[] = "scheduler.params.warmup_num_steps";
    if (keys_.Given(kTotal) && keys_.Has(kWarmup) && !keys_.MustBeSet(kWarmup) &&
        keys_.Integer(kTotal) < keys_.Integer(kWarmup)) {
      Add(Kind::kNote, kTotal,
          absl::StrCat("fewer than warmup_num_steps ", keys_.Integer(kWarmup),
                       ": the rate falls right after the warm-up"));
    }
  }

  void CheckOthers() {
    if (keys_.Given("tensor_parallel.dtype") && !IsAuto(keys_.Json("tensor_parallel.dtype"))) {
      Error("tensor_parallel.dtype", "DeepSpeed takes no JSON value for it but \"auto\"");
    }
    if (keys_.HasSection("weight_quantization") && !IsFalse("weight_quantization.enabled")) {
      Add(Kind::kOutside, "weight_quantization", "is outside of this engine, which only trains");
    }
    if (keys_.HasSection("aio")) {
      Add(Kind::kNote, "aio", "does nothing yet: nothing is offloaded to NVMe");
    }
    for (const char* path : {"autotuning.results_dir", "autotuning.exps_dir"}) {
      if (keys_.Given(path) && keys_.String(path).empty()) Error(path, "empty");
    }
    constexpr char kBalance[] = "expert_parallel.load_balance_coeff";
    if (keys_.Given(kBalance)) Error(kBalance, "DeepSpeed takes nothing but null for it");
  }

  void ResolveAutos() {
    for (const KeySpec& key : AllKeys()) {
      if (!keys_.MustBeSet(key.path) || !IsOfThisType(key)) continue;
      const absl::string_view source = key.automatic;
      if (source == "the batch triple") continue;  // ResolveBatch
      if (source == "the run's length") continue;  // ResolveLength
      if (key.type == KeyType::kSection) {
        Add(Kind::kAuto, key.path, "\"auto\" is as good as absent");
        keys_.Erase(key.path);
      } else if (absl::StartsWith(source, "=")) {
        const absl::string_view from = source.substr(1);
        if (!keys_.Has(from) || keys_.MustBeSet(from)) {
          MustSet(key.path, absl::StrCat("or set ", from));
        } else {
          Take(key, WriteJson(keys_.Json(from)), absl::StrCat(", as is ", from));
        }
      } else if (IsOff(key) && key.default_json.empty()) {
        Add(Kind::kAuto, key.path, "\"auto\" needs no value: the section is off");
        keys_.Erase(key.path);
      } else if (IsOff(key)) {
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
    Add(Kind::kMustSet, path,
        absl::StrCat("\"auto\" has no value here; a run needs --set ", path, "=...",
                     otherwise.empty() ? "" : " ", otherwise));
  }

  // Is it in a section whose `enabled` is false, so that any value will do?
  bool IsOff(const KeySpec& key) const {
    const std::string on = absl::StrCat(key.parent(), ".enabled");
    return on != key.path && IsFalse(on);
  }

  void Take(const KeySpec& key, absl::string_view json, absl::string_view why) {
    absl::StatusOr<JsonValue> value = ReadJson(json, std::string(key.path));
    RZ_CHECK(value.ok(), std::string(value.status().message()));
    const JsonValue& given = keys_.Json(key.path);
    value->line = given.line;
    value->override_text = given.override_text;
    // What another key gives may be anything: that of an optimizer that is not ours is not checked.
    const absl::StatusOr<JsonValue> converted = ConvertValue(*value, key);
    if (!converted.ok()) return MustSet(key.path, absl::StrCat("(", WriteJson(*value), why, ")"));
    Add(Kind::kAuto, key.path, absl::StrCat("\"auto\" is ", WriteJson(*value), why));
    keys_.Set(key.path, *converted, Origin::kAuto);
  }

  // What a section asks for matters only where the section itself is on.
  void DropWhatIsOff() {
    std::erase_if(findings_.all(), [&](const Finding& finding) {
      if (finding.kind != Kind::kNotBuilt && finding.kind != Kind::kOutside) return false;
      const size_t dot = finding.path.rfind('.');
      if (dot == std::string::npos) return false;
      const std::string on = finding.path.substr(0, dot) + ".enabled";
      return on != finding.path && IsFalse(on);
    });
  }

  // A value that is an error need not be built, too.
  void DropWhatIsWrong() {
    std::set<std::string> wrong;
    for (const Finding& finding : findings_.all()) {
      if (finding.kind == Kind::kError) wrong.insert(finding.path);
    }
    std::erase_if(findings_.all(), [&](const Finding& finding) {
      return finding.kind == Kind::kNotBuilt && wrong.contains(finding.path);
    });
  }

  // 0: not known.
  int64_t Known(absl::string_view path) const {
    return keys_.Has(path) && !keys_.MustBeSet(path) ? keys_.Integer(path) : 0;
  }

  // Fills in what is missing of the batch triple. It is an error where no number of workers (or not
  // the given one) makes it right.
  void ResolveBatch() {
    const BatchTriple given{.train_batch = Known(kTrainBatchKey),
                            .micro_batch = Known(kMicroBatchKey),
                            .laps = Known(kLapsKey)};
    const Place place = keys_.PlaceOf(given.train_batch != 0 ? kTrainBatchKey : kMicroBatchKey);
    const int64_t parts =
        std::max<int64_t>(given.micro_batch, 1) * std::max<int64_t>(given.laps, 1);
    if (given.train_batch % parts != 0) {
      const bool said = keys_.Given(kWorkers);
      const absl::Status why = CompleteBatch(given, said ? keys_.Integer(kWorkers) : 1).status();
      const absl::string_view more = said ? "" : "; no other number of workers makes it right";
      findings_.Add(Kind::kError, place, "", absl::StrCat(why.message(), more));
      return;
    }
    if (given.train_batch != 0 && !keys_.Given(kWorkers) && keys_.Has(kWorkers)) {
      ChooseWorkers(given, given.train_batch / parts);
    }
    // DeepSpeed's K = 1 is for a K that is not in the file.
    const bool one = given.train_batch == 0 || given.micro_batch == 0;
    const bool none = given.train_batch == 0 && given.micro_batch == 0;
    if (!none && !(one && keys_.MustBeSet(kLapsKey)) && keys_.Has(kWorkers)) {
      const absl::StatusOr<BatchTriple> batch = CompleteBatch(given, keys_.Integer(kWorkers));
      if (batch.ok()) {
        SetMissing(kTrainBatchKey, batch->train_batch);
        SetMissing(kMicroBatchKey, batch->micro_batch);
        SetMissing(kLapsKey, batch->laps);
      } else {
        findings_.Add(Kind::kError, place, "", batch.status().message());
      }
    }
    for (const char* path : {kTrainBatchKey, kMicroBatchKey, kLapsKey}) {
      if (!keys_.MustBeSet(path)) continue;
      Add(Kind::kMustSet, path,
          "\"auto\" has no value here; a run needs two of the batch triple, for example "
          "--set train_micro_batch_size_per_gpu=1 --set gradient_accumulation_steps=1");
    }
  }

  // As many as a whole triple says: `parts`. Else the default or, where `parts` does not divide by
  // it, the largest number below that does. More than this engine has: no number.
  void ChooseWorkers(const BatchTriple& given, int64_t parts) {
    const int64_t standard = keys_.Integer(kWorkers);
    int64_t workers = standard;
    if (given.micro_batch != 0 && given.laps != 0) workers = parts;
    while (parts % workers != 0) --workers;
    if (workers == standard) return;
    if (const double most = FindKey(kWorkers)->range.max; static_cast<double>(workers) > most) {
      Add(Kind::kNotBuilt, kTrainBatchKey,
          absl::StrCat(given.train_batch, " of ", kMicroBatchKey, " ", given.micro_batch, " x ",
                       kLapsKey, " ", given.laps, " is for ", workers, " workers; more than ", most,
                       " are not built yet"));
      return keys_.Erase(kWorkers);
    }
    keys_.Set(kWorkers, JsonValue::Integer(workers), Origin::kDerived);
    findings_.Add(Kind::kNote, {.text = keys_.file()}, kWorkers,
                  absl::StrCat(workers, ", derived from the batch sizes"));
  }

  void SetMissing(absl::string_view path, int64_t value) {
    if (Known(path) != 0) return;
    const bool is_auto = keys_.Has(path);
    if (is_auto) Add(Kind::kAuto, path, absl::StrCat("\"auto\" is ", value));
    keys_.Set(path, JsonValue::Integer(value), is_auto ? Origin::kAuto : Origin::kDerived);
  }

  // The updates of a schedule that is to end with the run ("auto"), from iterations or from epochs.
  // Where epochs are given and only the data says how long they are, it stays "auto", and the run
  // sets it.
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
      Add(Kind::kAuto, kTotal, "\"auto\" is as many updates as epochs make of the data");
      return keys_.Set(kTotal, keys_.Json(kTotal), Origin::kDerived);
    }
    if (updates == 0) {
      updates = keys_.Integer("epochs") * (samples / batch);
      why = absl::StrCat(", as epochs x samples / ", kTrainBatchKey, " are");
    }
    Add(Kind::kAuto, kTotal, absl::StrCat("\"auto\" is ", updates, why));
    keys_.Set(kTotal, JsonValue::Integer(updates), Origin::kAuto);
  }

  ResolvedKeys& keys_;
  Findings& findings_;
};

}  // namespace

void ApplyRules(ResolvedKeys& keys, Findings& findings) { Rules(keys, findings).Run(); }

absl::StatusOr<BatchTriple> CompleteBatch(BatchTriple given, int64_t workers) {
  BatchTriple batch = given;
  if (batch.train_batch == 0 && batch.micro_batch == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("give ", kTrainBatchKey, " or ", kMicroBatchKey, ": no batch size is there"));
  }
  if (batch.train_batch != 0 && batch.micro_batch != 0 && batch.laps != 0) {
    RZ_ASSIGN_OR_RETURN(const int64_t product, Multiply(batch, workers));
    if (batch.train_batch != product) {
      return absl::InvalidArgumentError(
          absl::StrCat(kTrainBatchKey, " ", batch.train_batch, " is not ", kMicroBatchKey, " ",
                       batch.micro_batch, " x ", kLapsKey, " ", batch.laps, " x ", workers,
                       " workers = ", product));
    }
    return batch;
  }
  if (batch.train_batch == 0) {
    if (batch.laps == 0) batch.laps = 1;
    RZ_ASSIGN_OR_RETURN(batch.train_batch, Multiply(batch, workers));
  } else if (batch.micro_batch != 0) {
    RZ_ASSIGN_OR_RETURN(batch.laps,
                        Divide(batch.train_batch, batch.micro_batch, kMicroBatchKey, workers));
  } else {
    const char* name = batch.laps == 0 ? nullptr : kLapsKey;
    if (batch.laps == 0) batch.laps = 1;
    RZ_ASSIGN_OR_RETURN(batch.micro_batch, Divide(batch.train_batch, batch.laps, name, workers));
  }
  return batch;
}

}  // namespace ringzero
