// Checks a file as `train` would, with all findings, and prints the resolved values.
#include "integrations/cli/config_command.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/status.h"
#include "p2p/rendezvous/identity.h"
#include "zero/config/config.h"
#include "zero/config/documents.h"

namespace ringzero {
namespace {

// What a launcher's environment says of a run that would be started here.
absl::StatusOr<ConfigSource> SourceOf(const CommandLine& line) {
  ConfigSource source{.file = line.config, .overrides = line.overrides, .environment = {}};
  RZ_ASSIGN_OR_RETURN(const std::optional<Identity> identity,
                      FindIdentity(line.identity, CurrentEnvironment()));
  if (identity.has_value()) {
    source.environment.push_back(absl::StrCat("cyclic.workers=", identity->workers));
  }
  return source;
}

const char* Word(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kError: return "error";
    case Finding::Kind::kNoEffect:
    case Finding::Kind::kMinor: return "warning";
    case Finding::Kind::kOutside:
    case Finding::Kind::kNotBuilt:
    case Finding::Kind::kMustSet:
    case Finding::Kind::kAuto:
    case Finding::Kind::kNote: break;
  }
  return "note";
}

void PrintLine(absl::string_view kind, std::string line) {
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  std::fputs(absl::StrCat("ringzero: ", kind, line, "\n").c_str(), stderr);
}

}  // namespace

absl::Status RunConfig(const CommandLine& line) {
  if (line.schema) return PrintToStdout(ConfigSchema());
  if (line.markdown) return PrintToStdout(ConfigMarkdown());
  RZ_ASSIGN_OR_RETURN(const ConfigSource source, SourceOf(line));
  RZ_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(source.file));
  CheckedConfig checked = CheckConfig(text, source);
  for (const Finding& finding : checked.findings.all()) {
    if (RefusedByTraining(finding.kind)) continue;
    PrintLine(absl::StrCat(Word(finding.kind), ": "), finding.line);
  }
  const std::vector<std::string> refused = FillForTraining(checked);
  if (!refused.empty()) {
    PrintLine("", absl::StrCat(source.file, ": train refuses it, for ", refused.size(),
                               refused.size() == 1 ? " reason:" : " reasons:"));
  }
  for (const std::string& line : refused) PrintLine("  ", line);
  const int errors = checked.findings.Count(Finding::Kind::kError);
  if (errors > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.file, ": refused, for ", errors, errors == 1 ? " error" : " errors"));
  }
  return PrintToStdout(checked.config.Print());
}

}  // namespace ringzero
