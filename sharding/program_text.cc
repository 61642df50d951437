// A program as text, one operation per line, and back.
#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "sharding/program.h"

namespace ringzero {

std::string ToString(const Program& program) {
  std::string text = absl::StrCat("program worker ", program.worker.value, " iterations ",
                                  program.range.begin.value, " ", program.range.end.value, "\n");
  for (const Op& op : program.ops) absl::StrAppend(&text, ToString(op), "\n");
  return text;
}

absl::StatusOr<Program> ParseProgram(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  Program program;
  const std::vector<std::string> head =
      lines.empty() ? std::vector<std::string>() : absl::StrSplit(lines[0], ' ');
  const auto number = [&](size_t i, int* value) {
    const std::string& word = head[i];
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *value);
    return error == std::errc() && end == word.data() + word.size();
  };
  if (head.size() != 6 || head[0] != "program" || head[1] != "worker" || head[3] != "iterations" ||
      !number(2, &program.worker.value) || !number(4, &program.range.begin.value) ||
      !number(5, &program.range.end.value)) {
    return absl::InvalidArgumentError("line 1: wanted \"program worker W iterations BEGIN END\"");
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    absl::StatusOr<Op> op = ParseOp(lines[i]);
    if (!op.ok()) return Annotate(op.status(), absl::StrCat("line ", i + 1));
    program.ops.emplace_back(*op);
  }
  return program;
}

}  // namespace ringzero
