// Sorts once.
#include "bench/ring/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace ringzero {
namespace {

double NearestRank(const std::vector<double>& sorted, size_t percent) {
  const size_t rank = (sorted.size() * percent + 99) / 100;
  return sorted[std::max<size_t>(rank, 1) - 1];
}

}  // namespace

Statistics StatisticsOf(std::vector<double> values) {
  Statistics result;
  if (values.empty()) return result;
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  result.min = values.front();
  result.max = values.back();
  result.median = (values[(count - 1) / 2] + values[count / 2]) / 2;
  result.p95 = NearestRank(values, 95);
  result.p99 = NearestRank(values, 99);
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(count);
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / static_cast<double>(count));
  if (result.mean > 0) result.variation_percent = 100 * result.deviation / result.mean;
  return result;
}

}  // namespace ringzero
