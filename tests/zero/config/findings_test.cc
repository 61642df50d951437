// Golden files of everything that is said of a configuration: tests/zero/golden/findings/X.json
// and, line by line, X.txt. And the document that the registry writes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/zero/config/golden.h"
#include "zero/config/config.h"

namespace ringzero {
namespace {

constexpr char kFolder[] = "tests/zero/golden/findings";

absl::string_view Word(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kError: return "error";
    case Finding::Kind::kNoEffect: return "no effect";
    case Finding::Kind::kMinor: return "no effect (minor)";
    case Finding::Kind::kOutside: return "outside";
    case Finding::Kind::kNotBuilt: return "not built";
    case Finding::Kind::kAuto: return "auto";
    case Finding::Kind::kMustSet: return "must be set";
    case Finding::Kind::kNote: return "note";
  }
  return "";
}

TEST(Findings, AreAsInTheGoldenFiles) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty());
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    const absl::StatusOr<std::string> text = ReadConfigFile(file.string());
    ASSERT_TRUE(text.ok()) << text.status();
    const CheckedConfig checked = CheckConfig(*text, {.file = file.filename().string()});
    std::string said = absl::StrCat("verdict: ", ToString(checked.verdict()), "\n");
    for (const Finding& finding : checked.findings.all()) {
      EXPECT_EQ(finding.line.find('\n'), std::string::npos);
      absl::StrAppend(&said, Word(finding.kind), ": ", finding.line, "\n");
    }
    ExpectGolden(absl::StrCat(kFolder, "/", file.stem().string(), ".txt"), said);
  }
}

TEST(Documents, AreWhatTheRegistrySays) { ExpectGolden("docs/config_keys.md", ConfigMarkdown()); }

}  // namespace
}  // namespace ringzero
