// The contract of Rendezvous.
#include "tests/p2p/rendezvous_contract.h"

#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr seconds kLong(20);

void InThreads(int workers, const std::function<void(WorkerId self)>& body) {
  std::vector<std::jthread> threads;
  for (int w = 0; w < workers; ++w) threads.emplace_back([&body, w] { body(WorkerId(w)); });
}

absl::StatusOr<std::vector<std::string>> RunInThreads(
    int workers,
    const std::function<absl::StatusOr<std::shared_ptr<Rendezvous>>(WorkerId self)>& join,
    const RendezvousBody& body, bool leaves) {
  std::vector<absl::StatusOr<std::string>> results(workers, absl::UnknownError("not run"));
  InThreads(workers, [&](WorkerId self) {
    const absl::StatusOr<std::shared_ptr<Rendezvous>> rendezvous = join(self);
    absl::StatusOr<std::string>& result = results[self.value];
    result = rendezvous.ok() ? body(self, **rendezvous) : rendezvous.status();
    if (leaves && rendezvous.ok()) (*rendezvous)->Leave(result.status());
  });
  std::vector<std::string> values;
  for (absl::StatusOr<std::string>& result : results) {
    if (!result.ok()) return result.status();
    values.push_back(*std::move(result));
  }
  return values;
}

namespace {

TEST_P(RendezvousContract, EveryoneGetsWhatEveryonePut) {
  const auto results =
      GetParam().run(4, [](WorkerId self, Rendezvous& at) -> absl::StatusOr<std::string> {
        RZ_RETURN_IF_ERROR(
            at.Put(absl::StrCat("address/", self.value), absl::StrCat("host ", self.value)));
        std::string all;
        for (int w = 0; w < 4; ++w) {
          RZ_ASSIGN_OR_RETURN(const std::string theirs, at.Get(absl::StrCat("address/", w), kLong));
          absl::StrAppend(&all, theirs, ";");
        }
        return all;
      });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(*results, std::vector<std::string>(4, "host 0;host 1;host 2;host 3;"));
}

TEST_P(RendezvousContract, AGetWaitsForThePut) {
  const auto results =
      GetParam().run(2, [](WorkerId self, Rendezvous& at) -> absl::StatusOr<std::string> {
        if (self.value == 0) return at.Get("late", kLong);
        // The other one waits, or comes later; both are right.
        const absl::Status early = at.Get("late", milliseconds(100)).status();
        if (early.code() != absl::StatusCode::kDeadlineExceeded) {
          return absl::InternalError(absl::StrCat("not yet there: ", early.ToString()));
        }
        RZ_RETURN_IF_ERROR(at.Put("late", "here"));
        return std::string("put");
      });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0], "here");
}

TEST_P(RendezvousContract, ADeadlineNamesKeyAndStore) {
  const auto results =
      GetParam().run(1, [](WorkerId, Rendezvous& at) -> absl::StatusOr<std::string> {
        const auto start = std::chrono::steady_clock::now();
        const absl::Status status = at.Get("ucx/7", milliseconds(120)).status();
        const auto took = std::chrono::steady_clock::now() - start;
        if (status.code() != absl::StatusCode::kDeadlineExceeded) return status;
        if (!absl::StrContains(status.message(), "'ucx/7'") ||
            !absl::StrContains(status.message(), at.name())) {
          return absl::InternalError(status.message());
        }
        if (took < milliseconds(120)) return absl::InternalError("too early");
        RZ_RETURN_IF_ERROR(at.Put("ucx/7", "after all"));  // a late answer is no other's
        RZ_RETURN_IF_ERROR(at.Put("ucx/8", "another"));
        return at.Get("ucx/8", kLong);
      });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0], "another");
}

TEST_P(RendezvousContract, AKeyKeepsItsFirstValue) {
  const auto results =
      GetParam().run(3, [](WorkerId self, Rendezvous& at) -> absl::StatusOr<std::string> {
        const absl::Status put = at.Put("who", absl::StrCat(self.value));
        if (!put.ok() && put.code() != absl::StatusCode::kAlreadyExists) return put;
        if (!put.ok() && !absl::StrContains(put.message(), "'who'")) return put;
        RZ_ASSIGN_OR_RETURN(const std::string winner, at.Get("who", kLong));
        if (put.ok() != (winner == absl::StrCat(self.value))) {
          return absl::InternalError("a put that failed won, or one that did not lost");
        }
        if (put.ok()) RZ_RETURN_IF_ERROR(at.Put("who", winner));  // once more is no other value
        return winner;
      });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0], (*results)[1]);
  EXPECT_EQ((*results)[0], (*results)[2]);
}

TEST_P(RendezvousContract, KeysAndValuesAreAnyBytes) {
  const std::vector<std::string> keys = {"a/b",     "a%2Fb", "..",  "/",
                                         "../../x", "a b\n", "Ärz", std::string(300, 'k')};
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const auto results =
      GetParam().run(2, [&](WorkerId self, Rendezvous& at) -> absl::StatusOr<std::string> {
        for (size_t i = 0; i < keys.size(); ++i) {
          if (self.value == 0) RZ_RETURN_IF_ERROR(at.Put(keys[i], absl::StrCat(bytes, i)));
          RZ_ASSIGN_OR_RETURN(const std::string got, at.Get(keys[i], kLong));
          if (got != absl::StrCat(bytes, i)) return absl::InternalError(keys[i]);
        }
        RZ_RETURN_IF_ERROR(at.Put(absl::StrCat("empty", self.value), ""));
        return at.Get(absl::StrCat("empty", 1 - self.value), kLong);
      });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0], "");
}

TEST_P(RendezvousContract, LargeValuesUpToTheLimit) {
  const auto results =
      GetParam().run(2, [](WorkerId self, Rendezvous& at) -> absl::StatusOr<std::string> {
        const std::string mine(kMaxRendezvousValueBytes, static_cast<char>('a' + self.value));
        RZ_RETURN_IF_ERROR(at.Put(absl::StrCat("large", self.value), mine));
        const absl::Status too_large =
            at.Put(absl::StrCat("huge", self.value), absl::StrCat(mine, "!"));
        if (too_large.code() != absl::StatusCode::kInvalidArgument) {
          return absl::InternalError(absl::StrCat("too large: ", too_large.ToString()));
        }
        return at.Get(absl::StrCat("large", 1 - self.value), kLong);
      });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0], std::string(kMaxRendezvousValueBytes, 'b'));
  EXPECT_EQ((*results)[1], std::string(kMaxRendezvousValueBytes, 'a'));
}

TEST_P(RendezvousContract, ManyKeys) {
  constexpr int kKeys = 40;
  const auto results =
      GetParam().run(3, [](WorkerId self, Rendezvous& at) -> absl::StatusOr<std::string> {
        for (int i = 0; i < kKeys; ++i) {
          RZ_RETURN_IF_ERROR(at.Put(absl::StrCat(self.value, "/", i), absl::StrCat(i * i)));
        }
        const int next = (self.value + 1) % 3;
        int sum = 0;
        for (int i = 0; i < kKeys; ++i) {
          RZ_ASSIGN_OR_RETURN(const std::string got, at.Get(absl::StrCat(next, "/", i), kLong));
          sum += std::stoi(got);
        }
        return absl::StrCat(sum);
      });
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(*results, std::vector<std::string>(3, "20540"));
}

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RendezvousContract);

}  // namespace ringzero
