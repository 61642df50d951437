// What a test expects of an absl::Status or an absl::StatusOr.
//
//   RZ_ASSIGN(const Plan plan, ReadPlan(path));   // an error ends the test
//   EXPECT_THAT(ReadPlan("none"), Says("none"));         // words of its message, or a matcher
//   EXPECT_THAT(status, Fails(absl::StatusCode::kInternal, "tag 3"));
#ifndef RINGZERO_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define RINGZERO_TESTS_SUPPORT_STATUS_MATCHERS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace ringzero {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

template <typename T>
auto WordsMatcher(const T& wanted) {
  if constexpr (std::is_constructible_v<std::string, T>) {
    return ::testing::HasSubstr(std::string(wanted));
  } else {
    return wanted;
  }
}

MATCHER_P(Says, wanted, ::testing::DescribeMatcher<std::string>(WordsMatcher(wanted), negation)) {
  const absl::Status& status = StatusOf(arg);
  *result_listener << "which is " << status << " ";
  return ::testing::ExplainMatchResult(WordsMatcher(wanted), std::string(status.message()),
                                       result_listener);
}

MATCHER_P2(Fails, code, wanted, "") {
  return ::testing::ExplainMatchResult(Says(wanted), arg, result_listener) &&
         StatusOf(arg).code() == code;
}

}  // namespace ringzero

#define RZ_ASSIGN(declaration, ...) \
  RZ_ASSIGN_IMPL(RZ_STATUS_CONCAT(rz_assigned_, __LINE__), declaration, __VA_ARGS__)
#define RZ_ASSIGN_IMPL(temporary, declaration, ...)  \
  auto temporary = (__VA_ARGS__);                    \
  ASSERT_TRUE(temporary.ok()) << temporary.status(); \
  declaration = std::move(temporary).value()

#endif  // RINGZERO_TESTS_SUPPORT_STATUS_MATCHERS_H_
