// Whole files.
//
//   RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile("run/run.json"));
#ifndef RINGZERO_BASE_FILE_H_
#define RINGZERO_BASE_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace ringzero {

// NotFound, or what else keeps it from being read, with its name. As large as the file is: for what
// may have no end (a device), it is the caller who must not ask.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

}  // namespace ringzero

#endif  // RINGZERO_BASE_FILE_H_
