// What passes are held against update_reference.h with: steps that take every branch, and memory full of
// ordinary values and a few that are not.
//
//   for (const PassCase& each : PassCases({1, 1001})) {
//     PassMemory wanted(each), found(each);
//     reference::UpdatePass(each.step, wanted.Span());
//     …                                     // the pass under test, over found.Span()
//     ExpectSame(wanted, found);
//   }
#ifndef RINGZERO_TESTS_ZERO_PASS_CASES_H_
#define RINGZERO_TESTS_ZERO_PASS_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "zero/optimizer/kernels.h"

namespace ringzero {

// Where the new values go.
enum class Place { kOwn, kInPlace };

struct PassCase {
  UpdateStep step;
  ValueType wire_type = ValueType::kFp32;
  Place place = Place::kOwn;
  int64_t count = 0;

  std::string Name() const;
};
// Steps of every kind, which take every branch.
std::vector<UpdateStep> PassSteps(float divisor);
// "adam".
std::string NameOf(const UpdateStep& step);
// Those of two divisors, every wire type and place, each with every count.
std::vector<PassCase> PassCases(const std::vector<int64_t>& counts);

// The arrays of a span: two of one case are equal until a pass has run.
struct PassMemory {
  explicit PassMemory(const PassCase& of);
  UpdateSpan Span();

  PassCase of;
  std::vector<float> theta, sum, out, first, second;
  std::vector<uint16_t> wire;
};

// `count` ordinary values, and among them zeros, the smallest, the largest, infinity and NaN.
std::vector<float> MixedValues(int64_t count, uint64_t seed);
// `count` bit patterns of a wire type.
std::vector<uint16_t> NarrowValues(int64_t count, uint64_t seed);

// Blocks of values, and a row of lanes for each.
struct SquaresCase {
  SquaresCase(int64_t count, int64_t block);
  void PlainPass();

  int64_t block;
  std::vector<float> values;
  std::vector<double> lanes;
};

bool IsNan(ValueType type, uint16_t value);
// The same bits; a NaN for a NaN, as which one it is is left open to a processor.
void ExpectSame(const std::vector<float>& wanted, const std::vector<float>& found,
                const std::string& what);
void ExpectSame(ValueType type, const std::vector<uint16_t>& wanted,
                const std::vector<uint16_t>& found, const std::string& what);
void ExpectSame(const PassMemory& wanted, const PassMemory& found);

}  // namespace ringzero

#endif  // RINGZERO_TESTS_ZERO_PASS_CASES_H_
