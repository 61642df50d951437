// What the registry says of itself: docs/config.md and a JSON Schema.
//
//   std::fputs(ConfigMarkdown().c_str(), stdout);   // ringzero config --markdown
//
// Pure functions of the registry.
#ifndef RINGZERO_ZERO_CONFIG_DOCUMENTS_H_
#define RINGZERO_ZERO_CONFIG_DOCUMENTS_H_

#include <string>

namespace ringzero {

std::string ConfigMarkdown();

// JSON Schema 2020-12. It knows types, ranges, choices and which keys there are; rules over more
// than one key are beyond it.
std::string ConfigSchema();

}  // namespace ringzero

#endif  // RINGZERO_ZERO_CONFIG_DOCUMENTS_H_
