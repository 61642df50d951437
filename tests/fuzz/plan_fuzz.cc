// The readers of plans and of programs, fed with anything: no crash, no hang, and what is written
// reads back as the same.
#include <cstddef>
#include <cstdint>
#include <string>

#include "sharding/plan.h"
#include "sharding/program/program.h"
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
  if (const absl::StatusOr<Program> program = ParseProgram(text); program.ok()) {
    const std::string written = ToString(*program);
    const absl::StatusOr<Program> again = ParseProgram(written);
    FuzzCheck(again.ok(), "a program does not read back: " + again.status().ToString());
    FuzzCheck(ToString(*again) == written, "a program reads back differently");
  }
  return 0;
}
