// The configuration's parser and checks, fed with anything: no crash, no hang, and what is printed
// reads back as the same.
//
// With clang and -fsanitize=fuzzer this is libFuzzer's target; else replay.cc gives it files and
// damaged copies of them.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "zero/config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const ringzero::ConfigSource source{.file = "f", .overrides = {}, .environment = {}};
  ringzero::CheckedConfig checked = ringzero::CheckConfig(text, source);
  for (const ringzero::Finding& finding : checked.findings.all()) {
    if (finding.line.find('\n') != std::string::npos) {
      std::fprintf(stderr, "more than one line: %s\n", finding.line.c_str());
      std::abort();
    }
  }
  if (checked.verdict() == ringzero::Verdict::kReject) return 0;
  const ringzero::CheckedConfig again = ringzero::CheckConfig(checked.config.Print(), source);
  if (again.config.keys.SharedLines() != checked.config.keys.SharedLines()) {
    std::fprintf(stderr, "reads back differently: %s\n%s\n", checked.config.Print().c_str(),
                 std::string(again.status().message()).c_str());
    std::abort();
  }
  ringzero::FillForTraining(checked);
  return 0;
}
