// Memory files: shared memory without a name, of a size that nobody can change.
//
//   RZ_ASSIGN_OR_RETURN(UniqueFd file, MakeMemoryFile("ringzero-pulses", bytes));
//   ... its descriptor travels over a Unix socket; there:
//   RZ_RETURN_IF_ERROR(CheckMemoryFile(file, bytes));
//
// They vanish with the last process that holds or maps them, however it ends. Functions without
// state.
#ifndef RINGZERO_P2P_MEMORY_FILE_H_
#define RINGZERO_P2P_MEMORY_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "p2p/unique_fd.h"

namespace ringzero {

// Zeroed; `name` is for /proc alone. ResourceExhausted when the system refuses.
absl::StatusOr<UniqueFd> MakeMemoryFile(const std::string& name, size_t bytes);

// That `file` has at least `bytes` and can't lose them (a process that reads behind the end of a
// shrunken file is killed). Internal if not.
absl::Status CheckMemoryFile(const UniqueFd& file, size_t bytes);

}  // namespace ringzero

#endif  // RINGZERO_P2P_MEMORY_FILE_H_
