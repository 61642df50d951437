// Files, read: whole, or one field of them.
//
//   RZ_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile("run/run.json"));
//   FieldOfFile("/proc/cpuinfo", "model name");   // "AMD EPYC 7B13"
#ifndef RINGZERO_BASE_FILE_H_
#define RINGZERO_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringzero {

// The file, or its first `most` bytes: a device may have no end. Errors name the file. NotFound: it
// is not there. InvalidArgument: it is a FIFO, which could keep its reader waiting for ever.
// PermissionDenied: anything else. Thread-safe.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t most = SIZE_MAX);

// Of a file of lines "name : value", as /proc has them: the value in the first line of that name.
// Empty: there is no such line, or no such file. Thread-safe.
std::string FieldOfFile(const std::string& path, absl::string_view name);

}  // namespace ringzero

#endif  // RINGZERO_BASE_FILE_H_
