// One value: from what stands in the file to what its key wants.
//
//   absl::StatusOr<JsonValue> stage = ConvertValue(value, *FindKey("zero_optimization.stage"));
//
// InvalidArgument in words, without place or key: "wanted an integer, found 1.5".
#ifndef RINGZERO_ZERO_CONFIG_VALUES_H_
#define RINGZERO_ZERO_CONFIG_VALUES_H_

#include <string>

#include "absl/status/statusor.h"
#include "zero/config/json_value.h"
#include "zero/config/keys.h"

namespace ringzero {

// Converts as the key's reading says: strict sections also take "8", "true", true for 1, and whole
// floats for integers everywhere.
absl::StatusOr<JsonValue> ConvertValue(const JsonValue& value, const KeySpec& key);

// Is `value`, already converted, one that `train` can do?
bool IsBuilt(const JsonValue& value, const KeySpec& key);

// May it be "auto", to be given a value by another key or the command line? May it be null?
bool TakesAuto(const KeySpec& key);
bool TakesNull(const KeySpec& key);

// "a, b or c" of "a|b|c".
std::string OneOf(absl::string_view choices);
// All its choices, however they are compared: "a|b|c".
std::string AllChoices(const KeySpec& key);
// "at least 0 and less than 1"; empty when any number will do.
std::string DescribeRange(const KeyRange& range);
// Is it the string "auto"?
bool IsAuto(const JsonValue& value);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_VALUES_H_
