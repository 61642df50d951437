// Summary of a finished run: the JSON that scripts read, and the same for a person.
//
//   Summary summary = Summarize(info, reports);
//   RZ_RETURN_IF_ERROR(WriteWholeFile(path, summary.json));
//   std::cout << summary.text;
//
// Names of the JSON are relied on (README). Seconds, waits, CPU seconds and faults are those of the
// measured iterations (step_meter.h), per iteration; waits are the mean over workers, CPU seconds
// and faults the sum. Bytes are those of the whole run, all workers, divided by its iterations.
#ifndef RINGZERO_INTEGRATIONS_CLI_SUMMARY_H_
#define RINGZERO_INTEGRATIONS_CLI_SUMMARY_H_

#include <string>
#include <vector>

#include "integrations/cli/worker_report.h"
#include "zero/config/config.h"

namespace ringzero {

struct SummaryInfo {
  const Config& config;
  int iterations = 0;  // that were done
  int planned_iterations = 0;
  bool interrupted = false;  // then no bytes are told: they are of whole runs
  const NotWritten& not_written;
  double seconds = 0;       // of the run, start-up included
  std::string certificate;  // fit_run.h's JSON, or empty
  std::string provenance;   // provenance.h's JSON
  std::string again;        // run_again.h's JSON, or empty
};

struct Summary {
  std::string json;
  std::string text;
};

// `reports`: one per worker, in order.
Summary Summarize(const SummaryInfo& info, const std::vector<WorkerReport>& reports);

}  // namespace ringzero

#endif  // RINGZERO_INTEGRATIONS_CLI_SUMMARY_H_
