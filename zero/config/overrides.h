// --set KEY.PATH=VALUE: changes of a configuration's tree, before it is checked.
//
//   RZ_RETURN_IF_ERROR(ApplyOverrides({"cyclic.rule=dp", "data.type=random"},
//                                     OverridesFrom::kCommandLine, root));
//
// VALUE is JSON where it parses as JSON, else a string. `X.type=…` replaces section X: keys that do
// not belong to the new type are dropped, unless they are set too. `iterations=…` drops `epochs`
// and the other way round. The order of the overrides does not matter, but of two for one key the
// last wins. There may be as much of them as of a file: 256 KiB and 64 levels; and at most 1000.
#ifndef RINGZERO_ZERO_CONFIG_OVERRIDES_H_
#define RINGZERO_ZERO_CONFIG_OVERRIDES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "zero/config/json_value.h"

namespace ringzero {

enum class OverridesFrom { kCommandLine, kEnvironment };

absl::Status ApplyOverrides(const std::vector<std::string>& overrides, OverridesFrom from,
                            JsonValue& root);

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_OVERRIDES_H_
