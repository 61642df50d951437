// Whole files, read.
//
//   RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile("run/run.json"));
#ifndef RINGZERO_BASE_FILE_H_
#define RINGZERO_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace ringzero {

// The file, or its first `most` bytes: a device may have no end. Errors name the file. NotFound: it
// is not there. InvalidArgument: it is a FIFO, which could keep its reader waiting for ever.
// PermissionDenied: anything else. Thread-safe.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t most = SIZE_MAX);

}  // namespace ringzero

#endif  // RINGZERO_BASE_FILE_H_
