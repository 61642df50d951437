// Sums and differences; reports travel as CBOR.
#include "integrations/cli/worker_report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace ringzero {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemoryBytes, masters, versions, moments, sums, taken, gradients)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EvaluationResult, iteration, loss, accuracy)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Usage, seconds, parameters, gradient_sums, update, other,
                                   on_core, disk_faults, stolen, cpu, minor_faults)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Steps, count, median, min, max, all)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ActivationPoint, seconds, bytes, peak)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerReport, worker, place, interrupted, not_written, steps,
                                   pss_peak_mib, training_bytes, other_bytes, skipped_updates,
                                   loss_scale, memory, activations, costs, forecast, parameters,
                                   iterations, dump_trouble, lr, gradient_norm, pss_mib, mfu,
                                   first_loss, last_loss, evaluations, parameters_sha256)

std::string ToBytes(const WorkerReport& report) {
  const std::vector<uint8_t> bytes = nlohmann::json::to_cbor(report);
  return {bytes.begin(), bytes.end()};
}

absl::StatusOr<WorkerReport> FromBytes(const std::string& bytes) {
  const auto json = nlohmann::json::from_cbor(bytes, /*strict=*/true, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InternalError("a worker's report cannot be read");
  return json.get<WorkerReport>();
}

namespace {

enum class Unit { kSeconds, kBytes, kHeld };

struct Total {
  const char* name;
  Unit unit;
};

// The first places of RingTotals. DeepSpeed's names where it has one.
constexpr std::array<Total, RingTotals::kPss + 1> kTotals = {{
    {"Train/Samples/elapsed_time_ms_forward", Unit::kSeconds},
    {"Train/Samples/elapsed_time_ms_backward", Unit::kSeconds},
    {"Ring/Samples/wait_ms_parameters", Unit::kSeconds},
    {"Ring/Samples/wait_ms_gradient_sums", Unit::kSeconds},
    {"Ring/Samples/wait_ms_update", Unit::kSeconds},
    {"Ring/Samples/wait_ms_other", Unit::kSeconds},
    {"Ring/Samples/bytes_forward", Unit::kBytes},
    {"Ring/Samples/bytes_backward", Unit::kBytes},
    {"Ring/Samples/bytes_inject", Unit::kBytes},
    {"Ring/Samples/bytes_sum", Unit::kBytes},
    {"Ring/Samples/bytes_retire", Unit::kBytes},
    {"Ring/Samples/bytes_finished", Unit::kBytes},
    {"Ring/Samples/bytes_other", Unit::kBytes},
    {"Ring/Samples/memory_masters", Unit::kHeld},
    {"Ring/Samples/memory_versions", Unit::kHeld},
    {"Ring/Samples/memory_moments", Unit::kHeld},
    {"Ring/Samples/memory_sums", Unit::kHeld},
    {"Ring/Samples/memory_taken", Unit::kHeld},
    {"Ring/Samples/memory_gradients", Unit::kHeld},
    {"Ring/Samples/off_core_ms", Unit::kSeconds},
    {"Ring/Samples/pss_mib", Unit::kHeld},
}};

std::vector<double> TotalsNow(const EngineStats& stats) {
  std::vector<double> now = {stats.forward_seconds,         stats.backward_seconds,
                             stats.wait_parameters_seconds, stats.wait_gradient_sums_seconds,
                             stats.wait_update_seconds,     stats.wait_other_seconds};
  double all = 0;
  const std::vector<uint64_t>& bytes = stats.transport.bytes_sent;
  for (const uint64_t each : bytes) all += static_cast<double>(each);
  for (const Channel channel : kTrainingChannels) {
    const size_t kind = static_cast<size_t>(channel);
    now.push_back(kind < bytes.size() ? static_cast<double>(bytes[kind]) : 0);
    all -= now.back();
  }
  now.push_back(all);
  for (const MemoryCategory& category : MemoryCategories()) {
    now.push_back(static_cast<double>(stats.memory.*category.bytes));
  }
  RZ_CHECK(now.size() == RingTotals::kOffCore, "a category of memory without a name in kTotals");
  return now;
}

}  // namespace

std::vector<double> RingTotals::Take(const LapTask& lap, const EngineStats& stats) {
  std::vector<double> now = TotalsNow(stats);
  std::vector<double> taken(kCount);
  const bool trains = lap.kind == LapTask::Kind::kTrain;
  const bool last_lap = lap.lap.value + 1 == laps_;
  for (size_t i = 0; i < now.size() && trains; ++i) {
    const bool held = kTotals[i].unit == Unit::kHeld;
    taken[i] = !held ? now[i] - last_[i] : last_lap ? now[i] : 0;
  }
  last_ = std::move(now);
  return taken;
}

using PaceValues = std::array<double, RingTotals::kCount - RingTotals::kPace>;

void RingTotals::SetPace(const Pace& pace, std::span<double> values) {
  std::ranges::copy(std::bit_cast<PaceValues>(pace), values.begin() + kPace);
}

Pace RingReport::pace() const {
  PaceValues all;
  std::copy_n(sums.begin() + kQualityCount + RingTotals::kPace, all.size(), all.begin());
  return std::bit_cast<Pace>(all);
}

std::vector<Metric> RingReport::Scalars(int workers) const {
  std::vector<Metric> scalars;
  for (size_t i = 0; i < kTotals.size(); ++i) {
    const double sum = total(static_cast<int>(i));
    scalars.push_back(
        {kTotals[i].name, kTotals[i].unit == Unit::kSeconds ? 1000 * sum / workers : sum});
  }
  return scalars;
}

std::string RingReport::OriginOfLoss(const Plan& plan) const {
  const int count = static_cast<int>(total(RingTotals::kNonfiniteLosses));
  if (count != 1) {
    return absl::StrCat("from ", count, " of ", plan.workers * plan.laps, " micro-batches");
  }
  const int number = static_cast<int>(total(RingTotals::kNonfiniteNumbers));
  return absl::StrCat("from micro-batch ", number, " of worker ", number % plan.workers);
}

std::function<void(Iteration, LapTask::Kind, const std::vector<double>&)> ReportInbox::Listener() {
  return [this](Iteration iteration, LapTask::Kind kind, const std::vector<double>& metrics) {
    const MutexLock lock(mutex_);
    if (closed_) return;
    reports_.push_back({iteration, kind, metrics, std::chrono::steady_clock::now()});
  };
}

void ReportInbox::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
}

std::vector<RingReport> ReportInbox::Take() {
  const MutexLock lock(mutex_);
  return std::exchange(reports_, {});
}

EvaluationResult EvaluationIn(const RingReport& report, bool tokens) {
  EvaluationResult result{.iteration = report.iteration.value, .loss = report.loss()};
  if (!tokens) result.accuracy = report.sums[1] / report.sums[2];
  return result;
}

std::pair<const char*, double> EvaluationResult::quality() const {
  return accuracy.has_value() ? std::pair("accuracy", *accuracy)
                              : std::pair("perplexity", std::exp(loss));
}

std::string EvaluationResult::Describe() const {
  return accuracy.has_value()
             ? absl::StrFormat("held-out loss %.4f, accuracy %.2f %%", loss, 100 * *accuracy)
             : absl::StrFormat("held-out loss %.4f, perplexity %.3f", loss, quality().second);
}

}  // namespace ringzero
