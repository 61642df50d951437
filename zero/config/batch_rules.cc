// The batch triple of a configuration: "auto" and absent, workers given or not. And the updates
// that follow from it.
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "zero/config/batch.h"
#include "zero/config/keys.h"
#include "zero/config/rules.h"
#include "zero/config/values.h"

namespace ringzero {
namespace {

using Kind = Finding::Kind;

constexpr char kWorkers[] = "cyclic.workers";
constexpr char kTotal[] = "scheduler.params.total_num_steps";

int64_t Known(const ResolvedKeys& keys, absl::string_view path) {
  return keys.Has(path) && !keys.MustBeSet(path) ? keys.Integer(path) : 0;
}

// Is there any number of workers for which these agree? What is 0 is not known.
bool FitsSomeWorkers(const BatchTriple& given) {
  const int64_t micro = given.micro_batch == 0 ? 1 : given.micro_batch;
  const int64_t laps = given.laps == 0 ? 1 : given.laps;
  return given.train_batch == 0 || given.train_batch % (micro * laps) == 0;
}

// As many as a whole triple says, else the default or, where the batch does not divide by it, the
// largest number below that does. More than this engine has: no number.
void ChooseWorkers(ResolvedKeys& keys, const BatchTriple& given, Findings& findings) {
  const int64_t micro = given.micro_batch == 0 ? 1 : given.micro_batch;
  const int64_t laps = given.laps == 0 ? 1 : given.laps;
  const int64_t parts = given.train_batch / (micro * laps);
  const int64_t standard = keys.Integer(kWorkers);
  int64_t workers = standard;
  if (given.micro_batch != 0 && given.laps != 0) {
    workers = parts;
  } else {
    while (parts % workers != 0) --workers;
  }
  if (workers == standard) return;
  if (const double most = FindKey(kWorkers)->range.max; static_cast<double>(workers) > most) {
    findings.Add(Kind::kNotBuilt, keys.PlaceOf(kTrainBatchKey), kTrainBatchKey,
                 absl::StrCat(given.train_batch, " of ", kMicroBatchKey, " ", micro, " x ",
                              kLapsKey, " ", laps, " is for ", workers, " workers; more than ",
                              most, " are not built yet"));
    return keys.Erase(kWorkers);
  }
  keys.Set(kWorkers, JsonValue::Integer(workers), Origin::kDerived);
  findings.Add(Finding::Kind::kNote, {.text = keys.file()}, kWorkers,
               absl::StrCat(workers, ", derived from the batch sizes"));
}

void SetMissing(ResolvedKeys& keys, absl::string_view path, int64_t value, Findings& findings) {
  if (Known(keys, path) != 0) return;
  if (!keys.Has(path)) return keys.Set(path, JsonValue::Integer(value), Origin::kDerived);
  findings.Add(Kind::kAuto, keys.PlaceOf(path), path, absl::StrCat("\"auto\" is ", value));
  keys.Set(path, JsonValue::Integer(value), Origin::kAuto);
}

}  // namespace

void ResolveBatch(ResolvedKeys& keys, Findings& findings) {
  const BatchTriple given{.train_batch = Known(keys, kTrainBatchKey),
                          .micro_batch = Known(keys, kMicroBatchKey),
                          .laps = Known(keys, kLapsKey)};
  const Place place = keys.PlaceOf(given.train_batch != 0 ? kTrainBatchKey : kMicroBatchKey);
  if (!FitsSomeWorkers(given)) {
    const absl::Status why = CompleteBatch(given, 1).status();
    const std::string one = why.ok() ? "" : std::string(why.message());
    findings.Add(Kind::kError, place, "",
                 keys.Given(kWorkers)
                     ? std::string(CompleteBatch(given, keys.Integer(kWorkers)).status().message())
                     : absl::StrCat(one, "; no other number of workers makes it right"));
    return;
  }
  if (given.train_batch != 0 && !keys.Given(kWorkers) && keys.Has(kWorkers)) {
    ChooseWorkers(keys, given, findings);
  }
  const bool some = given.train_batch != 0 || given.micro_batch != 0;
  // DeepSpeed's K = 1 is for a K that nobody speaks of.
  const bool laps_open =
      keys.MustBeSet(kLapsKey) && (given.train_batch == 0 || given.micro_batch == 0);
  if (some && !laps_open && keys.Has(kWorkers)) {
    const absl::StatusOr<BatchTriple> batch = CompleteBatch(given, keys.Integer(kWorkers));
    if (batch.ok()) {
      SetMissing(keys, kTrainBatchKey, batch->train_batch, findings);
      SetMissing(keys, kMicroBatchKey, batch->micro_batch, findings);
      SetMissing(keys, kLapsKey, batch->laps, findings);
    } else {
      findings.Add(Kind::kError, place, "", batch.status().message());
    }
  }
  for (const char* path : {kTrainBatchKey, kMicroBatchKey, kLapsKey}) {
    if (!keys.MustBeSet(path)) continue;
    findings.Add(Kind::kMustSet, keys.PlaceOf(path), path,
                 "\"auto\" has no value here; a run needs two of the batch triple, for example "
                 "--set train_micro_batch_size_per_gpu=1 --set gradient_accumulation_steps=1");
  }
}

void ResolveLength(ResolvedKeys& keys, Findings& findings) {
  if (!keys.MustBeSet(kTotal)) return;
  const Place place = keys.PlaceOf(kTotal);
  const auto take = [&](int64_t updates, absl::string_view why) {
    findings.Add(Kind::kAuto, place, kTotal, absl::StrCat("\"auto\" is ", updates, why));
    keys.Set(kTotal, JsonValue::Integer(updates), Origin::kAuto);
  };
  if (keys.Has("iterations")) return take(keys.Integer("iterations"), ", as is iterations");
  if (!keys.Has("epochs")) {
    findings.Add(Kind::kMustSet, place, kTotal,
                 absl::StrCat("\"auto\" has no value here; a run needs --set ", kTotal,
                              "=... or set iterations or epochs"));
    return;
  }
  const int64_t batch = Known(keys, kTrainBatchKey);
  const int64_t samples = Known(keys, "data.samples");
  if (batch == 0 || samples < batch) {
    findings.Add(Kind::kAuto, place, kTotal,
                 "\"auto\" is as many updates as epochs make of the data");
    return keys.Set(kTotal, keys.Json(kTotal), Origin::kDerived);
  }
  take(keys.Integer("epochs") * (samples / batch),
       absl::StrCat(", as epochs x samples / ", kTrainBatchKey, " are"));
}

}  // namespace ringzero
