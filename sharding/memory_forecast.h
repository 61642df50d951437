// MemoryForecast: bytes of model states and buffers that a run of a plan will hold, told before it
// begins.
//
//   RZ_ASSIGN_OR_RETURN(MemoryForecast memory, ForecastMemory(plan, {.moment_bytes = moments}));
//   memory.host().total();      // of the whole host, every page once
//   memory.workers[2].masters;  // in memory that worker 2 allocates
//
// The first piece of the fit certificate. For workers of one process or on one host (shm), where
// copies are lent and take no memory. Activations, running statistics, what evaluations and
// collections add, and what a process takes without a model are not in it. Explained in
// docs/memory.md. Pure and deterministic.
#ifndef RINGZERO_SHARDING_MEMORY_FORECAST_H_
#define RINGZERO_SHARDING_MEMORY_FORECAST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sharding/plan.h"

namespace ringzero {

// In bytes; each page once, with the worker that allocates it.
struct MemoryBytes {
  int64_t masters = 0;  // one version of every owned stage, in fp32
  // The second one (cdp rules, stages that train) or two predictions; all that are not fp32.
  int64_t versions = 0;
  int64_t moments = 0;    // optimizer states of owned stages, and working memory of an update
  int64_t sums = 0;       // gradient sums: one per stage that trains
  int64_t taken = 0;      // memory of owners for complete sums that wait for the norm
  int64_t gradients = 0;  // the most of local ones that wait to be added to their sums
  int64_t total() const;
  MemoryBytes& operator+=(const MemoryBytes& other);
  bool operator==(const MemoryBytes&) const = default;
};

// Names as printed, in the order in which they are printed.
struct MemoryCategory {
  const char* name;
  int64_t MemoryBytes::*bytes;
};
const std::vector<MemoryCategory>& MemoryCategories();

struct MemoryOptions {
  std::vector<int64_t> moment_bytes;    // by stage, what its optimizer keeps; empty: nothing
  std::vector<int64_t> gradient_bytes;  // by stage, of one micro-batch; empty: as its sum
  // By stage, what an update works in, and needs no more when it is done; empty: nothing. A worker
  // has memory for the stage that needs most.
  std::vector<int64_t> scratch_bytes;
  // Gradients of matrices go into a sum that is there without being stored first (a model of
  // ringzero::Linear), so whoever begins a sum keeps none.
  bool gradients_join_sums = false;
};

struct MemoryForecast {
  std::vector<MemoryBytes> workers;
  MemoryBytes host() const;
};

// InvalidArgument if moment_bytes, scratch_bytes or gradient_bytes are neither empty nor one per
// stage.
absl::StatusOr<MemoryForecast> ForecastMemory(const Plan& plan, const MemoryOptions& options);

// A table: category, bytes of the whole host, bytes per parameter; and the total.
// `parameter_count`: of the model.
std::string DescribeMemory(const MemoryForecast& memory, int64_t parameter_count);

}  // namespace ringzero

#endif  // RINGZERO_SHARDING_MEMORY_FORECAST_H_
