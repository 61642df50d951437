// The readers of plans and of operations, fed with anything: no crash, no hang, and what is written
// reads back as the same.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "sharding/op.h"
#include "sharding/plan.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringzero;  // NOLINT: there is nothing else here
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const absl::StatusOr<Plan> plan = ParsePlan(text); plan.ok()) {
    const std::string written = PlanToString(*plan);
    const absl::StatusOr<Plan> again = ParsePlan(written);
    FuzzCheck(again.ok(), "a plan does not read back: " + again.status().ToString());
    FuzzCheck(PlanToString(*again) == written, "a plan reads back differently");
    CheckPlan(*plan).IgnoreError();  // any answer but a crash
  }
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::StatusOr<Op> op = ParseOp(std::string(line));
    if (!op.ok()) continue;
    const absl::StatusOr<Op> again = ParseOp(ToString(*op));
    FuzzCheck(again.ok(), "an operation does not read back: " + again.status().ToString());
    FuzzCheck(*again == *op, "an operation reads back differently");
  }
  return 0;
}
