// A file in nvme_path, and the engine that reads and writes it.
#include "zero/config/tier.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {

absl::StatusOr<OpenedTier> OpenTier(const Config& config, const PlannedModel& planned,
                                    WorkerId self) {
  const OffloadConfig& offload = config.offload;
  OpenedTier tier;
  const int64_t bytes = LayOutTier(planned.plan, self, planned.layouts, config.optimizer).bytes;
  if (bytes == 0) return tier;
  absl::StatusOr<TierFile> file = TierFile::Create(offload.nvme_path, bytes);
  if (!file.ok()) return config.Error(kNvmePathKey, file.status().message());
  RZ_ASSIGN_OR_RETURN(ChosenIoEngine io, MakeIoEngine(offload.io));
  if (offload.bandwidth.has_value()) {
    io.engine = MakeThrottled(std::move(io.engine), 1e9 * *offload.bandwidth);
  }
  const auto note = [&](bool so, const auto&... words) {
    if (so) tier.notes.push_back(absl::StrCat(offload.nvme_path, words...));
  };
  note(io.why != "io_uring", ": ", io.why);
  note(file->is_memory(), " is memory (tmpfs): nothing is saved by states that lie there");
  note(!file->is_direct(), ": no direct I/O there, so states fill the page cache, too");
  tier.options = {.file = file->descriptor(),
                  .file_name = absl::StrCat("states in ", offload.nvme_path),
                  .io = std::move(io.engine),
                  .mapped = file->mapped()};
  tier.file.emplace(*std::move(file));
  return tier;
}

}  // namespace ringzero
