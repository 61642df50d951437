// A file in nvme_path, and the engine that reads and writes it.
#include "zero/config/tier.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"
#include "offload/io_engine.h"
#include "offload/tier_file.h"
#include "zero/version_files.h"

namespace ringzero {

absl::StatusOr<OpenedTier> OpenTier(const Config& config, const PlannedModel& planned,
                                    WorkerId self) {
  const OffloadConfig& offload = config.offload;
  const int64_t bytes = LayOutTier(planned.plan, self, planned.layouts, config.optimizer).bytes;
  const int64_t versions = LayOutVersions(planned.plan, self).bytes;
  if (bytes == 0 && !planned.plan.any_streams_parameters()) return OpenedTier();
  absl::StatusOr<OpenedTier> tier = OpenTier(offload.nvme_path, bytes, versions, offload.io);
  if (!tier.ok()) return config.Error(offload.path_key(), tier.status().message());
  if (offload.bandwidth.has_value()) {
    tier->options.io = MakeThrottled(std::move(tier->options.io), 1e9 * *offload.bandwidth);
  }
  return tier;
}

namespace {

// Nanoseconds in which a thread that the disk wakes waits for a core, where all compute. Chosen so
// that computing waits as long in the simulation as in a run (docs/results/offload.md, parameters).
constexpr int64_t kWake = 6'000'000;

// For `workers` of one host. Nanoseconds.
absl::StatusOr<DiskTicks> ProbeTier(const Config& config, const PlannedModel& planned,
                                    int workers) {
  const OffloadConfig& offload = config.offload;
  DiskProbe probe;
  int64_t bytes = 0;
  for (const StagePlan& stage : planned.plan.stages) {
    bytes += stage.streamed_bytes + (stage.streams_parameters ? stage.parameter_bytes : 0);
  }
  const int64_t blocks = std::max<int64_t>(2, bytes / probe.block_bytes);
  probe.file_bytes = std::min(probe.file_bytes, blocks * probe.block_bytes);
  absl::StatusOr<TierFile> file = TierFile::Create(offload.nvme_path, probe.file_bytes);
  if (!file.ok()) return config.Error(offload.path_key(), file.status().message());
  // As much at once as all workers have.
  IoEngineOptions options = offload.io;
  options.depth = std::min(options.depth * workers, 4096);
  options.threads *= workers;
  probe.under_way *= workers;
  RZ_ASSIGN_OR_RETURN(ChosenIoEngine io, MakeIoEngine(options));
  const double one = 1e9 * offload.bandwidth.value_or(0);
  if (one > 0) io.engine = MakeThrottled(std::move(io.engine), one * workers);
  const auto speed = ProbeDisk(std::move(io.engine), file->descriptor(), probe);
  if (!speed.ok())
    return config.Error(offload.path_key(), offload.nvme_path, ": ", speed.status().message());
  const double rate = speed->bytes_per_second, alone = one > 0 ? std::min(one, rate) : rate;
  return DiskTicks{.per_byte = 1e9 / alone,
                   .at_once = rate / alone,
                   .computing = 1e9 * speed->computing,
                   .wake = kWake};
}

}  // namespace

absl::StatusOr<TierVerdict> JudgeTier(const Config& config, const PlannedModel& planned,
                                      SimulationOptions& speed) {
  const int workers = std::ranges::max(speed.links.hosts);
  RZ_ASSIGN_OR_RETURN(speed.disk, ProbeTier(config, planned, workers));
  TierVerdict tier;
  RZ_ASSIGN_OR_RETURN(tier.verdict, JudgeDisk(planned.plan, speed));
  std::optional<double> endurance = config.offload.endurance;
  if (endurance.has_value()) *endurance *= 1e12;
  tier.text = DescribeDisk(tier.verdict, endurance);
  return tier;
}

absl::Status CheckHidden(const Config& config, const TierVerdict& tier) {
  if (tier.verdict.hidden() || !config.offload.require_hidden) return absl::OkStatus();
  return config.Error("cyclic.offload.require_hidden", "a step would wait for the disk:\n",
                      tier.text);
}

}  // namespace ringzero
