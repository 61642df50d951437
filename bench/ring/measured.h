// Measured: what one worker measured for one line of the table, and its way to worker 0 as text.
//
//   const std::string text = ToText(measured);
//   RZ_ASSIGN_OR_RETURN(Measured same, ParseMeasured(text));   // Internal if it is none
//
// Pure functions on values.
#ifndef RINGZERO_BENCH_RING_MEASURED_H_
#define RINGZERO_BENCH_RING_MEASURED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/ring/options.h"

namespace ringzero {

struct Measured {
  int64_t wrong = 0;
  std::vector<std::vector<double>> rounds;  // microseconds of each iteration
  std::vector<double> peer;                 // microseconds of each round
};

std::string ToText(const Measured& measured);
absl::StatusOr<Measured> ParseMeasured(const std::string& text);

// One number of the workers' (-a).
double Combine(Average average, const std::vector<double>& of_workers);

}  // namespace ringzero

#endif  // RINGZERO_BENCH_RING_MEASURED_H_
