// Numbers separated by blanks, lists of them by bars.
#include "bench/ring/measured.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "bench/ring/statistics.h"

namespace ringzero {
namespace {

std::string Numbers(const std::vector<double>& values) {
  return absl::StrJoin(values, " ", [](std::string* out, double value) {
    absl::StrAppendFormat(out, "%.9g", value);
  });
}

absl::StatusOr<std::vector<double>> ParseNumbers(absl::string_view text) {
  std::vector<double> values;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    double value = 0;
    if (!absl::SimpleAtod(word, &value)) {
      return absl::InternalError(absl::StrCat("\"", word, "\" is no number"));
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace

std::string ToText(const Measured& measured) {
  std::string text = absl::StrCat(measured.wrong, "|", Numbers(measured.peer));
  for (const auto& round : measured.rounds) absl::StrAppend(&text, "|", Numbers(round));
  return text;
}

absl::StatusOr<Measured> ParseMeasured(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '|');
  Measured measured;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &measured.wrong)) {
    return absl::InternalError(absl::StrCat("a worker's numbers are \"", text.substr(0, 40), "\""));
  }
  RZ_ASSIGN_OR_RETURN(measured.peer, ParseNumbers(parts[1]));
  for (size_t i = 2; i < parts.size(); ++i) {
    RZ_ASSIGN_OR_RETURN(std::vector<double> round, ParseNumbers(parts[i]));
    measured.rounds.push_back(std::move(round));
  }
  return measured;
}

double Combine(Average average, const std::vector<double>& of_workers) {
  const Statistics s = StatisticsOf(of_workers);
  switch (average) {
    case Average::kWorker0: return of_workers.front();
    case Average::kMean: return s.mean;
    case Average::kMin: return s.min;
    case Average::kMax: return s.max;
  }
  return 0;
}

}  // namespace ringzero
