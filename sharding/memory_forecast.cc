// Sums over the block table; of gradients, closed forms.
#include "sharding/memory_forecast.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "sharding/block_table.h"

namespace ringzero {
namespace {

// Gradients of at most pending + 1 backwards, one after the other, wait or are being made; after
// stage 0's comes the last stage's of the next lap. Without exchange they are dropped at once.
int64_t PendingGradients(const Plan& plan, const std::vector<int64_t>& gradient_bytes) {
  std::vector<int64_t> sums;
  for (int j = plan.stage_count() - 1; j >= 0; --j) {
    const int64_t bytes = gradient_bytes.empty() ? plan.stages[j].sum_bytes : gradient_bytes[j];
    if (plan.stages[j].sum_bytes > 0) sums.push_back(bytes);
  }
  const int64_t stages = static_cast<int64_t>(sums.size());
  const int64_t backwards = stages * plan.laps * (plan.iterations - plan.first_iteration);
  const int64_t together = plan.exchange ? plan.pending + int64_t{1} : 1;
  int64_t most = 0;
  for (int64_t first = 0; first < stages; ++first) {
    int64_t held = 0;
    for (int64_t i = first; i < std::min(first + together, backwards); ++i)
      held += sums[i % stages];
    most = std::max(most, held);
  }
  return most;
}

MemoryBytes BytesOf(const Plan& plan, const MemoryOptions& options, int worker) {
  MemoryBytes bytes;
  int64_t scratch = 0;
  for (const OwnBlock& own : StateBlocks(plan, WorkerId(worker), options.moment_bytes)) {
    if (own.category != nullptr) bytes.*own.category += own.bytes;
  }
  for (size_t j = 0; j < options.scratch_bytes.size(); ++j) {
    const bool updates = plan.has_masters(WorkerId(worker), StageId(static_cast<int>(j))) &&
                         plan.exchange && plan.stages[j].sum_bytes > 0;
    if (updates) scratch = std::max(scratch, options.scratch_bytes[j]);
  }
  bytes.moments += scratch;
  const bool begins_all = worker == 0 && plan.laps == 1 && plan.exchange;
  if (!(options.gradients_join_sums && begins_all)) {
    bytes.gradients = PendingGradients(plan, options.gradient_bytes);
  }
  return bytes;
}

}  // namespace

MemoryBytes& MemoryBytes::operator+=(const MemoryBytes& other) {
  for (const MemoryCategory& category : MemoryCategories()) {
    this->*category.bytes += other.*category.bytes;
  }
  return *this;
}

int64_t MemoryBytes::total() const {
  int64_t bytes = 0;
  for (const MemoryCategory& category : MemoryCategories()) bytes += this->*category.bytes;
  return bytes;
}

const std::vector<MemoryCategory>& MemoryCategories() {
  static const auto* const categories = new std::vector<MemoryCategory>{
      {"masters", &MemoryBytes::masters}, {"versions", &MemoryBytes::versions},
      {"moments", &MemoryBytes::moments}, {"sums", &MemoryBytes::sums},
      {"taken", &MemoryBytes::taken},     {"gradients", &MemoryBytes::gradients}};
  return *categories;
}

MemoryBytes MemoryForecast::host() const {
  MemoryBytes all;
  for (const MemoryBytes& worker : workers) all += worker;
  return all;
}

absl::StatusOr<MemoryForecast> ForecastMemory(const Plan& plan, const MemoryOptions& options) {
  RZ_RETURN_IF_ERROR(CheckPlan(plan));
  for (const auto& [name, bytes] : {std::pair("moment_bytes", &options.moment_bytes),
                                    std::pair("scratch_bytes", &options.scratch_bytes),
                                    std::pair("gradient_bytes", &options.gradient_bytes)}) {
    if (bytes->empty() || static_cast<int>(bytes->size()) == plan.stage_count()) continue;
    return InvalidArgument("memory: wanted ", name, " of ", plan.stage_count(), " stages, found ",
                           bytes->size());
  }
  MemoryForecast memory;
  for (int w = 0; w < plan.workers; ++w) memory.workers.push_back(BytesOf(plan, options, w));
  return memory;
}

std::string DescribeMemory(const MemoryForecast& memory, int64_t parameter_count) {
  const MemoryBytes host = memory.host();
  const double parameters = static_cast<double>(std::max<int64_t>(parameter_count, 1));
  std::string text =
      absl::StrFormat("\n%-10s  %14s  %15s\n", "memory", "bytes, host", "bytes/parameter");
  const auto line = [&](const char* name, int64_t bytes) {
    absl::StrAppendFormat(&text, "%-10s  %14d  %15.2f\n", name, bytes,
                          static_cast<double>(bytes) / parameters);
  };
  for (const MemoryCategory& category : MemoryCategories()) {
    line(category.name, host.*category.bytes);
  }
  line("total", host.total());
  return text;
}

}  // namespace ringzero
