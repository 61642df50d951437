// getrandom.
#include "p2p/random_bytes.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {

absl::StatusOr<std::string> RandomBytes(size_t bytes) {
  std::string random(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = getrandom(random.data() + done, bytes - done, 0);
    if (got > 0) done += static_cast<size_t>(got);
    if (got < 0 && errno != EINTR) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the system gives no random bytes: ", std::strerror(errno)));
    }
  }
  return random;
}

absl::StatusOr<std::string> RandomHex(size_t bytes) {
  RZ_ASSIGN_OR_RETURN(const std::string random, RandomBytes(bytes));
  return absl::BytesToHexString(random);
}

}  // namespace ringzero
