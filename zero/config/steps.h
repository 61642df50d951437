// The steps from a configuration's tree to a typed one, for config.cc: each key by itself, rules
// over several keys, then the fields.
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

// What is given, checked against the registry. Findings begin with the place: "gpt.json:12: " or
// "--set cyclic.slack=x: ". All are found, not only the first; what is wrong has no value then.
ResolvedKeys ResolveKeys(const JsonValue& root, const std::string& file, Findings& findings);

// And the rest.
void FillDefaults(ResolvedKeys& keys);

// Defaults, contradictions, "auto", the batch triple, for any number of workers that is not given.
void ApplyRules(ResolvedKeys& keys, Findings& findings);

// The fields of config.keys' sections of ours, which are right one by one and have no "auto". Goes
// on after what is wrong, and returns all of it.
std::vector<absl::Status> FillOurs(Config& config);

// The same of what a run needs. Leaves out `refused`: sections (or keys at the top) with a value
// that no run takes.
std::vector<absl::Status> FillRun(Config& config, const std::set<std::string>& refused);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_STEPS_H_
