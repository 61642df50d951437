// Short forms for absl::Status: errors, early return, and words added on the way out.
//
//   return InvalidArgument(path, ": wanted ", wanted, ", found ", found);
//   RZ_RETURN_IF_ERROR(ring.Share(to, key, buffer));
//   RZ_ASSIGN_OR_RETURN(Program program, MakeProgram(plan, worker, range));
//   return Annotate(status, "worker 2, iteration 7");   // "worker 2, iteration 7: …", same code
#ifndef RINGZERO_BASE_STATUS_H_
#define RINGZERO_BASE_STATUS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace ringzero {

// `status` with `where` in front of its message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status, const std::string& where) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}
template <typename Value>
absl::StatusOr<Value> Annotate(absl::StatusOr<Value> value, const std::string& where) {
  return value.ok() ? std::move(value) : Annotate(value.status(), where);
}

// Errors whose message is made of `parts` by absl::StrCat.
template <typename... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status FailedPrecondition(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status Internal(const Parts&... parts) {
  return absl::InternalError(absl::StrCat(parts...));
}
template <typename... Parts>
absl::Status Unavailable(const Parts&... parts) {
  return absl::UnavailableError(absl::StrCat(parts...));
}

}  // namespace ringzero

#define RZ_STATUS_CONCAT_INNER(a, b) a##b
#define RZ_STATUS_CONCAT(a, b) RZ_STATUS_CONCAT_INNER(a, b)

#define RZ_RETURN_IF_ERROR(expression)     \
  do {                                     \
    absl::Status rz_status = (expression); \
    if (!rz_status.ok()) return rz_status; \
  } while (false)

#define RZ_ASSIGN_OR_RETURN(declaration, expression) \
  RZ_ASSIGN_OR_RETURN_IMPL(RZ_STATUS_CONCAT(rz_status_or_, __LINE__), declaration, expression)
#define RZ_ASSIGN_OR_RETURN_IMPL(temporary, declaration, expression) \
  auto temporary = (expression);                                     \
  if (!temporary.ok()) return std::move(temporary).status();         \
  declaration = std::move(temporary).value()

#endif  // RINGZERO_BASE_STATUS_H_
