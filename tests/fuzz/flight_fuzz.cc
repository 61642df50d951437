// The reader of flight records and of a trace's parts, and all that is made of them: a trace, a
// picture, who is to blame. Fed with anything: no crash, no hang, and what is written reads back as
// the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "integrations/sight/chrome_trace.h"
#include "tests/fuzz/check.h"
#include "zero/flight/flight_record.h"

namespace ringzero {
namespace {

void Look(const std::vector<FlightRecord>& records) {
  constexpr int kIterations = 2, kStages = 8;
  FuzzCheck(!BlameFlights(records).empty(), "nothing is said of a record");
  FuzzCheck(!ChromeTrace(records).empty(), "no trace");
  MeasuredSpeed(records, kStages);
  const auto shown = LastWhole(records, kIterations);
  if (!shown.has_value()) return;
  TimesOf(records, *shown);
}

}  // namespace
}  // namespace ringzero

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringzero;  // NOLINT: there is nothing else here
  const absl::StatusOr<FlightRecord> record =
      ParseFlight(std::string(reinterpret_cast<const char*>(data), size));
  if (!record.ok()) return 0;
  const std::string text = FlightToString(*record);
  const absl::StatusOr<FlightRecord> again = ParseFlight(text);
  FuzzCheck(again.ok() && FlightToString(*again) == text, "reads back differently");
  Look({*record});
  // Beside another worker's, whose clock is another.
  FlightRecord other = *record;
  other.worker = WorkerId(record->worker.value == 0 ? 1 : 0);
  if (other.worker.value >= other.workers) return 0;
  other.clock = "boot 2";
  other.offset.reset();
  Look(other.worker.value == 0 ? std::vector{other, *record} : std::vector{*record, other});
  return 0;
}
