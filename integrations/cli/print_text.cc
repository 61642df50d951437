// A person reads what no program does.
#include "integrations/cli/print_text.h"

#include <cstdio>
#include <string>

#include "base/files.h"

namespace ringzero {

absl::Status PrintText(const CommandLine& line, absl::string_view text) {
  for (const std::string& path : {line.summary, line.dump_parameters, line.trace, line.out,
                                  line.svg, line.text, line.profile}) {
    if (path != "-") continue;
    std::fwrite(text.data(), 1, text.size(), stderr);
    return absl::OkStatus();
  }
  return PrintToStdout(text);
}

}  // namespace ringzero
