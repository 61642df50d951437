// RandomBytes: from the system, for secrets and names that nobody can guess.
//
//   RZ_ASSIGN_OR_RETURN(const std::string secret, RandomBytes(32));
//   RZ_ASSIGN_OR_RETURN(const std::string name, RandomHex(8));   // 16 digits
//
// Thread-safe. ResourceExhausted when the system has none.
#ifndef RINGZERO_P2P_RANDOM_BYTES_H_
#define RINGZERO_P2P_RANDOM_BYTES_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace ringzero {

absl::StatusOr<std::string> RandomBytes(size_t bytes);
absl::StatusOr<std::string> RandomHex(size_t bytes);

}  // namespace ringzero

#endif  // RINGZERO_P2P_RANDOM_BYTES_H_
