// Sums, means and differences; reports travel as CBOR.
#include "integrations/cli/worker_report.h"

#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "sharding/op.h"

// Nothing is null.
template <typename T>
struct nlohmann::adl_serializer<std::optional<T>> {
  static void to_json(json& to, const std::optional<T>& from) {
    to = from.has_value() ? json(*from) : json(nullptr);
  }
  static void from_json(const json& from, std::optional<T>& to) {
    if (!from.is_null()) to = from.get<T>();
  }
};

namespace ringzero {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemoryBytes, masters, versions, moments, sums, taken, gradients)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StageTicks, forward, backward, add, update)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LayerTimes, name, nanoseconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerPlace, host, system, processor, instructions, cores,
                                   transport)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EvaluationResult, iteration, loss, accuracy)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepTimes, parameters, gradient_sums, update, other, on_core,
                                   cpu, minor_faults)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ActivationPoint, seconds, bytes, peak)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MeasuredCosts, stages, lap_nanoseconds, other_nanoseconds,
                                   messages)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerReport, worker, place, interrupted, not_written, measured,
                                   step_median, step_min, step_max, step_mean, times, pss_peak_mib,
                                   training_bytes, other_bytes, copied_bytes, skipped_updates,
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
  for (const Channel channel : {Channel::kForwardCopy, Channel::kBackwardCopy, Channel::kInject,
                                Channel::kSum, Channel::kRetire, Channel::kFinished}) {
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

Pace RingTotals::PaceIn(std::span<const double> sums) {
  return {.micro_batches = sums[kPace],
          .computing_seconds = sums[kPace + 1],
          .off_core_seconds = sums[kPace + 2],
          .disk_faults = sums[kPace + 3],
          .stolen_seconds = sums[kPace + 4]};
}

void RingTotals::SetPace(const Pace& pace, std::span<double> values) {
  const std::array<double, 5> all = {pace.micro_batches, pace.computing_seconds,
                                     pace.off_core_seconds, pace.disk_faults, pace.stolen_seconds};
  std::copy(all.begin(), all.end(), values.begin() + kPace);
}

std::vector<Scalar> RingTotals::Scalars(std::span<const double> sums, int workers) {
  std::vector<Scalar> scalars;
  for (size_t i = 0; i < kTotals.size(); ++i) {
    const bool time = kTotals[i].unit == Unit::kSeconds;
    scalars.push_back({kTotals[i].name, time ? 1000 * sums[i] / workers : sums[i]});
  }
  return scalars;
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

std::vector<ReportInbox::Report> ReportInbox::Take() {
  const MutexLock lock(mutex_);
  return std::exchange(reports_, {});
}

IterationResult ResultOf(const ReportInbox::Report& report) {
  const std::vector<double>& metrics = report.metrics;
  return {.done = report.iteration.value + 1,
          .loss = WithoutNanSign(metrics[0] / metrics[2]),
          .when = report.when,
          .totals = {metrics.begin() + kQualityCount, metrics.end()}};
}

EvaluationResult EvaluationIn(const ReportInbox::Report& report, EvaluationOf of) {
  const std::vector<double>& metrics = report.metrics;
  EvaluationResult result{.iteration = report.iteration.value,
                          .loss = WithoutNanSign(metrics[0] / metrics[2])};
  if (of == EvaluationOf::kClasses) result.accuracy = metrics[1] / metrics[2];
  return result;
}

EvaluationResult::Quality EvaluationResult::quality() const {
  return accuracy.has_value() ? Quality{"accuracy", *accuracy}
                              : Quality{"perplexity", std::exp(loss)};
}

std::string EvaluationResult::Describe() const {
  return accuracy.has_value()
             ? absl::StrFormat("held-out loss %.4f, accuracy %.2f %%", loss, 100 * *accuracy)
             : absl::StrFormat("held-out loss %.4f, perplexity %.3f", loss, quality().value);
}

void StepTimes::Add(const StepTimes& more, double factor) {
  for (double StepTimes::*const part :
       {&StepTimes::parameters, &StepTimes::gradient_sums, &StepTimes::update, &StepTimes::other,
        &StepTimes::on_core, &StepTimes::cpu, &StepTimes::minor_faults}) {
    this->*part += factor * (more.*part);
  }
}

StepTimes StepTimes::Now(const EngineStats& stats) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {.parameters = stats.wait_parameters_seconds,
          .gradient_sums = stats.wait_gradient_sums_seconds,
          .update = stats.wait_update_seconds,
          .other = stats.wait_other_seconds,
          .on_core = ThreadCpuSeconds(),
          .cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime),
          .minor_faults = static_cast<double>(usage.ru_minflt)};
}

StepMeter::StepMeter(const Options& options, const EngineStats& stats)
    : options_(options),
      last_time_(std::chrono::steady_clock::now()),
      last_(StepTimes::Now(stats)) {}

void StepMeter::EndLap(const LapTask& lap, const EngineStats& stats) {
  const bool trained = lap.kind == LapTask::Kind::kTrain;
  if (trained && lap.lap.value + 1 < options_.laps) return;
  const auto time = std::chrono::steady_clock::now();
  const StepTimes now = StepTimes::Now(stats);
  const int left_out = options_.iterations > options_.left_out ? options_.left_out : 0;
  if (trained && lap.iteration.value >= left_out) {
    seconds_.push_back(std::chrono::duration<double>(time - last_time_).count());
    times_.Add(now);
    times_.Add(last_, -1);
  }
  last_time_ = time;
  last_ = now;
}

void StepMeter::WriteTo(WorkerReport& report) const {
  report.measured = measured();
  report.times = times_;
  std::vector<double> seconds = seconds_;
  std::sort(seconds.begin(), seconds.end());
  if (seconds.empty()) return;
  const size_t half = seconds.size() / 2;
  report.step_median =
      seconds.size() % 2 == 1 ? seconds[half] : (seconds[half - 1] + seconds[half]) / 2;
  report.step_min = seconds.front();
  report.step_max = seconds.back();
  report.step_mean =
      std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

}  // namespace ringzero
