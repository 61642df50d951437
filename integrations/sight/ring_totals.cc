// One table says what is summed, and as what it is shown.
#include "integrations/sight/ring_totals.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "sharding/memory_forecast.h"
#include "sharding/op.h"

namespace ringzero {
namespace {

enum class Unit { kSeconds, kBytes, kHeldBytes, kKnown };

struct Total {
  const char* name;
  Unit unit;
};

// DeepSpeed's names where it has one.
constexpr std::array<Total, RingTotals::kCount> kTotals = {{
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
    {"Ring/Samples/memory_masters", Unit::kHeldBytes},
    {"Ring/Samples/memory_versions", Unit::kHeldBytes},
    {"Ring/Samples/memory_moments", Unit::kHeldBytes},
    {"Ring/Samples/memory_sums", Unit::kHeldBytes},
    {"Ring/Samples/memory_taken", Unit::kHeldBytes},
    {"Ring/Samples/memory_gradients", Unit::kHeldBytes},
    {"Ring/Samples/gradient_norm", Unit::kKnown},
    {"Train/Samples/loss_scale", Unit::kKnown},
    {"losses that are not finite", Unit::kKnown},
    {"their micro-batches", Unit::kKnown},
    {"Ring/Samples/off_core_ms", Unit::kSeconds},
    {"Ring/Samples/pss_mib", Unit::kHeldBytes},
    {"a worker's micro-batches", Unit::kKnown},
    {"its computing", Unit::kKnown},
    {"of which off the core", Unit::kKnown},
    {"its disk faults", Unit::kKnown},
    {"its host's stolen time", Unit::kKnown},
}};

std::vector<double> Now(const EngineStats& stats) {
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
  return now;
}

}  // namespace

std::vector<double> RingTotals::Take(const LapTask& lap, const EngineStats& stats,
                                     const Known& known) {
  std::vector<double> now = Now(stats);
  RZ_CHECK(now.size() == kGradientSquares, "a category of memory without a name in kTotals");
  now.resize(kCount);
  std::vector<double> taken(kCount);
  const bool trains = lap.kind == LapTask::Kind::kTrain;
  const bool last_lap = lap.lap.value + 1 == laps_;
  for (size_t i = 0; i < kCount && trains; ++i) {
    if (kTotals[i].unit != Unit::kHeldBytes) {
      taken[i] = now[i] - last_[i];
    } else if (last_lap) {
      taken[i] = now[i];
    }
  }
  if (trains) {
    taken[kGradientSquares] = known.squares;
    taken[kLossScale] = known.loss_scale;
    taken[kNonfiniteLosses] = known.nonfinite_losses;
    taken[kNonfiniteNumbers] = known.nonfinite_number;
    taken[kOffCore] = known.off_core_seconds;
    taken[kPss] = known.pss_mib;
    const Pace& pace = known.pace;
    const double values[] = {pace.micro_batches, pace.computing_seconds, pace.off_core_seconds,
                             pace.disk_faults, pace.stolen_seconds};
    static_assert(kPace + std::size(values) == kCount);
    std::copy(std::begin(values), std::end(values), taken.begin() + kPace);
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

std::vector<Scalar> RingTotals::Scalars(std::span<const double> sums, int workers) {
  std::vector<Scalar> scalars;
  for (size_t i = 0; i < kCount; ++i) {
    if (kTotals[i].unit == Unit::kKnown) continue;
    const bool time = kTotals[i].unit == Unit::kSeconds;
    scalars.push_back({kTotals[i].name, time ? 1000 * sums[i] / workers : sums[i]});
  }
  return scalars;
}

}  // namespace ringzero
