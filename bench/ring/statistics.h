// Statistics: mean, median, percentiles and spread of many times of one thing.
//
//   const Statistics s = StatisticsOf(seconds);   // s.median, s.p99, …
//
// Pure functions on values.
#ifndef RINGZERO_BENCH_RING_STATISTICS_H_
#define RINGZERO_BENCH_RING_STATISTICS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace ringzero {

struct Statistics {
  double mean = 0;
  double median = 0;  // the mean of the two in the middle when the number is even
  double min = 0;
  double max = 0;
  double p95 = 0;  // nearest rank: the smallest value that 95 % do not exceed
  double p99 = 0;
  double deviation = 0;          // of the whole population, not of a sample of it
  double variation_percent = 0;  // deviation / mean
};

// All zero if there are no values.
inline Statistics StatisticsOf(std::vector<double> values) {
  Statistics result;
  if (values.empty()) return result;
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  const auto nearest_rank = [&values, count](size_t percent) {
    return values[std::max<size_t>((count * percent + 99) / 100, 1) - 1];
  };
  result.min = values.front();
  result.max = values.back();
  result.median = (values[(count - 1) / 2] + values[count / 2]) / 2;
  result.p95 = nearest_rank(95);
  result.p99 = nearest_rank(99);
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(count);
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / static_cast<double>(count));
  if (result.mean > 0) result.variation_percent = 100 * result.deviation / result.mean;
  return result;
}

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_STATISTICS_H_
