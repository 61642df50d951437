// The reader of a run's folder, and the report that is made of it: run.json, a zero byte, and
// metrics.jsonl. Fed with anything: no crash, no hang.
#include <cstddef>
#include <cstdint>
#include <string>

#include "integrations/sight/report.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringzero;  // NOLINT: there is nothing else here
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\0');
  RunFolder run;
  if (!ParseRun(text.substr(0, end), run).ok()) return 0;
  if (end != std::string::npos) ParseMetrics(text.substr(end + 1), run).IgnoreError();
  FuzzCheck(Report({&run, 1}).ends_with("</html>\n"), "half a report");
  return 0;
}
