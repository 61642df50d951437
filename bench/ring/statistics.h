// Statistics: mean, median, percentiles and spread of many times of one thing.
//
//   const Statistics s = StatisticsOf(seconds);   // s.median, s.p99, …
//
// Pure functions on values.
#ifndef RINGZERO_BENCH_RING_STATISTICS_H_
#define RINGZERO_BENCH_RING_STATISTICS_H_

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
Statistics StatisticsOf(std::vector<double> values);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_STATISTICS_H_
