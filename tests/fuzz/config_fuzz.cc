// The configuration's parser and checks, fed with anything: no crash, no hang, and what is printed
// reads back as the same.
//
// With clang and -fsanitize=fuzzer this is libFuzzer's target; else replay.cc gives it files and
// damaged copies of them.
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "zero/config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringzero;  // NOLINT: there is nothing else here
  const std::string text(reinterpret_cast<const char*>(data), size);
  const ConfigSource source{.file = "f", .overrides = {}, .environment = {}};
  CheckedConfig checked = CheckConfig(text, source);
  for (const Finding& finding : checked.findings.all()) {
    FuzzCheck(finding.line.find('\n') == std::string::npos, "more than one line: " + finding.line);
  }
  if (checked.findings.First(Finding::Kind::kError) != nullptr) return 0;
  const CheckedConfig again = CheckConfig(checked.config.Print(), source);
  const Finding* error = again.findings.First(Finding::Kind::kError);
  FuzzCheck(again.config.keys.SharedLines() == checked.config.keys.SharedLines(),
            "reads back differently: " + checked.config.Print() + "\n" +
                (error == nullptr ? "" : error->line));
  FillForTraining(checked);
  return 0;
}
