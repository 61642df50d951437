// The steps from a configuration's tree to a typed configuration, for config.cc: each key by
// itself, rules over several keys, then the fields.
#ifndef RINGZERO_ZERO_CONFIG_STEPS_H_
#define RINGZERO_ZERO_CONFIG_STEPS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "zero/config/config.h"
#include "zero/config/json_value.h"
#include "zero/config/resolve.h"

namespace ringzero {

// Checks what is given against the registry. Findings begin with the place: "gpt.json:12: " or
// "--set cyclic.slack=x: ". Finds all errors, not only the first; a wrong key then has no value.
ResolvedKeys ResolveKeys(const JsonValue& root, const std::string& file, Findings& findings);

// Gives the other keys their defaults.
void FillDefaults(ResolvedKeys& keys);

// Defaults, contradictions, "auto", the batch triple (if workers are not given: for any number).
void ApplyRules(ResolvedKeys& keys, Findings& findings);

// Fills the fields of our own sections from config.keys: their values are right one by one, and
// none is "auto". Goes on after an error, and returns all errors.
std::vector<absl::Status> FillOurs(Config& config);

// Fills the fields that a run needs, and returns all errors. Leaves out `refused`: sections (or
// keys at the top) with a value that no run takes.
std::vector<absl::Status> FillRun(Config& config, const std::set<std::string>& refused,
                                  ModelFrom model);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_STEPS_H_
