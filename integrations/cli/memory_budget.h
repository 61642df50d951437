// What a run may take of this host: as the configuration says, or as it is found.
//
//   const FitBudgets budgets = FindBudgets(config);          // of this host
//   const HostMemory free = FindHostMemory("/");             // what the kernel says
//
// Read anew at each call; functions without state.
#ifndef RINGZERO_INTEGRATIONS_CLI_MEMORY_BUDGET_H_
#define RINGZERO_INTEGRATIONS_CLI_MEMORY_BUDGET_H_

#include <cstdint>
#include <optional>
#include <string>

#include "sharding/fit_certificate.h"
#include "zero/config/config.h"

namespace ringzero {

// The least of what the system can still give and of what each cgroup above this process may still
// take; nothing where neither can be read. File pages that the kernel would give up at once count
// as free. `root`: where proc and sys lie, for tests.
FitBudget FindHostMemory(const std::string& root);

FitBudgets FindBudgets(const Config& config);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_MEMORY_BUDGET_H_
